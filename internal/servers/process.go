package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child that does not outlive this process, whatever ends it: see start in process_linux.go and
// process_other.go.
type process struct {
	cmd    *exec.Cmd
	output *Output
	done   chan struct{} // closed once the child has ended
	err    error         // how it ended; read it after done
}

// newProcess prepares cmd: its output is kept, and it is in a process group of its own, so that Ctrl-C reaches this
// process only, which then stops its servers in order.
func newProcess(cmd *exec.Cmd) *process {
	p := &process{cmd: cmd, output: &Output{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	return p
}

// wait waits for the child's end. It runs once, in the goroutine that started the child.
func (p *process) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// ended says how the child ended, with the last of what it said.
func (p *process) ended() error {
	return fmt.Errorf("%s ended: %w\n%s", filepath.Base(p.cmd.Path), errors.Join(p.err, errors.New("it said")), p.output)
}

// stop sends the signal and waits; a child that ignores it for ten seconds is killed.
func (p *process) stop(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// ownDir makes a directory for a server's files whose name tells the owner's process id, and removes those whose owner
// is gone: a process that is killed removes nothing.
func ownDir(prefix string) (string, error) {
	sweepDirs(prefix)
	return os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
}

func sweepDirs(prefix string) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if gone(pid) {
			_ = os.RemoveAll(dir)
		}
	}
}

// gone tells whether no process of this id exists. What is not a number is left alone.
func gone(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}
