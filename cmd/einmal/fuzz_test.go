package main

import (
	"bytes"
	"flag"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzStatus has a server answer anything. What is printed of it, as text and as JSON, moves no terminal.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"format":1,"healthy":true,"sections":{"c":{"value":{"kind":"consumer","partitions":[{"topic":"t","lag":1,"oldest_open":{"seconds":1e300}}]}}}}`))
	f.Add([]byte(`{"format":1,"sections":{"o":{"value":{"kind":"outbox","seen":"2026-01-02T15:04:05Z","oldest_seconds":-1}},"d":{"value":{"kind":"dead_letters","kinds":{"a":1}}}}}`))
	f.Add([]byte(`{"format":1,"sections":{"\u009b2J":{"error":"\u202e\u001b[31m","problem":"x"},"own":{"value":["password=x"]}}}`))
	f.Add([]byte(`{"format":1,"sections":{"c":{"value":{"kind":"consumer","partitions":[null]}},"n":{"value":null}}}`))
	f.Add([]byte(`{"format":1,"sections":{"0":{"error":"\u2000\u00a0"}}}`)) // blanks, of a width
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzztest.Bounded(t, len(text), 4<<20, func() {
			report, err := readStatus(text)
			if err != nil {
				return
			}
			limits := statusLimits{lag: 0, dead: 0, open: 0, backlog: 0}
			problems := append(report.problems(), limits.exceeded(report)...)
			var out bytes.Buffer
			if err := report.print(&out, problems); err != nil {
				t.Error(err)
			}
			if err := printStatusJSON(&out, text, problems); err != nil {
				t.Error(err)
			}
			if at := strings.IndexFunc(out.String(), func(r rune) bool {
				return r != '\n' && !unicode.IsPrint(r) &&
					!unicode.Is(unicode.Zs, r)
			}); at >= 0 {
				t.Errorf("%q moves the terminal: %q", text, out.String()[max(0, at-20):])
			}
		})
	})
}

// FuzzWindow reads the arguments of a window, which come from scripts. Each is one that can be read, or an error that
// repeats no value.
func FuzzWindow(f *testing.F) {
	f.Add("36h", "2026-01-02T15:04:05Z", "3=100:200", "header:event-id")
	f.Add("-1ns", "2026-01-02", "2147483647=9223372036854775807:", "json:a.b")
	f.Add("9999999h", "0000-00-00", "-1=1:0", "cloudevents")
	f.Add("", "postgres://u:p@h/d", "=:", ":")
	f.Fuzz(func(t *testing.T, from, to, offsets, id string) {
		fuzztest.Bounded(t, len(from)+len(to)+len(offsets)+len(id), 1<<20, func() {
			var window replayFlags
			flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			window.add(flags)
			err := flags.Parse([]string{"-topic=t", "-consumer=c", "-from=" + from, "-to=" + to, "-offsets=" + offsets, "-id=" +
				id})
			if err != nil {
				_ = flagProblem(err)
				return
			}
			for _, rg := range window.offsets {
				if rg.From < 0 || rg.To < rg.From || rg.Partition < 0 {
					t.Errorf("%q is %+v", offsets, rg)
				}
			}
			window.offsets = nil
			if source, err := window.validate(); err == nil && source == nil {
				t.Error("neither a source of ids nor an error")
			}
		})
	})
}
