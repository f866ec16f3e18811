package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// errNotConfirmed is the error of a command that would change something, and was not told to.
var errNotConfirmed = errors.New("nothing was changed: call it again with -yes to have it done")

// confirmFlag adds -yes.
func confirmFlag(flags *flag.FlagSet) *bool {
	return flags.Bool("yes", false, "do it without asking. Without a terminal, it is only shown what would be done")
}

// confirm asks, unless yes says so already. Whoever is no terminal has not confirmed.
func confirm(env *environment, yes bool, question string) error {
	if yes {
		return nil
	}
	if !isTerminal(env.stdin) {
		return errNotConfirmed
	}
	fmt.Fprintf(env.stderr, "%s [y/N] ", question)
	line, _ := bufio.NewReader(env.stdin).ReadString('\n') // what ends before a line is no yes
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}

// isTerminal reports whether somebody can answer, or look on.
func isTerminal(at any) bool {
	file, ok := at.(*os.File)
	if !ok {
		return at != nil
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progress shows on a terminal how far a command is.
func progress(env *environment, what string, total int64) (show func(done int64), end func()) {
	file, ok := env.stderr.(*os.File)
	if !ok || !isTerminal(file) {
		return func(int64) {}, func() {}
	}
	return func(done int64) { fmt.Fprintf(file, "\r%s: %d of %d", what, done, total) },
		func() { _, _ = io.WriteString(file, "\n") }
}
