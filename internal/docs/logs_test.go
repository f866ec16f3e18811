package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// logging are the packages whose lines an operator reads.
var logging = []string{"consumer", "middleware", "outbox", "forward", "janitor", "idempotency", "status", "dedupstore",
	"deadletter", "console"}

// prefixes are those of lines of the log.
var prefixes = []string{"einmal: ", "outbox: ", "idempotency: "}

// otherTexts are calls whose texts are no lines: of errors, and of panics.
var otherTexts = map[string]bool{"errors.New": true, "errtype.New": true, "fmt.Errorf": true, "fmt.Sprintf": true,
	"panic": true, "newSafeError": true}

// TestLogs compares docs/logs.md with the code: the rows are the lines that the packages write, and the other way
// around.
func TestLogs(t *testing.T) {
	t.Parallel()
	written := linesWritten(t, logging)
	text, err := os.ReadFile(root + "/docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := linesListed(string(text))
	for line, at := range written {
		if !listed[line] {
			t.Errorf("docs/logs.md does not have %q, which %s writes", line, at)
		}
	}
	for line := range listed {
		if _, ok := written[line]; !ok {
			t.Errorf("docs/logs.md has %q, which nothing writes", line)
		}
	}
	if len(written) < 80 {
		t.Errorf("only %d lines were found in the code", len(written))
	}
}

// linesListed are the first cells of the tables with four columns. A cell can have several lines, each in backquotes or
// alone.
func linesListed(text string) map[string]bool {
	listed := map[string]bool{}
	for row := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 4 || cells[0] == "line" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		for line := range strings.SplitSeq(cells[0], "<br>") {
			listed[strings.TrimSuffix(line, " …")] = true
		}
	}
	return listed
}

// linesWritten are the texts with one of the prefixes, without "einmal: ", that stand in the code outside of errors.
func linesWritten(t *testing.T, packages []string) map[string]string {
	t.Helper()
	written, set := map[string]string{}, token.NewFileSet()
	for _, pkg := range packages {
		err := filepath.WalkDir(filepath.Join(root, pkg), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || forTests(path) {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if otherTexts[called(call)] {
						return false
					}
					if text, ok := message(call); ok {
						written[text] = strings.TrimPrefix(set.Position(call.Pos()).String(), root+"/")
					}
				}
				if text, ok := literal(n); ok {
					for _, prefix := range prefixes {
						if line := strings.TrimSuffix(strings.TrimPrefix(text, "einmal: "), " "); strings.HasPrefix(text, prefix) &&
							text != prefix {
							written[line] = strings.TrimPrefix(set.Position(n.Pos()).String(), root+"/")
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return written
}

// forTests reports whether a package is one that only tests import.
func forTests(path string) bool {
	return regexp.MustCompile(`test/[^/]*$`).MatchString(path)
}

// message is the line of a call of idempotency.Handler's own method log, which adds the prefix.
func message(call *ast.CallExpr) (string, bool) {
	if called(call) != "h.log" || len(call.Args) != 4 {
		return "", false
	}
	text := ""
	ast.Inspect(call.Args[2], func(n ast.Node) bool {
		if part, ok := literal(n); ok && text == "" {
			text = part
		}
		return true
	})
	return "idempotency: " + strings.TrimSuffix(text, " ("), text != ""
}

func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

func literal(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// TestDurationsInTheLogHaveAUnit looks for attributes whose name does not tell the unit.
func TestDurationsInTheLogHaveAUnit(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	for _, pkg := range logging {
		err := filepath.WalkDir(filepath.Join(root, pkg), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || forTests(path) {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				name, _ := literal(call.Args[0])
				switch called(call) {
				case "slog.Duration":
					t.Errorf("%s: %q is a time.Duration: make it a number with _seconds in its name", set.Position(call.Pos()), name)
				case "slog.Float64":
					if name != "" && !strings.HasSuffix(name, "_seconds") {
						t.Errorf("%s: %q has no unit", set.Position(call.Pos()), name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
