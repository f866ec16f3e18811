package story

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one of the cast as the story sees it: this program, started once more.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser // open for as long as the story lives: its end ends the process
	words output         // standard output
	log   output         // standard error
	done  chan struct{}  // closed when it has ended
}

// start runs this program with the arguments. It inherits the files, the first one as number 3.
func start(name string, args, env []string, files []*os.File, log io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.CommandContext(context.Background(), self, args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.ExtraFiles = append(os.Environ(), env...), files
	p.cmd.Stdout, p.cmd.Stderr = &p.words, io.MultiWriter(&p.log, log)
	// Ctrl-C goes to a whole process group. The story alone gets it, and ends the others in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState says how it ended
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// isUp reports whether the process has got so far that SIGTERM drains it.
func (p *process) isUp() bool { return strings.HasPrefix(p.words.String(), up) }

// place is where it was when it killed itself, or empty.
func (p *process) place() string { return strings.TrimSpace(strings.TrimPrefix(p.words.String(), up)) }

// tell writes a line to the process's standard input. One that has just ended does not hear it.
func (p *process) tell(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

// signal sends a signal. The process may have ended already.
func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// kill sends SIGKILL and waits for the end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// ended reports whether it has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// endsWithin waits for d at most, and reports whether it has ended.
func (p *process) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// killed reports whether SIGKILL ended it. It has ended.
func (p *process) killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// end says how it ended: "exit status 1", and what it logged last.
func (p *process) end() string {
	return fmt.Sprintf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.log.String())
}

// output keeps the last of what a process writes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
}

const outputLimit = 8 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if over := len(o.text) - outputLimit; over > 0 {
		o.text = o.text[over:]
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text))
}
