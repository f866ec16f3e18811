package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	matrixFile = root + "/docs/failure-matrix.md"
	rulesFile  = root + "/docs/kafka-rules.md"
	rules      = 46 // in its tables, which come first
	reports    = 27

	postgresFile    = root + "/docs/postgres-rules.md"
	recordRules     = 17
	driverRules     = 11
	databaseReports = 37

	securityFile  = root + "/docs/security.md"
	securityRules = 12
	securityRoles = 6
	privacyRules  = 2

	module   = "github.com/einmal-go/einmal/"
	untested = "not tested yet"
	fewest   = 60 // rows
	mostOpen = 6  // rows without a test
)

// TestFailureMatrix checks that each row of the matrix names a test, and that the tests which it names exist, subtests
// too.
func TestFailureMatrix(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, os.DirFS(root))
	rows, open := matrixRows(string(text)), 0
	for _, row := range rows {
		if row.evidence() == untested {
			open++
			continue
		}
		names := row.tests()
		if len(names) == 0 {
			t.Errorf("%q names no test and does not say %q", row[0], untested)
		}
		for _, name := range names {
			if err := tests.find(name); err != nil {
				t.Errorf("%q: %v", row[0], err)
			}
		}
	}
	if len(rows) < fewest || open > mostOpen {
		t.Errorf("%d rows, %d of them not tested: were all found?", len(rows), open)
	}
}

// TestFailures checks that each row about a message that fails names tests, and that they exist.
func TestFailures(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, os.DirFS(root))
	rows, named := matrixRows(string(text)), map[string]bool{}
	for _, row := range rows {
		if len(row.tests()) == 0 {
			t.Errorf("%q names no test", row[0])
		}
		for _, name := range row.tests() {
			named[name] = true
			if err := tests.find(name); err != nil {
				t.Errorf("%q: %v", row[0], err)
			}
		}
	}
	if len(rows) < 25 || len(named) < 60 {
		t.Errorf("%d rows and %d tests: were all found?", len(rows), len(named))
	}
}

// TestKafkaRules checks that no rule and no report is left out, that each names a test or says why there is none, and
// that the tests exist.
func TestKafkaRules(t *testing.T) {
	t.Parallel()
	checkRules(t, rulesFile, slices.Concat(numbered("", rules), numbered("", reports)))
}

// TestPostgresRules does the same for the rules of the database.
func TestPostgresRules(t *testing.T) {
	t.Parallel()
	checkRules(t, postgresFile, slices.Concat(numbered("A", recordRules), numbered("D", driverRules),
		numbered("", databaseReports)))
}

// TestSecurityRules does the same for what strangers cannot do. Rows without a number are no rules.
func TestSecurityRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(securityFile)
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`^[RP]?[0-9]+[a-z]?$`)
	rows := slices.DeleteFunc(matrixRows(string(text)), func(row matrixRow) bool { return !number.MatchString(row[0]) })
	checkRows(t, securityFile, rows, slices.Concat(numbered("", securityRules), numbered("R", securityRoles),
		numbered("P", privacyRules)))
}

func numbered(prefix string, n int) (numbers []string) {
	for i := range n {
		numbers = append(numbers, prefix+strconv.Itoa(i+1))
	}
	return numbers
}

// checkRules wants the numbers in their order, and allows rows of others between and behind them.
func checkRules(t *testing.T, path string, numbers []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, path, matrixRows(string(text)), numbers)
}

func checkRows(t *testing.T, path string, rows []matrixRow, numbers []string) {
	t.Helper()
	tests := testsOf(t, os.DirFS(root))
	for _, row := range rows {
		if len(numbers) > 0 && row[0] == numbers[0] {
			numbers = numbers[1:]
		}
		names := row.tests()
		if len(names) == 0 && !strings.HasPrefix(row.evidence(), "none: ") {
			t.Errorf("%s %q names no test, and does not say why", row[0], row[1])
		}
		for _, name := range names {
			if err := tests.find(name); err != nil {
				t.Errorf("%s: %v", row[0], err)
			}
		}
	}
	if len(numbers) > 0 {
		t.Errorf("%s: %s is missing, or not in its place", path, numbers[0])
	}
}

// TestNamesInDocuments checks the tests that are named anywhere.
func TestNamesInDocuments(t *testing.T) {
	t.Parallel()
	tests := testsOf(t, os.DirFS(root))
	all := documents(t)
	for path, text := range all {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if err := tests.find(m[1]); err != nil && m[1] != "package.Test/subtest" { // the form itself
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for name, fewest := range map[string]int{"stores": 20, "status": 8, "calls": 1} {
		if found := testName.FindAllString(all[filepath.Join(root, "docs", name+".md")], -1); len(found) < fewest {
			t.Errorf("docs/%s.md: %d names: were all found?", name, len(found))
		}
	}
}

// TestCrashTestsAreInTheMatrix checks that no crash test is forgotten.
func TestCrashTestsAreInTheMatrix(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, os.DirFS(root))
	for _, dir := range []string{"internal/crashtest", "dedupstore/internal/losttest"} {
		for name := range tests.packages[dir].decls {
			full := filepath.Base(dir) + "." + name
			if strings.HasPrefix(name, "Test") && name != "TestMain" && !strings.Contains(string(text), "`"+full) {
				t.Errorf("docs/failure-matrix.md does not name %s", full)
			}
		}
	}
}

// TestWrongNamesAreFound checks the checker.
func TestWrongNamesAreFound(t *testing.T) {
	t.Parallel()
	tests := testsOf(t, os.DirFS(root))
	for name, want := range map[string]string{
		"crashtest.TestKilledAt":                 "",
		"crashtest.TestKilledAt/before BEGIN":    "", // in a table of constants
		"pgxstore.TestStore/13 outcome unknown":  "", // in another package's table
		"billing.TestEveryOrderIsChargedOnce":    "", // package main
		"crashtest.TestKilledAt/before lunch":    "no subtest",
		"crashtest.TestFrozenOwner/before BEGIN": "no subtest", // that is another test's
		"crashtest.TestKilled":                   "no test",
		"crashtests.TestKilledAt":                "no package",
	} {
		err := tests.find(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// matrixRow is the cells of a row.
type matrixRow []string

// byCode begins a table that package sqlclass compares with its own, so that its rows name no test.
var byCode = regexp.MustCompile(`^\| (SQLSTATE|result code) \|`)

// matrixRows are those of all tables but those of byCode, without their heads.
func matrixRows(text string) (rows []matrixRow) {
	head, skip := true, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			head, skip = true, false
		case byCode.MatchString(line):
			skip = true
		case skip:
		case strings.HasPrefix(line, "|---"):
			head = false
		case !head:
			var row matrixRow
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				row = append(row, strings.TrimSpace(cell))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (r matrixRow) evidence() string { return r[len(r)-1] }

var testName = regexp.MustCompile("`([a-z]+\\.(?:Test|Fuzz|Example)[^`]*)`")

func (r matrixRow) tests() (names []string) {
	for _, m := range testName.FindAllStringSubmatch(r.evidence(), -1) {
		names = append(names, m[1])
	}
	return names
}

// testIndex knows what is declared in the module, tests included.
type testIndex struct{ packages map[string]*packageIndex } // by directory

type packageIndex struct {
	decls   map[string]ast.Node // top-level functions, variables and constants by name
	imports map[string]string   // directories within the module by the name of the import
}

func testsOf(t *testing.T, module fs.FS) *testIndex {
	t.Helper()
	index := &testIndex{map[string]*packageIndex{}}
	err := fs.WalkDir(module, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := fs.ReadFile(module, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		index.add(filepath.Dir(path), file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// add takes in a file. The files of a package and of its external tests count as one.
func (x *testIndex) add(dir string, file *ast.File) {
	p := x.packages[dir]
	if p == nil {
		p = &packageIndex{map[string]ast.Node{}, map[string]string{}}
		x.packages[dir] = p
	}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if within, ok := strings.CutPrefix(path, module); ok {
			p.imports[filepath.Base(within)] = within
		}
	}
	for _, decl := range file.Decls {
		p.declare(decl)
	}
}

func (p *packageIndex) declare(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			p.decls[d.Name.Name] = d
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					p.decls[name.Name] = v
				}
			}
		}
	}
}

// find looks for "package.Test" or "package.Test/subtest". A subtest is there if its name stands as a string in the
// test's function, or in what that uses by name.
func (x *testIndex) find(name string) error {
	test, subtest, _ := strings.Cut(name, "/")
	pkg, function, _ := strings.Cut(test, ".")
	var dirs []string
	for dir := range x.packages {
		if filepath.Base(dir) == pkg {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) > 1 { // the tests of a package may have a module of their own: one of them has it
		dirs = slices.DeleteFunc(dirs, func(dir string) bool { return x.packages[dir].decls[function] == nil })
	}
	if len(dirs) != 1 {
		return fmt.Errorf("%s: no package, or several: %q", name, dirs)
	}
	decl, ok := x.packages[dirs[0]].decls[function].(*ast.FuncDecl)
	if !ok {
		return fmt.Errorf("%s: no test of that name in %s", name, dirs[0])
	}
	if subtest != "" && !slices.Contains(x.stringsOf(dirs[0], decl, map[ast.Node]bool{}), subtest) {
		return fmt.Errorf("%s: no subtest of that name: say it as it stands in the code", name)
	}
	return nil
}

// stringsOf collects the strings in a node and in the declarations that it names, in its package and in those that it
// imports.
func (x *testIndex) stringsOf(dir string, node ast.Node, seen map[ast.Node]bool) (found []string) {
	if node == nil || seen[node] {
		return nil
	}
	seen[node] = true
	p := x.packages[dir]
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				found = append(found, text)
			}
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && p.imports[id.Name] != "" {
				other := p.imports[id.Name]
				if q := x.packages[other]; q != nil {
					found = append(found, x.stringsOf(other, q.decls[n.Sel.Name], seen)...)
				}
				return false
			}
		case *ast.Ident:
			found = append(found, x.stringsOf(dir, p.decls[n.Name], seen)...)
		}
		return true
	})
	return found
}
