package childtest_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

const env = "EINMAL_CHILDTEST_ORDERS"

type orders struct{ Fail bool }

func TestMain(m *testing.M) {
	childtest.Main(env, run)
	serverstest.Main(m)
}

func run(ctx context.Context, o orders) error {
	if o.Fail {
		return errors.New("it fails")
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			childtest.Say("heard " + lines.Text())
		}
		os.Exit(1)
	}()
	<-ctx.Done()
	return nil
}

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("hears, and is stopped", func(t *testing.T) {
		t.Parallel()
		p := childtest.Start(t, env, "a", orders{})
		p.Tell("word")
		p.Await("heard word")
		p.Stop()
	})
	t.Run("is killed", func(t *testing.T) {
		t.Parallel()
		p := childtest.Start(t, env, "b", orders{})
		p.Await(childtest.Up)
		if p.Ended() {
			t.Error("it has ended")
		}
		p.Signal(syscall.SIGKILL)
		p.AwaitKilled()
	})
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		p := childtest.Start(t, env, "c", orders{Fail: true})
		p.AwaitEnd()
		if p.Cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.Log.String(), "it fails") {
			t.Errorf("%v, logged %q", p.Cmd.ProcessState, p.Log.String())
		}
	})
}
