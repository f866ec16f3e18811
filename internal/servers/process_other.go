//go:build !linux

package servers

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// start runs cmd as a child, with a watchdog beside it: a shell that waits for the end of its standard input, which
// comes when this process is gone, and then sends the child the signal death.
func start(cmd *exec.Cmd, death syscall.Signal) (*process, error) {
	p := newProcess(cmd)
	if err := cmd.Start(); err != nil {
		return p, err
	}
	dog := exec.Command("/bin/sh", "-c", `read -r _; kill -"$0" "$1"`, strconv.Itoa(int(death)),
		strconv.Itoa(cmd.Process.Pid))
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lead, err := dog.StdinPipe()
	if err == nil {
		err = dog.Start()
	}
	if err != nil {
		return p, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go func() {
		p.wait()
		_ = dog.Process.Kill()
		_ = lead.Close()
		_ = dog.Wait()
	}()
	return p, nil
}

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) (children []int, err error) {
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil && parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}
