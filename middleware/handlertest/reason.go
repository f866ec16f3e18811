package handlertest

// reason is where to look when effects were doubled, and when they are missing.
type reason struct{ doubled, missing string }

const (
	outsideTx = "the handler had run and its transaction was rolled back; then it ran again: something in it, or around Dedup, is not written by tx " +
		"(another connection, a variable, a file, another service). Write it by tx, or make it repeatable: calls by a key that is derived from dedupstore.KeyFrom"
	remembers = "the handler had run and its transaction was rolled back; then it ran again and did less: something in it remembers the first run " +
		"(a variable, a cache, a row on another connection). Let the record alone decide what was done"
	outsideDedup = "the transaction had ended before the handler's function was called; then the message came again: something stands outside of that " +
		"function, around Dedup or before it. Move it into the function"
	swallows = "the handler's context was done when it began, and it returned nil without its effect: it swallows an error, and the record was committed " +
		"alone. Return every error"
	hidesFailures = "the chain returned nil although the store had failed: the message counts as done and is not delivered again. Something outside of Dedup " +
		"swallows its error. Return it"
	forgotten = "the message was handled and recorded, and its effect is not there: something in the handler undoes it, or makes it after it has returned " +
		"(a goroutine)"
	noRecord = "the record did not hold the second run back: something is done around Dedup, outside of the function that it runs, or the key differs from " +
		"delivery to delivery (Topic.EventID must return the event's own id)"
)

// sharesTx is for a message that came with others.
var sharesTx = reason{inherits, inherits}

const inherits = "the messages shared a transaction (Config.Group): what one sets (SET LOCAL), makes (temporary tables), or asks for (now(), the transaction's id) " +
	"is the same for those behind it. Make the handler independent of it, or leave Group at 1"

var notHeldBack = reason{noRecord, forgotten}

func reasonOf(at Point) reason {
	switch at {
	case BeforeRecord, AfterRecord:
		return reason{outsideDedup, remembersBefore}
	case InHandler:
		return reason{outsideTx, swallows}
	case AfterHandler, AtCommit:
		return reason{outsideTx, remembers}
	default:
		return notHeldBack
	}
}

const remembersBefore = "the handler's function was not called, because the store failed; when the message came again, it did less: something outside of " +
	"that function remembers the message (a variable, a cache). Let the record alone decide what was done"
