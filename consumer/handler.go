package consumer

import "context"

// Handler handles one message. It returns nil when the message has taken effect: only then may its offset be committed.
// Any error leaves the message open; the chain's middlewares and the topic's OnFailure decide what happens next.
//
// A Handler must be safe for concurrent use. It must not keep msg after it has returned, and should return soon after
// ctx is done: the runner cancels ctx when the time to drain is over.
type Handler interface {
	Handle(ctx context.Context, msg *Message) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, msg *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, msg *Message) error { return f(ctx, msg) }

// Middleware wraps a Handler. In a list of middlewares the first is the outermost.
//
// What it returns may offer more by optional interfaces: Linker, Validator, Checker, Windower, Assignee, Brancher,
// Wrapper.
type Middleware func(next Handler) Handler

// TxHandler is a function that handles one message inside a transaction of type Tx, which its caller commits.
type TxHandler[Tx any] func(ctx context.Context, tx Tx, msg *Message) error

// Checker is implemented by links of a chain that can tell, before the first message, that they would fail: a missing
// table, for example. Run calls Check at its start and reports the errors of all links together. MessageFrom(ctx) has
// the Topic, the Group and the Consumer that the chain is for, and nothing else.
type Checker interface {
	Check(ctx context.Context) error
}

// Validator is implemented by links that can tell without I/O that they are put together wrongly, or stand where they
// must not. New reports their errors. outside are the links around it, the outermost first; around a link of a branch,
// those outside of the Brancher too.
type Validator interface {
	Validate(outside []Handler) error
}

// Assignee is implemented by links that do something else for the first messages of a partition than for the later
// ones: those after a crash are delivered again, and one of them may be what the crash came from. They are found when
// the Consumer is made, so a message costs nothing for it.
type Assignee interface {
	// Assigned is called when this process begins to hold the partition, before any of its messages is handled, and again
	// each time that it comes back. inFlight is how many messages of it may have been in work at once, when whoever held
	// it before ended. It must return soon, and do no input or output: all partitions of a rebalance wait for it. It may
	// be called by several goroutines at once.
	Assigned(topic string, partition int32, inFlight int)
}

// Wrapper is implemented by links that show the link which they call, as errors show what they wrap. New and Run see
// all links of a chain by it, also where a function returns several of them, one around the other. What a function that
// shows nothing calls is not seen: its place is not checked, nobody asks whether its table is there, and a CrashLoop in
// it does nothing.
type Wrapper interface {
	// Unwrap returns the next link inside, always the same.
	Unwrap() Handler
}

// Brancher is implemented by links that hold chains of their own, a sequence of steps for example. Each branch is a
// chain, the outermost link first: New checks its order together with what stands outside of it, and its links are
// asked like those of the topic's own chain.
type Brancher interface {
	Branches() [][]Handler
}

// Linker is implemented by links of a chain whose place in it matters. New refuses a chain in which they are out of
// order. Links without it may stand anywhere.
type Linker interface {
	Link() Link
}

// Link is the place of a link in its chain, from the outermost to the innermost.
type Link int

// The known links, in the order in which they must stand, the outermost first.
const (
	LinkTracing    Link = iota + 1 // sees every attempt, and all that the inner links decided
	LinkMetrics                    // inside the span, so that its measurements have the trace as exemplar; sees all the same
	LinkLogging                    // inside the span, so that its lines carry the trace
	LinkDeadLetter                 // outside Retry, whose last word it acts on
	LinkHandOn                     // outside Retry, on whose last word it acts, and inside DeadLetter, which takes what cannot be handed on
	LinkCrashLoop                  // outside Retry: what it gives up has had its attempts, each of which ended the process
	LinkRetry                      // outside what makes one attempt; once per chain
	LinkRecover                    // inside Retry, so that a panic is a failed attempt
	LinkTimeout                    // inside Retry, so that each attempt has its own time
	LinkDedup                      // innermost: each attempt has its own transaction; once per chain. A handler that may be repeated is one, too
)
