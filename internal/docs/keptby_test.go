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
	"strings"
	"testing"
)

// ruleFiles are the documents with tables of rules, and how many places they name at least.
var ruleFiles = map[string]int{"kafka-rules": 80, "postgres-rules": 35, "outbox-rules": 40, "http-rules": 30,
	"security": 15}

// TestKeptBy checks that the files and functions exist by which the rules are kept.
func TestKeptBy(t *testing.T) {
	t.Parallel()
	code := codeOf(t, os.DirFS(root))
	for name, fewest := range ruleFiles {
		text, err := os.ReadFile(root + "/docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, row := range keptBy(string(text)) {
			places := placesIn(row[1])
			found += len(places)
			for _, p := range places {
				if err := code.find(p); err != nil {
					t.Errorf("docs/%s.md: %s is kept by %q: %v", name, row[0], row[1], err)
				}
			}
		}
		if found < fewest {
			t.Errorf("docs/%s.md: %d places: were all found?", name, found)
		}
	}
}

// TestWayOfARow checks that the files and functions exist through which a row goes, as CONTRIBUTING.md tells it.
func TestWayOfARow(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, _ := strings.Cut(string(text), "The way of a row of the outbox")
	way, _, _ = strings.Cut(way, "\nInside ")
	code, places := codeOf(t, os.DirFS(root)), placesIn(way)
	for _, p := range places {
		if err := code.find(p); err != nil {
			t.Errorf("the way of a row: %v", err)
		}
	}
	if len(places) < 25 {
		t.Errorf("only %d places were found", len(places))
	}
}

// TestWrongPlacesAreFound checks the checker.
func TestWrongPlacesAreFound(t *testing.T) {
	t.Parallel()
	code := codeOf(t, os.DirFS(root))
	for text, want := range map[string]string{
		"membership.go `sessions`, run.go `consume`":  "",
		"internal/kafkaconf dialer.go `Cut`; log.go":  "", // a package and its file
		"pgxstore/store.go `Once`":                    "",
		"kafka.go `Fetch.Default`":                    "", // a text in the file
		"strategy.go `ToCooperative`":                 "", // a constant
		"the schema, `Topic.Consumer`":                "", // no place in the code
		"record.go `prepare`":                         "no prepare",
		"bunstore/store.go `preparesNothing`":         "no preparesNothing",
		"strategy.go `pump`":                          "no pump",
		"internal/topicwindow membership.go `member`": "no file",
		"lambda.go":             "no file",
		"kafka.go `Fetch.Zero`": "no Fetch.Zero",
	} {
		var all []string
		for _, p := range placesIn(text) {
			if err := code.find(p); err != nil {
				all = append(all, err.Error())
			}
		}
		if got := strings.Join(all, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// keptBy are the number of each rule, and what its cell "kept by" says.
func keptBy(text string) (rows [][2]string) {
	column := -1
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "kept by" {
				column = i
			}
		}
		if column >= 0 && column < len(cells) {
			rows = append(rows, [2]string{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[column])})
		}
	}
	return rows
}

// place is a file, and a name in it; or the file alone.
type place struct{ file, name string }

var placeWords = regexp.MustCompile(`\([^)]*\)|(?:([a-z0-9/]+) )?([a-z0-9_/]+\.go)|` + "`([^`]+)`")

// placesIn are the files that a text names, and the names that follow them. What stands in parentheses is a remark.
func placesIn(text string) (places []place) {
	file := ""
	for _, m := range placeWords.FindAllStringSubmatch(text, -1) {
		switch {
		case m[2] != "":
			file = strings.TrimPrefix(m[1]+"/"+m[2], "/")
			places = append(places, place{file, ""})
		case file != "" && m[3] != "":
			places = append(places, place{file, m[3]})
		}
	}
	return places
}

// codeIndex knows the files of the module, but for tests, by their paths.
type codeIndex map[string]codeFile

type codeFile struct {
	text  string
	names map[string]bool // of functions, methods, types, their fields, variables and constants
}

func codeOf(t *testing.T, module fs.FS) codeIndex {
	t.Helper()
	index := codeIndex{}
	err := fs.WalkDir(module, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
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
		f := codeFile{string(text), map[string]bool{}}
		for _, decl := range file.Decls {
			f.declare(decl)
		}
		index[path] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func (f codeFile) declare(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		f.names[d.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				f.names[s.Name.Name] = true
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, name := range field.Names {
							f.names[name.Name] = true
						}
					}
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					f.names[name.Name] = true
				}
			}
		}
	}
}

// find looks for a place. A name that is no identifier is one of the file's texts.
func (x codeIndex) find(p place) error {
	files := 0
	for path, f := range x {
		if path != p.file && !strings.HasSuffix(path, "/"+p.file) {
			continue
		}
		files++
		if p.name == "" || f.names[p.name] || !token.IsIdentifier(p.name) && strings.Contains(f.text, p.name) {
			return nil
		}
	}
	if files == 0 {
		return fmt.Errorf("no file %s", p.file)
	}
	return fmt.Errorf("no %s in %s", p.name, p.file)
}
