// Command testreport reads what go test -json writes and tells of it as go test does: a line for each package, and what
// failed tests said. It ends with status 1 if a test failed, or was skipped although the list does not allow it.
//
// usage: go test -json ./... | testreport -skips FILE [-slowest N]
//
// A line of the list is a regular expression for "package test: reason"; lines that begin with # say why it may be
// skipped.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	skips := flag.String("skips", "", "the file that lists what may be skipped (required)")
	slowest := flag.Int("slowest", 0, "how many of the slowest tests to name at the end")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *skips, *slowest); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, skips string, slowest int) error {
	text, err := os.ReadFile(skips) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	allowed, err := parseAllowed(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", skips, err)
	}
	r := newReport(out)
	if err := r.read(in); err != nil {
		return err
	}
	r.tellSlowest(slowest)
	return r.verdict(allowed)
}
