package main

import (
	"syscall"
	"time"
)

// sleep is time.Sleep without its rounding: an idle Go program waits in whole milliseconds, which makes two or three of
// a round trip of one.
func sleep(d time.Duration) {
	if d > 0 {
		left := syscall.NsecToTimespec(d.Nanoseconds())
		_ = syscall.Nanosleep(&left, nil) // early, if a signal comes: then a trip is shorter
	}
}
