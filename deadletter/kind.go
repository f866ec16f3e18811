package deadletter

// Kind is the kind of failure for which a message was given up.
type Kind string

// The kinds.
const (
	KindGaveUp      Kind = "gave_up"           // all attempts have failed
	KindPermanent   Kind = "permanent"         // the handler or the store said that no attempt will help
	KindUndecodable Kind = "undecodable"       // the value cannot be decoded, or is a tombstone for which the handler has no use
	KindNoEventID   Kind = "no_event_id"       // the id of the event is missing, or cannot be recorded
	KindTooOld      Kind = "too_old"           // the event is older than the window in which repetitions are known
	KindPanicked    Kind = "panic"             // all attempts have failed, the last one with a panic
	KindTimedOut    Kind = "timeout"           // all attempts have failed, the last one for middleware.Timeout or Topic.ProcessingLimit
	KindTxEnded     Kind = "transaction_ended" // the handler committed or rolled back the transaction itself: it may have committed a part
	KindCrashLoop   Kind = "crash_loop"        // the process ended each time while the message was handled
)

// Kinds are all kinds.
func Kinds() []Kind {
	return []Kind{KindGaveUp, KindPermanent, KindUndecodable, KindNoEventID, KindTooOld, KindPanicked, KindTimedOut,
		KindTxEnded, KindCrashLoop}
}

// asked reports whether dead letters of the kind are redriven only where they are asked for: those whose effect may be
// there already, as far as anybody knows, and those that may end the process.
func (k Kind) asked() bool { return k == KindTooOld || k == KindTxEnded || k == KindCrashLoop }
