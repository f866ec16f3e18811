package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linked = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
	figure = regexp.MustCompile(`\d+(?:,\d{3})+|\d+\.\d+|\d{3,}`)
)

// TestFiguresOfTheREADME checks that each figure in its table of costs stands in a document that the row names, which
// says how it was got.
func TestFiguresOfTheREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, costs, ok := strings.Cut(string(text), "## What it costs")
	costs, _, end := strings.Cut(costs, "\n## ")
	if !ok || !end {
		t.Fatal("README.md has no costs")
	}
	found := 0
	for line := range strings.SplitSeq(costs, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		var from strings.Builder
		for _, m := range linked.FindAllStringSubmatch(cells[3], -1) {
			document, err := os.ReadFile(filepath.Join(root, path.Clean(strings.TrimSuffix(m[1], "/"))))
			if err != nil {
				t.Errorf("%v", err)
			}
			from.Write(document)
		}
		for _, f := range figure.FindAllString(cells[2], -1) {
			found++
			if !strings.Contains(from.String(), f) {
				t.Errorf("README.md has the figure %s for %s, and%s has not", f, strings.TrimSpace(cells[1]), cells[3])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d figures", found)
	}
}
