package consumer

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Limits bound what a Consumer holds in memory, and how far it works ahead of a message that is stuck. A partition that
// is over a limit is paused, and resumed at half of that one. What fetches bring before the pause takes hold comes on
// top. Their size follows Messages, Bytes and the number of partitions that the process holds, in cooperative mode that
// its topics have: all of them together bring 48 bytes for each of Messages, or a sixteenth of Bytes, but 16 KiB of
// each partition, and one batch of whatever size. Less is fetched where Consumer.Fetch.Default says so in
// Config.Sarama. So what is held stays within twice Messages and Bytes, unless small messages are compressed to much
// less than a half, or a process holds several hundred partitions: with the default limits and messages of 100 bytes,
// compressed to a half, 300. Zero means the default.
type Limits struct {
	// PartitionMessages of one partition are fetched and not finished. Default: 5,000, or 4 x Topic.Workers if that is
	// more, so that workers find something to do while the next fetch is under way: with small messages it brings some
	// thousand.
	PartitionMessages int
	// PartitionBytes are held by them, headers and bookkeeping included. Default: 16 MiB. A message keeps in memory the
	// batch that it was produced in, so messages that are stuck for long can hold more: up to a batch each.
	PartitionBytes int
	// Messages and Bytes bound all partitions together. A partition of which nothing is held is never paused for them, so
	// that none starves. Defaults: 100,000 and 256 MiB.
	Messages, Bytes int
	// Ahead is how many messages of a partition may have been delivered from its oldest unfinished one on. So many are
	// delivered again when the partition changes hands, by a crash or a rebalance, and each costs a look-up of its record;
	// they cost no memory. Default: 20,000,000: one message that fails for ever lets the others of its partition pass for
	// 2.8 hours at 2,000 a second, time enough for an alert to wake somebody. docs/failures.md has the cost of the
	// repetition. When the limit is reached, the log and Status.PausedBy say so, and Status.Oldest names the message.
	Ahead int
}

const (
	defaultPartitionMessages = 5000
	defaultPartitionBytes    = 16 << 20
	defaultMessages          = 100_000
	defaultBytes             = 256 << 20
	defaultAhead             = 20_000_000
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
	awaited         atomic.Bool // a claim is paused that waits for it to come down
}

func (l *load) add(messages, bytes int) {
	l.messages.Add(int64(messages))
	l.bytes.Add(int64(bytes))
}

// low reports whether the load is at most half of limits.
func (l *load) low(limits Limits) bool {
	return l.messages.Load() <= int64(limits.Messages)/2 && l.bytes.Load() <= int64(limits.Bytes)/2
}

// Limit names a field of Limits.
type Limit string

// The limits that pause a partition.
const (
	LimitPartitionMessages Limit = "partition_messages"
	LimitPartitionBytes    Limit = "partition_bytes"
	LimitMessages          Limit = "messages"
	LimitBytes             Limit = "bytes"
	LimitAhead             Limit = "ahead"
)

// allLimits are in the order in which one is named where several are reached.
var allLimits = []Limit{LimitAhead, LimitPartitionMessages, LimitPartitionBytes, LimitMessages, LimitBytes}

// exceeds reports whether the claim is over a limit / divisor. A claim that holds nothing is never over those of all
// partitions. It is called under the lock.
func (cl *claim) exceeds(limit Limit, divisor int64) bool {
	l, load := cl.run.cfg.Limits, &cl.run.load
	switch limit {
	case LimitAhead:
		return int64(cl.tracker.Ahead()) > int64(l.Ahead)/divisor
	case LimitPartitionMessages:
		return int64(cl.held) > int64(cl.topic.partitionMessages)/divisor
	case LimitPartitionBytes:
		return int64(cl.bytes) > int64(l.PartitionBytes)/divisor
	case LimitMessages:
		return cl.held > 0 && load.messages.Load() > int64(l.Messages)/divisor
	case LimitBytes:
		return cl.held > 0 && load.bytes.Load() > int64(l.Bytes)/divisor
	}
	return false
}

// over returns a limit for which the claim must be paused: one that it is over, or half of the one for which it is
// paused already, so that it is not paused again at once. It is "" if there is none. It is called under the lock.
func (cl *claim) over() Limit {
	for _, limit := range allLimits {
		divisor := int64(1)
		if limit == cl.pausedBy {
			divisor = 2
		}
		if cl.exceeds(limit, divisor) {
			if limit == LimitMessages || limit == LimitBytes {
				cl.run.load.awaited.Store(true) // what it holds may be stuck: whoever brings the load down has to look at it again
			}
			return limit
		}
	}
	return ""
}

// pauseIfOver is called under the lock when something was added.
func (cl *claim) pauseIfOver() {
	if cl.pausedBy != "" {
		return
	}
	if cl.pausedBy = cl.over(); cl.pausedBy == "" {
		return
	}
	cl.pausedAt = time.Now()
	cl.group.Pause(cl.ref())
	cl.run.hooks.partition(cl.run.hooks.hooks.Paused, cl)
}

// holdup is what a claim knows of the message for which it is paused by Limits.Ahead.
type holdup struct {
	is, told bool
	offset   int64
}

// tellAhead logs which message so many others have passed that its partition is paused, once it has lasted from one
// call to the next. It is called under the lock.
func (cl *claim) tellAhead() {
	it := cl.open.oldest
	switch {
	case cl.pausedBy != LimitAhead || it == nil:
		cl.holdup = holdup{}
		return
	case !cl.holdup.is || cl.holdup.offset != it.offset:
		cl.holdup = holdup{is: true, offset: it.offset}
		return
	}
	if cl.holdup.told {
		return
	}
	cl.holdup.told = true
	cl.run.log.Warn("einmal: a message is unfinished, and as many as Limits.Ahead were delivered behind it: the partition is paused until it has finished",
		cl.attrs(slog.Int64(attrOffset, it.offset), slog.Int("failed_attempts", it.attempts()),
			slog.Time("since", it.fetched), slog.Int("ahead", cl.tracker.Ahead()))...)
}

// resumeIfLow is called under the lock when something was finished, here or elsewhere.
func (cl *claim) resumeIfLow() {
	if cl.pausedBy == "" || cl.stopped {
		return
	}
	if by := cl.over(); by != "" {
		cl.pausedBy = by
		return
	}
	cl.countPause(time.Now())
	cl.pausedBy = ""
	cl.fetchAgain()
	cl.run.hooks.partition(cl.run.hooks.hooks.Resumed, cl)
}

// report brings the load up to date with what the claim holds, and lets other claims go on that were paused for it. It
// is called under the lock, so the others are looked at from a goroutine.
func (cl *claim) report() {
	r := cl.run
	r.load.add(cl.held-cl.reported.messages, cl.bytes-cl.reported.bytes)
	cl.reported.messages, cl.reported.bytes = cl.held, cl.bytes
	if r.load.awaited.Load() && r.load.low(r.cfg.Limits) && r.load.awaited.CompareAndSwap(true, false) {
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
