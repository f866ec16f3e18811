package arrows

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// sources lists the module's Go files that are no tests.
func sources(module fs.FS) (files []string, err error) {
	err = fs.WalkDir(module, ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(module, p):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go"):
			files = append(files, p)
		}
		return nil
	})
	return files, err
}

// ignored are the directories that the go command ignores, and modules within this one.
func ignored(module fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	name := path.Base(dir)
	_, err := fs.Stat(module, path.Join(dir, "go.mod"))
	return name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || err == nil
}

func importsOf(module fs.FS, file string) (imports []string, err error) {
	text, err := fs.ReadFile(module, file)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, imported)
	}
	return imports, nil
}
