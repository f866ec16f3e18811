package deadletter

import (
	"runtime/debug"
	"sync"
)

const module = "github.com/einmal-go/einmal"

// version is that of einmal in this program: "(devel)" where it is built within its own repository.
var version = sync.OnceValue(func() string {
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
