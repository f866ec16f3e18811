package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"` // seconds
}

// module is left out of the packages' names.
const module = "github.com/einmal-go/einmal/"

// name of a test with its package.
type name struct{ pkg, test string }

// report is what came of the tests so far.
type report struct {
	out    io.Writer
	said   map[name][]string // by tests that have not ended; by the package itself under an empty test
	failed []name
	skips  []string // "package test: reason"
	took   []timed
}

type timed struct {
	name
	seconds float64
}

func newReport(out io.Writer) *report { return &report{out: out, said: map[name][]string{}} }

// read takes all events. What is no event, the end of a compiler's message for example, is shown as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *report) take(e event) {
	n := name{strings.TrimPrefix(e.Package, module), e.Test}
	switch e.Action {
	case "output":
		r.said[n] = append(r.said[n], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "fail", "skip":
		r.end(n, e)
	}
}

// end is that of a test, or of a package.
func (r *report) end(n name, e event) {
	said := r.said[n]
	delete(r.said, n)
	switch {
	case e.Action == "fail":
		r.failed = append(r.failed, n)
		fmt.Fprint(r.out, strings.Join(said, ""))
	case n.test == "": // "ok", the time, and which servers were used
		fmt.Fprint(r.out, strings.Join(slices.DeleteFunc(said, func(line string) bool { return line == "PASS\n" }), ""))
	case e.Action == "skip":
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", n.pkg, n.test, reason(said)))
	}
	if n.test != "" && !strings.Contains(n.test, "/") {
		r.took = append(r.took, timed{n, e.Elapsed})
	}
}

// reason is what a test said when it was skipped, without the frame around it.
func reason(said []string) string {
	var lines []string
	for _, line := range said {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

func (r *report) tellSlowest(n int) {
	slices.SortFunc(r.took, func(a, b timed) int { return int(1000 * (b.seconds - a.seconds)) })
	for i, t := range r.took[:min(n, len(r.took))] {
		if i == 0 {
			fmt.Fprintln(r.out, "the slowest tests, which waited for others too:")
		}
		fmt.Fprintf(r.out, "%7.1f s  %s %s\n", t.seconds, t.pkg, t.test)
	}
}

// verdict is nil if all is as it must be.
func (r *report) verdict(allowed []*allowance) error {
	var errs []error
	for _, n := range r.failed {
		errs = append(errs, fmt.Errorf("failed: %s %s", n.pkg, n.test))
	}
	for _, s := range r.skips {
		if !slices.ContainsFunc(allowed, func(a *allowance) bool { return a.covers(s) }) {
			errs = append(errs, fmt.Errorf("skipped, and no line of the list allows it: %s", s))
		}
	}
	for n := range r.said {
		errs = append(errs, fmt.Errorf("did not end: %s %s", n.pkg, n.test))
	}
	for _, a := range allowed {
		if len(errs) == 0 && !a.used {
			errs = append(errs, fmt.Errorf("nothing was skipped for the line %q of the list: remove it", a.pattern))
		}
	}
	if len(r.took) == 0 {
		errs = append(errs, errors.New("no test ran"))
	}
	return errors.Join(errs...)
}
