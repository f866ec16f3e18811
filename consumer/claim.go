package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/offsets"
)

// A partition is paused when its claim holds more than the high mark, and resumed below the low one. The high mark keeps a slow
// handler busy through the next fetches; what a fetch that is under way brings comes on top, at most one batch.
const (
	highMessages, lowMessages = 1000, 500
	highBytes, lowBytes       = 16 << 20, 8 << 20
)

// errDrainOver is the cause with which the handlers of a claim are cancelled.
var errDrainOver = errors.New("einmal: the time to drain is over: the partition goes to another owner, or the process stops")

// claim is the hold of this process on one partition, from its assignment to its end: an epoch. It has a queue and a tracker of
// its own, and nothing that belongs to it moves an offset once it is fenced, even if the same partition comes back.
type claim struct {
	run       *running
	topic     *topic
	partition int32
	topicID   TopicID
	session   sarama.ConsumerGroupSession
	initial   int64 // where fetching started; negative if nothing valid was committed
	since     time.Time

	ctx    context.Context // of the handlers: not the session's, it outlives the session by the drain
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	queue   queue
	tracker offsets.Tracker
	running map[*item]struct{}
	parked  map[*item]*time.Timer
	held    int // messages that are not finished
	bytes   int // of these
	marked  int64
	paused  bool
	stopped bool          // no message starts any more
	idle    chan struct{} // closed when stopped and nothing runs
	fenced  bool          // no mark is made any more
}

func newClaim(r *running, t *topic, id TopicID, session sarama.ConsumerGroupSession, sc sarama.ConsumerGroupClaim) *claim {
	ctx, cancel := context.WithCancelCause(r.handlers)
	return &claim{
		run: r, topic: t, partition: sc.Partition(), topicID: id, session: session, initial: sc.InitialOffset(), since: time.Now(),
		ctx: ctx, cancel: cancel,
		queue:   &partitionQueue{},
		running: map[*item]struct{}{},
		parked:  map[*item]*time.Timer{},
		marked:  -1,
		idle:    make(chan struct{}),
	}
}

// pump moves messages from sarama into the queue until the session ends or the partition is closed. It never blocks on a
// handler: sarama serves all partitions of a broker in turn, so a reader that waits holds up the others.
func (cl *claim) pump(messages <-chan *sarama.ConsumerMessage) {
	done := cl.session.Context().Done()
	for {
		select {
		case <-done:
			return
		case rec, ok := <-messages:
			if !ok || !cl.accept(rec, messages) {
				return
			}
		}
	}
}

// accept takes rec and whatever else is ready under one lock. It reports whether pumping can go on.
func (cl *claim) accept(rec *sarama.ConsumerMessage, messages <-chan *sarama.ConsumerMessage) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	ok := cl.add(rec)
	for n := len(messages); ok && n > 0; n-- {
		if rec, open := <-messages; !open || !cl.add(rec) {
			ok = false
		}
	}
	cl.dispatch()
	if !cl.paused && (cl.held > highMessages || cl.bytes > highBytes) {
		cl.paused = true
		cl.run.group.Pause(cl.ref())
	}
	return ok
}

func (cl *claim) add(rec *sarama.ConsumerMessage) bool {
	if err := cl.tracker.Deliver(rec.Offset); err != nil {
		// The log went back under a running fetch. Ending the session reads again from what is committed: nothing is lost.
		cl.run.log.Error("einmal: offsets went backwards, the partition is read again from its committed offset", cl.attrs(slog.Any("error", err))...)
		return false
	}
	if cl.held == 0 && cl.initial < 0 && cl.marked < 0 {
		// Where a committed offset lies beyond the end of the log (a topic that was created again), sarama would ignore
		// every mark until the log has outgrown it. Without a committed offset this does nothing.
		cl.session.ResetOffset(cl.topic.name, cl.partition, rec.Offset, "")
	}
	it := &item{rec: rec}
	cl.held++
	cl.bytes += it.size()
	cl.queue.push(it)
	return true
}

// dispatch starts what may run now. It is called under the lock.
func (cl *claim) dispatch() {
	for it := cl.start(); it != nil; it = cl.start() {
		go cl.work(it)
	}
}

func (cl *claim) start() *item {
	if cl.stopped {
		return nil
	}
	it := cl.queue.next()
	if it != nil {
		cl.running[it] = struct{}{}
	}
	return it
}

// work handles it, and then whatever may run next, until there is nothing.
func (cl *claim) work(it *item) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// The handler ended this goroutine with runtime.Goexit.
		if next := cl.finish(it, &Panic{}); next != nil {
			go cl.work(next)
		}
	}()
	for it != nil {
		it = cl.finish(it, cl.attempt(it))
	}
	returned = true
}

// attempt runs the chain once.
func (cl *claim) attempt(it *item) error {
	msg := it.message()
	msg.TopicID = cl.topicID
	return cl.topic.attempt(cl.ctx, msg, &it.history)
}

// finish takes the outcome of an attempt and returns what the same worker may run next.
func (cl *claim) finish(it *item, err error) (next *item) {
	f := cl.judge(it, err)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.running, it)
	switch {
	case err == nil:
		cl.complete(it)
	case f != nil && !cl.stopped:
		it.failing = f
		cl.park(it)
	}
	if cl.stopped && len(cl.running) == 0 {
		close(cl.idle)
	}
	return cl.start()
}

// complete marks the end of the contiguous prefix of finished messages.
func (cl *claim) complete(it *item) {
	cl.held--
	cl.bytes -= it.size()
	cl.queue.finished(it)
	if err := cl.tracker.Done(it.rec.Offset); err != nil {
		cl.run.log.Error("einmal: a message finished that was not open", cl.attrs(slog.Any("error", err))...)
	}
	if offset, ok := cl.tracker.Committable(); ok && offset > cl.marked && !cl.fenced {
		cl.marked = offset
		cl.session.MarkOffset(cl.topic.name, cl.partition, offset, "")
	}
	if cl.paused && !cl.stopped && cl.held < lowMessages && cl.bytes < lowBytes {
		cl.paused = false
		cl.run.group.Resume(cl.ref())
	}
}

// park holds a message that failed until its next attempt is due. Nobody waits with it.
func (cl *claim) park(it *item) {
	cl.queue.park(it)
	if it.failing.RetryAt.IsZero() {
		cl.parked[it] = nil // OnFailure is Stop
		return
	}
	cl.parked[it] = time.AfterFunc(time.Until(it.failing.RetryAt), func() { cl.unpark(it) })
}

func (cl *claim) unpark(it *item) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.stopped {
		return
	}
	delete(cl.parked, it)
	cl.queue.unpark(it)
	cl.dispatch()
}

// judge says what becomes of a message after an attempt: nil if nothing has to be done. It runs without the lock.
func (cl *claim) judge(it *item, err error) *Failing {
	f := cl.topic.judge(cl.ctx, it.rec.Offset, it.history, err)
	if f == nil {
		return nil
	}
	attrs := cl.attrs(slog.Int64(attrOffset, f.Offset), slog.Int("attempt", f.Attempts), slog.Any("error", err))
	_, asked := Delay(err)
	switch {
	case asked:
		cl.run.log.Debug("einmal: a message is parked until its next attempt", append(attrs, slog.Duration("delay", f.delay))...)
	case f.RetryAt.IsZero():
		cl.run.log.Error("einmal: a message failed, and OnFailure is Stop", attrs...)
		cl.run.stop(&StopError{Topic: cl.topic.name, Partition: cl.partition, Offset: f.Offset, Err: err})
	default:
		cl.run.log.Warn("einmal: a message failed, its partition waits for it", append(attrs, slog.Duration("delay", f.delay))...)
	}
	return f
}

// ref names the partition for Pause and Resume.
func (cl *claim) ref() map[string][]int32 {
	return map[string][]int32{cl.topic.name: {cl.partition}}
}

func (cl *claim) attrs(more ...any) []any {
	return append([]any{slog.String(attrTopic, cl.topic.name), slog.Int(attrPartition, int(cl.partition))}, more...)
}
