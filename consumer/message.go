package consumer

import (
	"context"
	"slices"
	"time"
)

// Message is one record of a topic, as its handlers see it.
//
// Key, Value and the headers alias the fetched batch: they may be kept, but must not be written to. Each is cut to its
// own length, so an append copies. What is kept keeps the whole batch in memory: copy small parts that live long.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte // nil if the record has none
	Value     []byte // nil for a tombstone
	Headers   []Header
	Timestamp time.Time // as the topic keeps it: the producer's or the broker's; zero if the record has none

	// What the runner knows, set before the first link of the chain is called.

	Group        string
	Consumer     string    // names the effect: Topic.Consumer, by default "group/topic"
	TopicID      TopicID   // zero if the broker does not tell
	EventID      string    // what Topic.EventID returned
	EventIDErr   error     // why there is no EventID; Dedup refuses the message with it
	Attempt      int       // from 1; see docs/failures.md for what of it outlasts a rebalance and a restart
	FirstAttempt time.Time // start of attempt 1
	LastError    error     // of the attempt before this one; nil in attempt 1, ErrEarlierAttempt if it was made by another owner

	// Earlier is what befell the message in the topics that have handed it on. It is set by what handles such topics, such
	// as forward.RetryTopics, and nil for a message in the topic where it first stood.
	Earlier *Earlier

	// Result is written by the inner links of the chain and read by the outer ones. It is empty before each attempt.
	Result Result

	errorText func(err error, msg *Message) string // Config.ErrorText; nil for the default
}

// Earlier is what befell a message in other topics.
type Earlier struct {
	Attempts     int       // all of them
	FirstAttempt time.Time // start of the first of them; zero if it is not known
}

// Header is a record header. A record may repeat a key.
type Header struct {
	Key   string
	Value []byte
}

// TopicID is Kafka's unique id of a topic: a topic that is deleted and created again has another one.
type TopicID [16]byte

// Header returns the value of the last header with that key, the one that wins where a key is repeated, and whether
// there is one.
func (m *Message) Header(key string) (value []byte, ok bool) {
	for _, h := range slices.Backward(m.Headers) {
		if h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}

// Result is what became of one attempt.
type Result struct {
	Duplicate bool  // the event was recorded before: the handler did not run
	Dead      bool  // the message was written as a dead letter
	DeadErr   error // why it was
	HandedOn  error // why the message was handed on, to a retry topic for example: middleware.HandOn has done so; nil if it was not
	Skipped   bool  // the message is not for this consumer: middleware.Filter has skipped it
	Logged    bool  // a link has written the line about the failure of the attempt, or has left it out as one too many: the runner writes none

	// Exited is set where the handler has ended its goroutine (runtime.Goexit), so that no link can return anything any
	// more: what the links so far would have returned. Links that decide what follows on an error look at it in a deferred
	// function.
	Exited *Exit

	// Transactions are those of the attempt, of each step and of the dead letter, by their ends.
	Transactions Transactions

	// The steps of the dedup transaction, zero where a step was not reached: BEGIN and record lie between Begin and
	// HandlerStart, the handler between HandlerStart and HandlerEnd, COMMIT or ROLLBACK between HandlerEnd and End.
	Begin, HandlerStart, HandlerEnd, End time.Time
}

// Exit is what a chain came to whose handler has ended its goroutine.
type Exit struct{ Err error }

// Transactions counts transactions by how they ended.
type Transactions struct {
	Committed  int // those that found the event recorded included
	RolledBack int // or did not begin: nothing of them took effect
	Unknown    int // the connection was lost during COMMIT, see dedupstore.ErrOutcomeUnknown
}

// Add adds those of another attempt or step.
func (t *Transactions) Add(other Transactions) {
	t.Committed += other.Committed
	t.RolledBack += other.RolledBack
	t.Unknown += other.Unknown
}

type contextKey struct{}

// WithMessage returns a context that carries msg to MessageFrom. The runner sets it; tests may.
func WithMessage(ctx context.Context, msg *Message) context.Context {
	return context.WithValue(ctx, contextKey{}, msg)
}

// MessageFrom returns the message that is being handled, for handlers that take only the event. It holds facts about
// the message; it never carries the transaction.
func MessageFrom(ctx context.Context) (*Message, bool) {
	msg, ok := ctx.Value(contextKey{}).(*Message)
	return msg, ok
}
