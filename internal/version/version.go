// Package version knows which version of einmal is in this program.
package version

import (
	"runtime/debug"
	"sync"
)

const module = "github.com/einmal-go/einmal"

// Of returns it: "(devel)" where it is built within its own repository.
var Of = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			return dep.Version
		}
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	return ""
})
