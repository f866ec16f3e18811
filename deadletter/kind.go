package deadletter

// Kind is the kind of failure for which a message was given up.
type Kind string

// The kinds.
const (
	KindGaveUp      Kind = "gave_up"     // all attempts have failed
	KindPermanent   Kind = "permanent"   // the handler or the store said that no attempt will help
	KindUndecodable Kind = "undecodable" // the value cannot be decoded, or is a tombstone for which the handler has no use
	KindNoEventID   Kind = "no_event_id" // the id of the event is missing, or cannot be recorded
	KindTooOld      Kind = "too_old"     // the event is older than the window in which repetitions are known
	KindPanicked    Kind = "panic"       // all attempts have failed, the last one with a panic
	KindTimedOut    Kind = "timeout"     // all attempts have failed, the last one for middleware.Timeout or Topic.ProcessingLimit
	KindCrashLoop   Kind = "crash_loop"  // the process ended each time while the message was handled
)

// Kinds are all kinds.
func Kinds() []Kind {
	return []Kind{KindGaveUp, KindPermanent, KindUndecodable, KindNoEventID, KindTooOld, KindPanicked, KindTimedOut, KindCrashLoop}
}
