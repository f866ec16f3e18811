package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLogs checks that the runner writes each line that docs/logs.md lists.
func TestLogs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(root + "/consumer/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(code)
	}
	lines := 0
	for row := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || cells[0] == "| line" {
			continue
		}
		lines++
		if line := strings.TrimPrefix(cells[0], "| "); !strings.Contains(source.String(), `"einmal: `+line+`"`) {
			t.Errorf("nothing in consumer writes %q", line)
		}
	}
	if lines < 13 {
		t.Errorf("%d lines are listed", lines)
	}
}
