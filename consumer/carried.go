package consumer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
)

// carried is what a claim leaves to the next one of its partition about messages that stay open: since when, and how
// often they have failed. It goes with the committed offset, as a part of its metadata, so that neither a rebalance nor
// a restart makes an old message young.
type carried struct {
	progress time.Time // when a message last finished
	open     []carriedItem
}

type carriedItem struct {
	offset         int64
	fetched, first time.Time
	attempts       int // that have failed
	excused        int // of them: that do not count for Retry
}

const (
	// carriedMark stands in the metadata before it. What stands before the mark is another note.
	carriedMark = " open="

	// maxCarried bounds the messages that are carried, the oldest first: 24 have about 1.3 kB, and brokers take 4 kB
	// (offset.metadata.max.bytes).
	maxCarried = 24

	// carryAfter is how long the oldest message has been open before it is carried although it has not failed.
	carryAfter = time.Second

	// carryEvery is how often is looked for news to carry: commits are made once a second.
	carryEvery = 250 * time.Millisecond

	// carryProgress is how old the time of the last progress may become there.
	carryProgress = 10 * time.Second
)

// ErrEarlierAttempt stands for the errors of attempts that were made before this process held the partition: how many
// there were is known, and since when, and not what they said.
var ErrEarlierAttempt = errtype.New("earlier_attempt", "einmal: an attempt of an earlier owner of the partition failed")

// earlierAttempt is an ErrEarlierAttempt that remembers how many attempts do not count.
type earlierAttempt struct{ excused int }

func (e *earlierAttempt) Error() string { return ErrEarlierAttempt.Error() }
func (e *earlierAttempt) Unwrap() error { return ErrEarlierAttempt }

// Excused is how many of the attempts do not count, for middleware.Retry.
func (e *earlierAttempt) Excused() int { return e.excused }

// excusedOf returns how many of the attempts so far do not count, as the error of the last one says.
func excusedOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		Excused() int
	}](err); ok {
		return e.Excused()
	}
	return 0
}

// text is what goes into the metadata; "" if nothing stays open.
func (c *carried) text(id TopicID) string {
	if len(c.open) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s;%d", carriedMark, hex.EncodeToString(id[:]), milli(c.progress))
	for _, it := range c.open {
		fmt.Fprintf(&b, ";%d,%d,%d,%d,%d", it.offset, milli(it.fetched), milli(it.first), it.attempts, it.excused)
	}
	return b.String()
}

// cutCarried splits metadata into what another part of einmal has written, and the text of what was carried.
func cutCarried(metadata string) (note, text string) {
	i := strings.Index(metadata, carriedMark)
	if i < 0 {
		return metadata, ""
	}
	return metadata[:i], metadata[i:]
}

// readCarried reads what was carried about the topic of that id. What cannot be read, or is about another topic of that
// name, is nothing.
func readCarried(text string, id TopicID) (c carried) {
	text, ok := strings.CutPrefix(text, carriedMark)
	if !ok {
		return carried{}
	}
	fields := strings.Split(text, ";")
	var progress int64
	if len(fields) < 2 || fields[0] != hex.EncodeToString(id[:]) {
		return carried{}
	}
	if _, err := fmt.Sscanf(fields[1], "%d", &progress); err != nil {
		return carried{}
	}
	c.progress = unmilli(progress)
	for _, f := range fields[2:] {
		var it carriedItem
		var fetched, first int64
		if _, err := fmt.Sscanf(f, "%d,%d,%d,%d,%d", &it.offset, &fetched, &first, &it.attempts, &it.excused); err != nil ||
			it.attempts < 0 || it.excused < 0 {
			return carried{}
		}
		it.fetched, it.first = unmilli(fetched), unmilli(first)
		c.open = append(c.open, it)
	}
	return c
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func unmilli(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// carrying is the state of a claim that carries.
type carrying struct {
	came     map[int64]carriedItem // from the claim before, by offset, that have not been delivered yet
	text     string                // what goes with the next mark
	progress time.Time             // in it
	looked   time.Time
}

// inherit takes over what the claim before has left. It is called before the first message.
func (cl *claim) inherit(text string) {
	c := readCarried(text, cl.topicID)
	if len(c.open) == 0 {
		return
	}
	cl.carrying.came = make(map[int64]carriedItem, len(c.open))
	for _, it := range c.open {
		cl.carrying.came[it.offset] = it
	}
	if c.progress.Before(cl.progress) {
		cl.progress = c.progress
	}
	cl.carrying.text, cl.carrying.progress = c.text(cl.topicID), c.progress
}

// remember gives a message that came again what was carried about it. It is called under the lock.
func (cl *claim) remember(it *item) {
	c, ok := cl.carrying.came[it.offset]
	if !ok {
		return
	}
	delete(cl.carrying.came, it.offset)
	if !c.fetched.IsZero() && c.fetched.Before(it.fetched) {
		it.fetched = c.fetched
	}
	if c.first.IsZero() || c.first.After(cl.fetched) {
		return
	}
	it.first = c.first
	if c.attempts > 0 {
		it.failing = &Failing{Offset: it.offset, Attempts: c.attempts, Since: c.first, RetryAt: cl.fetched,
			Err: &earlierAttempt{c.excused}, excused: c.excused}
	}
}

// carry looks at what must be carried now, and reports whether it is something else than before. At the end of the
// claim it takes even a message that has just come. It is called under the lock.
func (cl *claim) carry(now time.Time, end bool) (changed bool) {
	k := &cl.carrying
	if !end && now.Sub(k.looked) < carryEvery {
		return false
	}
	k.looked = now
	c := carried{progress: k.progress}
	for it := cl.open.oldest; it != nil && len(c.open) < maxCarried; it = it.newer {
		oldest := it == cl.open.oldest && !it.first.IsZero() && (end || now.Sub(it.fetched) > carryAfter)
		if oldest || it.attempts() > 0 {
			c.open = append(c.open, carriedItem{it.offset, it.fetched, it.first, it.attempts(), it.excused()})
		}
	}
	if end || cl.progress.Sub(k.progress) > carryProgress || k.progress.IsZero() {
		c.progress = cl.progress
	}
	text := c.text(cl.topicID)
	changed = text != k.text
	k.text, k.progress = text, c.progress
	return changed
}

// metadata is what is committed with an offset.
func (cl *claim) metadata() string {
	if cl.run.noMetadata.Load() {
		return cl.note
	}
	return cl.note + cl.carrying.text
}

// commitAgain commits the metadata anew where no message has finished: with the offset that is marked, or the first
// that was delivered. It is called under the lock.
func (cl *claim) commitAgain() {
	at := cl.marked
	if at < 0 {
		if cl.open.oldest == nil {
			return
		}
		at = cl.open.oldest.offset
	}
	cl.session.ResetOffset(cl.topic.name, cl.partition, at, cl.metadata()) // at the same offset or a lower one
	cl.session.MarkOffset(cl.topic.name, cl.partition, at, cl.metadata())  // at a higher one
}
