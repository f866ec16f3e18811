package servers

import (
	"os/exec"
	"runtime"
	"syscall"
)

// start runs cmd as a child to which the kernel sends the signal death when this process ends. That signal follows the
// thread which forked, not the process, so the thread is kept for the life of the child.
func start(cmd *exec.Cmd, death syscall.Signal) (*process, error) {
	p := newProcess(cmd)
	cmd.SysProcAttr.Pdeathsig = death
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.wait()
		}
	}()
	return p, <-started
}
