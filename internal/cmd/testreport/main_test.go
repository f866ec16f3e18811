package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// report runs the command on events, each "action test output", of one package.
func reported(t *testing.T, list string, events ...[3]string) (out string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	var in strings.Builder
	for _, e := range events {
		in.WriteString(`{"Action":"` + e[0] + `","Package":"github.com/einmal-go/einmal/p","Test":"` + e[1] + `","Output":"` +
			e[2] + `\n","Elapsed":2}` + "\n")
	}
	var b strings.Builder
	err = run(strings.NewReader(in.String()), &b, file, 1)
	return b.String(), err
}

var (
	passes = [][3]string{{"output", "TestA", "=== RUN"}, {"output", "TestA", "chatter"}, {"pass", "TestA", ""}}
	ends   = [][3]string{{"output", "", "PASS"}, {"output", "", "ok p"}, {"pass", "", ""}}
	skips  = [][3]string{{"output", "TestB", "=== RUN   TestB"}, {"output", "TestB", "    b_test.go:9: no pooler"},
		{"skip", "TestB", ""}}
)

func TestReport(t *testing.T) {
	t.Parallel()
	const why = "# it is not needed here\n"
	for name, test := range map[string]struct {
		list   string
		events [][][3]string
		shows  string // in the output
		hides  string
		says   string // the error, none if empty
	}{
		"all pass":    {"", [][][3]string{passes, ends}, "ok p\n", "chatter", ""},
		"the slowest": {"", [][][3]string{passes, ends}, "2.0 s  p TestA", "", ""},
		"a failure": {"", [][][3]string{{{"output", "TestC", "it said"}, {"fail", "TestC", ""}},
			{{"fail", "", ""}}}, "it said", "", "failed: p TestC"},
		"a skip": {"", [][][3]string{passes, skips, ends}, "", "",
			"allows it: p TestB: b_test.go:9: no pooler"},
		"an allowed skip": {why + "p TestB: .* no pooler", [][][3]string{passes, skips, ends}, "ok p", "", ""},
		"of another test": {why + "p TestX: .* no pooler", [][][3]string{passes, skips, ends}, "", "",
			"allows it: p TestB"},
		"a line of no use":   {why + "p TestX: .*", [][][3]string{passes, ends}, "", "", "remove it"},
		"no reason":          {"p TestB: .*", [][][3]string{passes, ends}, "", "", "line 1: say"},
		"no expression":      {why + "p (", [][][3]string{passes, ends}, "", "", "line 2"},
		"the end is missing": {"", [][][3]string{passes, {{"output", "TestD", "hangs"}}}, "", "", "did not end: p TestD"},
		"nothing at all":     {"", nil, "", "", "no test ran"},
		"a compiler's message": {"", [][][3]string{{{"build-output", "", "p.go:1: no"}, {"fail", "", ""}}}, "p.go:1: no", "",
			"failed: p"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events [][3]string
			for _, e := range test.events {
				events = append(events, e...)
			}
			out, err := reported(t, test.list, events...)
			if !strings.Contains(out, test.shows) || test.hides != "" && strings.Contains(out, test.hides) {
				t.Errorf("it shows %q", out)
			}
			if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v, want %q", err, test.says)
			}
		})
	}
}

func TestWhatIsNoEventIsShown(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := newReport(&b).read(strings.NewReader("panic: no\n")); err != nil || b.String() != "panic: no\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
