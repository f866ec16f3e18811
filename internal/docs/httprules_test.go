package docs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestHTTPRules checks that no rule of the client or the server is left out, that each names a test or says why not,
// and that the tests exist.
func TestHTTPRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/http-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, os.DirFS(root))
	for title, want := range map[string][]string{
		"The client": numbered("K", 15),
		"The server": append(numbered("C", 13), numbered("S", 6)...),
	} {
		_, rest, ok := strings.Cut(string(text), "\n## "+title+"\n")
		if !ok {
			t.Errorf("there is no section %s", title)
		}
		section, _, _ := strings.Cut(rest, "\n## ")
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
		if !slices.Equal(numbers, want) {
			t.Errorf("%s: the rules are %q, want %q", title, numbers, want)
		}
	}
}
