package crashtest

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

// process is a child as its parent sees it.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser // its end ends the child
	words output
	log   output
	done  chan struct{} // closed when it has ended
}

// start starts this program as a child. It is killed when the test ends.
func start(t testing.TB, o orders) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: o.Name, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envOrders+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.words, &p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s: %v; it said %q and logged\n%s", p.name, p.cmd.ProcessState, p.words.lines(), p.log.String())
		}
	})
	return p
}

// tell writes a line to its standard input. A child that has just ended does not hear it.
func (p *process) tell(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) } // it may have ended

// kill sends SIGKILL and waits for the end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// await waits until the child has said line.
func (p *process) await(line string) {
	p.t.Helper()
	eventually(p.t, p.name+` says "`+line+`"`, func() bool {
		if said := slices.Contains(p.words.lines(), line); said || !p.ended() {
			return said
		}
		p.t.Fatalf("%s ended before it said %q", p.name, line)
		return false
	})
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
	p.awaitEnd()
	if status := p.status(); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s was not killed: %v", p.name, p.cmd.ProcessState)
	}
}

func (p *process) awaitEnd() {
	p.t.Helper()
	eventually(p.t, p.name+" ends", p.ended)
}

func (p *process) status() syscall.WaitStatus { return p.cmd.ProcessState.Sys().(syscall.WaitStatus) }

// stop sends SIGTERM, after which a child finishes what it has begun, commits, and exits with 0.
func (p *process) stop() {
	p.t.Helper()
	p.await(sayUp)
	p.signal(syscall.SIGTERM)
	p.awaitEnd()
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("%s after SIGTERM: %v", p.name, p.cmd.ProcessState)
	}
}

// output keeps what a process writes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
}

const outputLimit = 64 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if over := len(o.text) - outputLimit; over > 0 {
		o.text = slices.Clone(o.text[over:])
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

func (o *output) lines() []string { return strings.Split(o.String(), "\n") }

// patience is long enough for a machine on which much else runs: short time-outs of the groups make slow ones rebalance often.
const patience = 4 * time.Minute

// eventually waits for a condition; it fails the test after patience.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
