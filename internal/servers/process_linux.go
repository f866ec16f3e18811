package servers

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
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

// childrenOf lists the processes whose parent is pid. A process that ends meanwhile is left out.
func childrenOf(pid int) (children []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// id, (name), state, parent; the name may contain anything
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, child)
		}
	}
	return children, nil
}
