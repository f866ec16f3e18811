package main

import (
	"context"
	"flag"
	"fmt"
	"runtime/debug"
)

var version = command{
	name:  "version",
	about: "Print the version of this binary and of Go.",
	setup: func(*flag.FlagSet) action {
		return func(_ context.Context, env *environment, args []string) error {
			if len(args) > 0 {
				return usagef("version takes no arguments")
			}
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return fmt.Errorf("this binary does not know its version")
			}
			fmt.Fprintf(env.stdout, "einmal %s %s\n", info.Main.Version, info.GoVersion)
			return nil
		}
	},
}
