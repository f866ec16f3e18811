package outboxtest_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a child as its parent sees it.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser // its end ends the child
	words output
	log   output
	done  chan struct{}
}

// start starts this program as a child. It is killed when the test ends.
func start(t testing.TB, o orders) *process {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	p := &process{t: t, name: o.Name, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envOrders+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.words, &p.log
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s: %v; it logged\n%s", p.name, p.cmd.ProcessState, p.log.String())
		}
	})
	return p
}

func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) } // it may have ended

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// awaitKilled waits until it has ended by SIGKILL.
func (p *process) awaitKilled() {
	p.t.Helper()
	eventually(p.t, p.name+" is killed", p.ended)
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s was not killed: %v", p.name, p.cmd.ProcessState)
	}
}

func (p *process) awaitUp() {
	p.t.Helper()
	eventually(p.t, p.name+" is up", func() bool { return p.ended() || strings.Contains(p.words.String(), sayUp) })
}

// stop sends SIGTERM, after which a relay finishes its batch and exits with 0.
func (p *process) stop() {
	p.t.Helper()
	p.awaitUp()
	p.signal(syscall.SIGTERM)
	eventually(p.t, p.name+" ends", p.ended)
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("%s after SIGTERM: %v", p.name, p.cmd.ProcessState)
	}
}

// output keeps what a process writes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if over := len(o.text) - 32<<10; over > 0 {
		o.text = append([]byte(nil), o.text[over:]...)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// patience is long enough for a machine on which much else runs.
const patience = 3 * time.Minute

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
