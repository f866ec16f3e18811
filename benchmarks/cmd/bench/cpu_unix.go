//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used so far, in user and system mode.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
