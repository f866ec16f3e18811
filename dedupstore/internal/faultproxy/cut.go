package faultproxy

// Cut says which connection is cut, and when: the one on which the next statement comes that it is for.
type Cut struct {
	Statement func(sql string) bool // sql is in lower case, or Startup
	When      When
	How       How

	struck chan struct{}
}

// Startup stands for the message with which a connection begins.
const Startup = "(startup)"

// When is the moment within a statement's exchange.
type When int

// The moments.
const (
	Unsent       When = iota // nothing of the statement reaches the server
	HalfSent                 // the server gets half of its message
	Unanswered               // the server runs it; nothing of the answer reaches the client
	HalfAnswered             // the client gets the answer but for its last message, ReadyForQuery
)

// How is what client and server see.
type How int

// The ways.
const (
	Close   How = iota // the end of the stream
	Reset              // a connection reset
	Silence            // nothing any more: neither learns that the other one closes, until the proxy is closed
)
