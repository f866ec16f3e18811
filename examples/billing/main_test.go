package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// TestMain is also the main of the story's processes: a story starts the program that it runs in, which in tests is the
// test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if _, ok := commands[os.Args[1]]; ok {
			main()
		}
	}
	serverstest.Main(m)
}

// runWith runs the program without the environment's servers.
func runWith(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv(servers.EnvKafkaBrokers, "")
	t.Setenv(servers.EnvDatabaseURL, "")
	var out, errs strings.Builder
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestWrongCommandLines(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, c := range []struct {
		args []string
		want []string // parts of standard error
	}{
		{[]string{"nope"}, []string{`no command "nope"`, "billing receipts"}},
		{[]string{"charges"}, []string{"-brokers is missing", servers.EnvKafkaBrokers, "-database is missing",
			servers.EnvDatabaseURL}},
		{[]string{"receipts", "-brokers", "localhost:9092", "-database", "postgres://x", "-group", "", "-topic", ""},
			[]string{"-topic is missing", "-group is missing"}},
		{[]string{"relay", "orders"}, []string{`"orders" is no flag`}},
		{[]string{"relay"}, []string{"-brokers is missing", "-database is missing"}},
		{[]string{"orders"}, []string{"-database is missing"}},
		{[]string{"provider", "-takes", "long"}, []string{"long", "-h lists the flags"}},
		{[]string{"-speed", "9"}, []string{"-speed", "-h lists the flags"}},
		{[]string{"-n", "0"}, []string{"-n is 0"}},
		{[]string{"-kills", "-1", "-drop", "1"}, []string{"-kills is -1", "-drop is 1"}},
		{[]string{"-serve", "-compare"}, []string{"leave out -naive, -careful and -compare"}},
		{[]string{"-drop", "NaN"}, []string{"-drop is NaN"}},
	} {
		code, stdout, stderr := runWith(t, c.args...)
		if code != 2 || stdout != "" {
			t.Errorf("%q: exit code %d, standard output %q, want 2 and none", c.args, code, stdout)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%q says %q, which lacks %q", c.args, stderr, want)
			}
		}
	}
}

// The help must not show what the environment holds: the database's URL has a password in it.
func TestHelp(t *testing.T) { //nolint:paralleltest // it sets the environment
	for command := range commands {
		args := []string{"-h"}
		if command != "" {
			args = []string{command, "-h"}
		}
		t.Setenv(servers.EnvDatabaseURL, "postgres://user:secret@localhost/db")
		var stdout, stderr strings.Builder
		code := run(context.Background(), args, &stdout, &stderr)
		if code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "Flags:") ||
			strings.Contains(stdout.String(), "secret") {
			t.Errorf("%q: exit code %d, standard error %q, standard output:\n%s", args, code, stderr.String(), stdout.String())
		}
	}
}

// A part that is stopped while it starts has not failed.
func TestStopDuringTheStart(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	const away = "postgres://127.0.0.1:1/x"
	for _, args := range [][]string{
		{"orders", "-listen", "127.0.0.1:0"}, {"relay", "-brokers", "127.0.0.1:1"}, {"charges", "-brokers", "127.0.0.1:1"},
		{"provider", "-listen", "127.0.0.1:0"}, {"receipts", "-brokers", "127.0.0.1:1"},
	} {
		var stdout, stderr strings.Builder
		if code := run(ctx, append(args, "-database", away), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
}

func TestFailures(t *testing.T) { //nolint:paralleltest // it sets the environment
	const away = "postgres://u:secret@127.0.0.1:1/x"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"orders", "-database", away}, "create the tables"},
		{[]string{"relay", "-brokers", "127.0.0.1:1", "-database", away}, "create the tables"},
		{[]string{"charges", "-brokers", "127.0.0.1:1", "-database", away}, "create the tables"},
		{[]string{"receipts", "-brokers", "127.0.0.1:1", "-database", away}, "create the tables"},
		{[]string{"provider", "-database", "postgres://u:secret@[x"}, "the database's URL"},
	} {
		code, _, stderr := runWith(t, c.args...)
		if code != 1 || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "secret") {
			t.Errorf("%q: exit code %d, it says %q, want 1, %q and no password", c.args, code, stderr, c.want)
		}
	}
}
