package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// notPublic are directories of which users import nothing.
var notPublic = []string{"internal", "examples", "cmd", "benchmarks", "compat", "testdata"}

var exampleFunction = regexp.MustCompile(`(?m)^func Example`)

// TestEachPackageHasAnExample checks that each package that users import has an Example, which go doc and pkg.go.dev
// show.
func TestEachPackageHasAnExample(t *testing.T) {
	t.Parallel()
	has := map[string]bool{} // the directories with Go files, and whether one has an Example
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name()[0] == '.' || slices.Contains(notPublic, d.Name())):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			dir := filepath.Dir(path)
			has[dir] = has[dir] || exampleFunction.Match(text)
		}
		return nil
	})
	if err != nil || len(has) < 30 {
		t.Fatalf("%d packages, %v", len(has), err)
	}
	for dir, one := range has {
		if !one {
			t.Errorf("%s has no Example", dir)
		}
	}
}
