package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// TestMain is also the workers' main: a story starts the program that it runs in, which in tests is the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		main()
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
		{[]string{"nope"}, []string{`no command "nope"`, "billing consume"}},
		{[]string{"consume"}, []string{"-brokers is missing", servers.EnvKafkaBrokers, "-database is missing", servers.EnvDatabaseURL}},
		{[]string{"consume", "-brokers", "localhost:9092", "-database", "postgres://x", "-group", "", "-topic", ""}, []string{"-topic is missing", "-group is missing"}},
		{[]string{"consume", "orders"}, []string{`"orders" is no flag`}},
		{[]string{"produce"}, []string{"-brokers is missing"}},
		{[]string{"produce", "-brokers", "localhost:9092", "-n", "0", "-partitions", "-3"}, []string{"-n is 0", "-partitions is -3"}},
		{[]string{"produce", "-n", "many"}, []string{"many", "-h lists the flags"}},
		{[]string{"-speed", "9"}, []string{"-speed", "-h lists the flags"}},
		{[]string{"-n", "0"}, []string{"-n is 0"}},
		{[]string{"-kills", "-1"}, []string{"-kills is -1"}},
		{[]string{"worker"}, []string{"-brokers is missing"}},
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
	for _, command := range []string{"", "consume", "produce", "worker"} {
		args := []string{"-h"}
		if command != "" {
			args = []string{command, "-h"}
		}
		t.Setenv(servers.EnvDatabaseURL, "postgres://user:secret@localhost/db")
		var stdout, stderr strings.Builder
		code := run(context.Background(), args, &stdout, &stderr)
		if code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "Flags:") || strings.Contains(stdout.String(), "secret") {
			t.Errorf("%q: exit code %d, standard error %q, standard output:\n%s", args, code, stderr.String(), stdout.String())
		}
	}
}

func TestFailures(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"produce", "-brokers", "127.0.0.1:1"}, "127.0.0.1:1"},
		{[]string{"consume", "-brokers", "127.0.0.1:1", "-database", "postgres://u:secret@127.0.0.1:1/x"}, "create the tables"},
		{[]string{"consume", "-brokers", "127.0.0.1:1", "-database", "postgres://u:secret@[x"}, "the database's URL"},
	} {
		code, _, stderr := runWith(t, c.args...)
		if code != 1 || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "secret") {
			t.Errorf("%q: exit code %d, it says %q, want 1, %q and no password", c.args, code, stderr, c.want)
		}
	}
}
