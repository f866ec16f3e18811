package consumer

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// cancelGrace is how long a handler may take to return once its context is cancelled: time for a rollback.
const cancelGrace = time.Second

// errDrainOver is the cause with which the handlers of a claim are cancelled.
var errDrainOver = errors.New("einmal: the time to drain is over: the partition goes to another owner, or the process stops")

// end lets go of the partition: no message starts any more; what runs may finish within the budget, then is cancelled
// and rolls back; what finished is marked; then the claim is fenced. The order matters: fencing first would throw away
// finished work, marking what has not finished would lose it. end returns when nothing of the claim runs, or when
// handlers ignore their context.
func (cl *claim) end(budget time.Duration) {
	cl.stop()
	defer cl.cancel(errDrainOver)
	if !cl.drained(budget) {
		cl.run.log.Warn("einmal: the time to drain is over, handlers are cancelled", cl.attrs(seconds("budget", budget))...)
		cl.topic.totals.count(func(t *TopicTotals) { t.DrainsCut++ })
		cl.cancel(errDrainOver)
		if !waitFor(cl.idle, cancelGrace) {
			cl.run.stuck(cl)
		}
	}
	cl.fence()
}

// drained waits for what runs, and reports whether it has finished. A claim that knows of its revocation since a while
// has less time left; Abort ends the wait.
func (cl *claim) drained(budget time.Duration) bool {
	cl.mu.Lock()
	if !cl.revoked.IsZero() {
		budget -= time.Since(cl.revoked)
	}
	cl.mu.Unlock()
	timer := time.NewTimer(max(0, budget))
	defer timer.Stop()
	select {
	case <-cl.idle:
		return true
	case <-cl.run.abort:
	case <-timer.C:
	}
	return waitFor(cl.idle, 0)
}

// revoke is the early news that the partition goes: no message starts any more, and the clock of the drain runs.
func (cl *claim) revoke() {
	cl.mu.Lock()
	if cl.revoked.IsZero() {
		cl.revoked = time.Now()
	}
	cl.mu.Unlock()
	cl.stop()
}

func (cl *claim) fence() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.mark(time.Now(), true)
	cl.countPause(time.Now())
	cl.fenced = true
	cl.held, cl.bytes = 0, 0
	cl.report()
}

// stop ends the start of messages. It is called at the end of the claim, and before it when the Consumer begins to
// drain.
func (cl *claim) stop() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.stopped {
		return
	}
	cl.stopped = true
	for it, timer := range cl.parked {
		if timer != nil {
			timer.Stop()
		}
		delete(cl.parked, it)
	}
	cl.releaseTrains()
	if len(cl.running) == 0 {
		close(cl.idle)
	}
}

// stillRunning names the messages in work: "orders[3]@1207".
func (cl *claim) stillRunning() []string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var names []string
	for _, it := range cl.running {
		names = append(names, fmt.Sprintf("%s@%d", partitionName(cl.topic.name, cl.partition), it.offset))
	}
	slices.Sort(names)
	return names
}

func waitFor(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
