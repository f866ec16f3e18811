package docs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const httpRulesFile = root + "/docs/http-rules.md"

// TestServerRules checks that no rule of the server is left out, that each names a test or says why not, and that the tests exist.
func TestServerRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(httpRulesFile)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## The server\n")
	if !ok {
		t.Fatal("there is no section The server")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	tests := testsOf(t, os.DirFS(root))
	var numbers []string
	for _, row := range matrixRows(section) {
		numbers = append(numbers, row[0])
		names := row.tests()
		if len(names) == 0 && !strings.HasPrefix(row.evidence(), "none: ") {
			t.Errorf("%s names no test, and does not say why", row[0])
		}
		for _, name := range names {
			if err := tests.find(name); err != nil {
				t.Errorf("%s: %v", row[0], err)
			}
		}
	}
	if want := append(numbered("C", 10), numbered("S", 4)...); !slices.Equal(numbers, want) {
		t.Errorf("the rules are %q, want %q", numbers, want)
	}
}

// TestProblemTypes checks that the address which a problem has for a type leads to a line.
func TestProblemTypes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(httpRulesFile)
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(root + "/idempotency/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(code)) {
		if _, rest, ok := strings.Cut(line, `= problems + "`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			if found++; !strings.Contains(string(text), "\n### "+name+"\n") {
				t.Errorf("docs/http-rules.md has no line %s", name)
			}
		}
	}
	if found < 9 {
		t.Errorf("%d types were found", found)
	}
}
