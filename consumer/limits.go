package consumer

import (
	"sync/atomic"
	"time"
)

// Limits bound what a Consumer holds in memory, and how far it works ahead of a message that is stuck. A partition that is over
// a limit is paused, and resumed at half of it; what the fetch under way brings, at most one batch per partition, comes on
// top. Zero means the default.
type Limits struct {
	// PartitionMessages of one partition are fetched and not finished. Default: 5,000, or 4 x Topic.Workers if that is more,
	// so that workers find something to do while the next fetch is under way: with small messages it brings some thousand.
	PartitionMessages int
	// PartitionBytes are held by them, headers and bookkeeping included. Default: 16 MiB. A message keeps in memory the batch
	// that it was produced in, so messages that are stuck for long can hold more: up to a batch each.
	PartitionBytes int
	// Messages and Bytes bound all partitions together. A partition of which nothing is held is never paused for them, so
	// that none starves. Defaults: 100,000 and 256 MiB.
	Messages, Bytes int
	// Ahead is how many messages of a partition may have been delivered from its oldest unfinished one on: so many are
	// delivered again after a crash, and each costs a look-up of its record. Default: 10,000, some seconds of work.
	Ahead int
}

const (
	defaultPartitionMessages = 5000
	defaultPartitionBytes    = 16 << 20
	defaultMessages          = 100_000
	defaultBytes             = 256 << 20
	defaultAhead             = 10_000
)

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	// PartitionMessages depends on the topic
	def(&l.PartitionBytes, defaultPartitionBytes)
	def(&l.Messages, defaultMessages)
	def(&l.Bytes, defaultBytes)
	def(&l.Ahead, defaultAhead)
	return l
}

func (l Limits) validate(p *problems) {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"PartitionMessages", l.PartitionMessages}, {"PartitionBytes", l.PartitionBytes},
		{"Messages", l.Messages}, {"Bytes", l.Bytes}, {"Ahead", l.Ahead},
	} {
		if f.value < 0 {
			p.add("Config.Limits."+f.name, "is %d: give a positive number, or 0 for the default", f.value)
		}
	}
}

// load is what all claims of a Consumer hold together.
type load struct {
	messages, bytes atomic.Int64
	over            atomic.Bool // a claim is paused that waits for it to come down
}

func (l *load) add(messages, bytes int) {
	l.messages.Add(int64(messages))
	l.bytes.Add(int64(bytes))
}

// within reports whether the load is at most limits / divisor.
func (l *load) within(limits Limits, divisor int64) bool {
	return l.messages.Load() <= int64(limits.Messages)/divisor && l.bytes.Load() <= int64(limits.Bytes)/divisor
}

// within reports whether the claim is within its own limits / divisor. It is called under the lock.
func (cl *claim) within(divisor int) bool {
	l := cl.run.cfg.Limits
	return cl.held <= cl.topic.partitionMessages/divisor && cl.bytes <= l.PartitionBytes/divisor && cl.tracker.Ahead() <= l.Ahead/divisor
}

// pauseIfOver is called under the lock when something was added.
func (cl *claim) pauseIfOver() {
	if cl.paused {
		return
	}
	total := cl.run.load.within(cl.run.cfg.Limits, 1)
	if cl.within(1) && (total || cl.held == 0) {
		return
	}
	if !total {
		cl.run.load.over.Store(true)
	}
	cl.paused, cl.pausedAt = true, time.Now()
	cl.group.Pause(cl.ref())
	cl.run.hooks.partition(cl.run.hooks.hooks.Paused, cl)
}

// resumeIfLow is called under the lock when something was finished, here or elsewhere.
func (cl *claim) resumeIfLow() {
	if !cl.paused || cl.stopped {
		return
	}
	if !cl.within(2) {
		return
	}
	if cl.held > 0 && !cl.run.load.within(cl.run.cfg.Limits, 2) {
		cl.run.load.over.Store(true) // what it still holds may be stuck: whoever brings the load down has to look at it again
		return
	}
	cl.countPause(time.Now())
	cl.paused = false
	cl.group.Resume(cl.ref())
	cl.run.hooks.partition(cl.run.hooks.hooks.Resumed, cl)
}

// report brings the load up to date with what the claim holds, and lets other claims go on that were paused for it. It is called
// under the lock, so the others are looked at from a goroutine.
func (cl *claim) report() {
	r := cl.run
	r.load.add(cl.held-cl.reported.messages, cl.bytes-cl.reported.bytes)
	cl.reported.messages, cl.reported.bytes = cl.held, cl.bytes
	if r.load.over.Load() && r.load.within(r.cfg.Limits, 2) && r.load.over.CompareAndSwap(true, false) {
		go r.resumeOthers()
	}
}

func (r *running) resumeOthers() {
	for _, cl := range r.allClaims() {
		cl.mu.Lock()
		cl.resumeIfLow()
		cl.mu.Unlock()
	}
}
