package docs

import (
	"os"
	"strconv"
	"testing"
)

const (
	outboxRulesFile = root + "/docs/outbox-rules.md"
	outboxRules     = 39
)

// TestOutboxRules checks that no rule is left out, that each names a test, and that the tests exist.
func TestOutboxRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(outboxRulesFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t, os.DirFS(root))
	rows := matrixRows(string(text))
	if len(rows) != outboxRules {
		t.Fatalf("%d rows, want %d", len(rows), outboxRules)
	}
	for i, row := range rows {
		if want := "B" + strconv.Itoa(i+1); row[0] != want {
			t.Errorf("row %d is numbered %s, want %s", i+1, row[0], want)
		}
		names := row.tests()
		if len(names) == 0 {
			t.Errorf("%s names no test", row[0])
		}
		for _, name := range names {
			if err := tests.find(name); err != nil {
				t.Errorf("%s: %v", row[0], err)
			}
		}
	}
}
