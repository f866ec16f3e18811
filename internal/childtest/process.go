package childtest

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a child as its parent sees it. Its methods that wait fail the test after Patience.
type Process struct {
	Name string
	Cmd  *exec.Cmd
	Log  Output // standard error

	t     testing.TB
	stdin io.WriteCloser // its end ends the child
	words Output
	done  chan struct{} // closed when it has ended
}

// Start starts this program as a child, which finds its orders in the variable env. It is killed when the test ends.
func Start(t testing.TB, env, name string, orders any) *Process {
	t.Helper()
	text, err := json.Marshal(orders)
	must(t, err)
	p := &Process{t: t, Name: name, Cmd: exec.Command(os.Args[0]), done: make(chan struct{})} //nolint:gosec,noctx // this program itself, which Kill ends
	p.Cmd.Env = append(os.Environ(), env+"="+string(text))
	p.Cmd.Stdout, p.Cmd.Stderr = &p.words, &p.Log
	p.stdin, err = p.Cmd.StdinPipe()
	must(t, err)
	must(t, p.Cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.Cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s: %v; it said %q and logged\n%s", p.Name, p.Cmd.ProcessState, p.words.Lines(), p.Log.String())
		}
	})
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Tell writes a line to its standard input. A child that has just ended does not hear it.
func (p *Process) Tell(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

// Signal sends a signal, if it has not ended.
func (p *Process) Signal(sig os.Signal) { _ = p.Cmd.Process.Signal(sig) }

// Kill sends SIGKILL and waits for the end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Await waits until the child has said line.
func (p *Process) Await(line string) {
	p.t.Helper()
	Eventually(p.t, p.Name+` says "`+line+`"`, func() bool {
		if said := slices.Contains(p.words.Lines(), line); said || !p.Ended() {
			return said
		}
		p.t.Fatalf("%s ended before it said %q", p.Name, line)
		return false
	})
}

// Ended reports whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// AwaitEnd waits until it has ended.
func (p *Process) AwaitEnd() {
	p.t.Helper()
	Eventually(p.t, p.Name+" ends", p.Ended)
}

// AwaitKilled waits until it has ended by SIGKILL.
func (p *Process) AwaitKilled() {
	p.t.Helper()
	p.AwaitEnd()
	if status, ok := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() ||
		status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s was not killed: %v", p.Name, p.Cmd.ProcessState)
	}
}

// Stop sends SIGTERM, after which a child finishes what it has begun and exits with 0.
func (p *Process) Stop() {
	p.t.Helper()
	p.Await(Up)
	p.Signal(syscall.SIGTERM)
	p.AwaitEnd()
	if !p.Cmd.ProcessState.Success() {
		p.t.Errorf("%s after SIGTERM: %v", p.Name, p.Cmd.ProcessState)
	}
}

// Output keeps the last of what a process writes. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text []byte
}

const outputLimit = 64 << 10

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if over := len(o.text) - outputLimit; over > 0 {
		o.text = slices.Clone(o.text[over:])
	}
	return len(b), nil
}

// String is what is kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// Lines are those of String.
func (o *Output) Lines() []string { return strings.Split(o.String(), "\n") }

// Patience is long enough for a machine on which much else runs: short time-outs of groups make slow members rebalance
// often.
const Patience = 4 * time.Minute

// Eventually waits for a condition; it fails the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}
