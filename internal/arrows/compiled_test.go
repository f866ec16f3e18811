package arrows

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// compiledBy are the packages that a program compiles which imports these, of this module and of others, and the
// modules that they are in.
func compiledBy(t *testing.T, imports ...string) (packages, modules []string) {
	t.Helper()
	args := append([]string{"list", "-deps", "-f", "{{with .Module}}{{$.ImportPath}} {{.Path}}{{end}}"}, imports...)
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %q: %v", args, err)
	}
	for line := range strings.Lines(string(out)) {
		if pkg, in, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			packages, modules = append(packages, pkg), append(modules, in)
		}
	}
	slices.Sort(modules)
	return packages, slices.Compact(modules)
}

// A service that only writes events compiles no client of Kafka and no relay.
func TestWritersCompileNoKafka(t *testing.T) {
	t.Parallel()
	for writer, most := range map[string]int{"outbox": 5, "outbox/pgxoutbox": 13, "outbox/sqloutbox": 5,
		"outbox/bunoutbox": 13} {
		packages, modules := compiledBy(t, "./"+writer)
		for _, pkg := range packages {
			if within(pkg, sarama) || within(pkg, module+"/outbox/relay") || within(pkg, module+"/internal/kafkaconf") {
				t.Errorf("%s compiles %s", writer, pkg)
			}
		}
		if len(modules) > most || !slices.Contains(modules, module) {
			t.Errorf("%s compiles %d modules, at most %d are expected: %q", writer, len(modules), most, modules)
		}
	}
}

var (
	compiledRow = regexp.MustCompile(`(?m)^\| ([a-z, ]+) \| ([0-9]+) \| [0-9]+ \| [0-9]+ \| [0-9]+ \|$`)
	whatFor     = regexp.MustCompile(`, to [a-z ]+$`)
)

// What CONTRIBUTING.md says of the modules that a user compiles is so.
func TestModulesCompiled(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := compiledRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 6 {
		t.Fatalf("only %d rows were found", len(rows))
	}
	for _, row := range rows {
		var imports []string
		for name := range strings.SplitSeq(whatFor.ReplaceAllString(row[1], ""), ", ") {
			imports = append(imports, directoryOf(t, name))
		}
		if _, modules := compiledBy(t, imports...); strconv.Itoa(len(modules)) != row[2] {
			t.Errorf("%s: %d modules are compiled, CONTRIBUTING.md says %s: measure the row again\n%q", row[1], len(modules),
				row[2], modules)
		}
	}
}

// directoryOf is where the package of that name is.
func directoryOf(t *testing.T, name string) string {
	t.Helper()
	for pkg := range table {
		if pkg == name || strings.HasSuffix(pkg, "/"+name) {
			return "./" + pkg
		}
	}
	t.Fatalf("there is no package %s", name)
	return ""
}
