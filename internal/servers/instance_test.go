package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// instance is NewInstance, started, and closed when the test ends.
func instance(t *testing.T, settings ...string) *Instance {
	t.Helper()
	i, err := NewInstance(t.Context(), settings...)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, i)
	return i
}

// closeAfter expects that nothing stays.
func closeAfter(t *testing.T, i *Instance) {
	t.Helper()
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(i.cluster.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its files are still there: %v", err)
		}
	})
}

func started(t *testing.T, i *Instance) {
	t.Helper()
	if err := i.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, i *Instance, sql string) {
	t.Helper()
	err := withConn(t.Context(), i.URL(), func(c *pgx.Conn) error {
		_, err := c.Exec(t.Context(), sql)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func value(t *testing.T, i *Instance, sql string) (text string) {
	t.Helper()
	err := withConn(t.Context(), i.URL(), func(c *pgx.Conn) error { return c.QueryRow(t.Context(), sql).Scan(&text) })
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What was committed survives each way to end, on the same port; and it is written to the disk.
func TestInstanceSurvives(t *testing.T) {
	i := instance(t)
	started(t, i)
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := value(t, i, "show "+name); got != "on" {
			t.Errorf("%s = %s", name, got)
		}
	}
	run(t, i, "create table survivor (name text)")
	for name, end := range map[string]func() error{
		"SIGKILL": i.Kill, "SIGKILL of the postmaster": i.KillPostmaster,
		"immediate": func() error { i.Stop(Immediate); return nil }, "fast": func() error { i.Stop(Fast); return nil },
	} {
		run(t, i, "insert into survivor values ('"+name+"')")
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := (&Database{URL: i.URL()}).ping(t.Context()); err == nil {
			t.Errorf("%s: it answers", name)
		}
		started(t, i)
		if got := value(t, i, "select name from survivor offset (select count(*) - 1 from survivor)"); got != name {
			t.Errorf("%s: %q is the last row", name, got)
		}
	}
	if got := value(t, i, "select count(*)::text from survivor"); got != "4" {
		t.Errorf("%s rows", got)
	}
}

// Kill leaves no process behind, and Close no shared memory.
func TestInstanceKillsItsChildren(t *testing.T) {
	i := instance(t)
	started(t, i)
	children, err := childrenOf(i.process.cmd.Process.Pid)
	if err != nil || len(children) < 4 {
		t.Fatalf("children %v, %v: want checkpointer, writers, launchers", children, err)
	}
	if err := i.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		// the kernel ends a killed process as soon as it has time for it
		for deadline := time.Now().Add(time.Minute); lives(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("child %d lives", pid)
			}
		}
	}
}

// lives reports whether there is such a process. A zombie is dead: who has to bury it is another question.
func lives(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return syscall.Kill(pid, 0) == nil && !strings.Contains(string(stat), ") Z ")
}

func TestReplica(t *testing.T) {
	primary := instance(t, "synchronous_standby_names=replica")
	replica, err := primary.Replica(t.Context(), primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, replica)
	started(t, primary)
	started(t, replica)
	run(t, primary, "create table followed ()") // returns when the replica has it
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, replica, "insert into followed default values")
}

func TestNoInstance(t *testing.T) {
	t.Setenv(EnvPostgresBin, t.TempDir())
	if _, err := NewInstance(context.Background()); !errors.Is(err, ErrNoInstance) {
		t.Errorf("without programs: %v", err)
	}
}
