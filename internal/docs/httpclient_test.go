package docs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestClientRules checks that no rule of the client is left out, that each names a test, and that the tests exist.
func TestClientRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/http-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## The client\n")
	if !ok {
		t.Fatal("there is no section The client")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	tests := testsOf(t, os.DirFS(root))
	var numbers []string
	for _, row := range matrixRows(section) {
		numbers = append(numbers, row[0])
		if len(row.tests()) == 0 {
			t.Errorf("%s names no test", row[0])
		}
		for _, name := range row.tests() {
			if err := tests.find(name); err != nil {
				t.Errorf("%s: %v", row[0], err)
			}
		}
	}
	if want := numbered("K", 14); !slices.Equal(numbers, want) {
		t.Errorf("the rules are %q, want %q", numbers, want)
	}
}
