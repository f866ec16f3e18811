package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// documents are all Markdown files of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		docs[path] = string(text)
		return err
	})
	if err != nil || len(docs) < 2 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	return docs
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestSnippetsCompile vets each Go snippet as a file of its own; a snippet without a package clause gets one.
func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	overlay := map[string]string{}
	dir := t.TempDir()
	var packages []string
	for path, text := range documents(t) {
		for i, m := range goBlock.FindAllStringSubmatch(text, -1) {
			code := m[1]
			if !strings.HasPrefix(strings.TrimSpace(code), "package ") {
				code = "package snippet\n" + code
			}
			name := fmt.Sprintf("snippet%d", len(packages))
			file := filepath.Join(dir, name+".go")
			if err := os.WriteFile(file, []byte(fmt.Sprintf("// %s, snippet %d\n\n%s", filepath.Base(path), i+1, code)),
				0o600); err != nil {
				t.Fatal(err)
			}
			abs, err := filepath.Abs(filepath.Join(name, "snippet.go"))
			if err != nil {
				t.Fatal(err)
			}
			overlay[abs] = file
			packages = append(packages, "./"+name)
		}
	}
	if len(packages) == 0 {
		t.Fatal("no snippets found")
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", append([]string{"build", "-o", os.DevNull, "-overlay", overlayFile},
		packages...)...).CombinedOutput()
	if err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// TestLinksLeadSomewhere checks the links to files of the repository.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

// TestPathHasAllDocuments checks that docs/README.md leads to each document of its directory.
func TestPathHasAllDocuments(t *testing.T) {
	t.Parallel()
	const dir = root + "/docs"
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "README.md" && !strings.Contains(string(text), "]("+name+")") {
			t.Errorf("docs/README.md does not lead to docs/%s: add a line to its table", name)
		}
	}
}

// TestMapHasAllPackages checks that the map in CONTRIBUTING.md names each directory with Go files.
func TestMapHasAllPackages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "benchmarks" ||
			d.Name() == "compat"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			found[filepath.Dir(path)] = true
		}
		return nil
	})
	if err != nil || len(found) < 50 {
		t.Fatalf("%d packages, %v", len(found), err)
	}
	for dir := range found {
		if !strings.Contains(string(text), filepath.Base(dir)+"/") {
			t.Errorf("the map of CONTRIBUTING.md has no line for %s", dir)
		}
	}
}

// inside is a list of the files of a package in CONTRIBUTING.md, with what a line is about behind two blanks or more.
var inside = regexp.MustCompile("(?s)\nInside `([a-z/]+)`[^\n]*:\n\n```\n(.*?)\n```")

// TestListsHaveAllFiles checks that the lists of files in CONTRIBUTING.md have each file of their package, once.
func TestListsHaveAllFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	lists := inside.FindAllStringSubmatch(string(text), -1)
	if len(lists) < 4 {
		t.Fatalf("%d lists", len(lists))
	}
	for _, list := range lists {
		named := map[string]bool{}
		for line := range strings.Lines(list[2]) {
			files, _, _ := strings.Cut(line, "  ")
			for name := range strings.SplitSeq(files, ", ") {
				if name = strings.TrimSpace(name); named[name] {
					t.Errorf("%s: %s stands twice in CONTRIBUTING.md", list[1], name)
				}
				named[name] = true
			}
		}
		partly := list[1] == "idempotency" // its client alone
		for name := range named {
			if found, err := filepath.Glob(filepath.Join(root, list[1], name+".go")); len(found) == 0 {
				t.Errorf("%s has no file %s: %v", list[1], name, err)
			}
		}
		for _, path := range sourcePaths(t, filepath.Join(root, list[1])) {
			name := strings.TrimSuffix(filepath.Base(path), ".go")
			prefix, _, _ := strings.Cut(name, "_")
			if name != "doc" && !partly && !named[name] && !named[prefix+"*"] {
				t.Errorf("the list of %s in CONTRIBUTING.md does not have %s", list[1], name)
			}
		}
	}
}

// sourcePaths are the Go files of a directory that are no tests.
func sourcePaths(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}
