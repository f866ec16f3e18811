package dedupstore

// Grouper is implemented by stores that put concurrent calls of Once into one transaction. Group is the most calls that
// share one; 0 or 1 is a transaction each. The consumer's runner hands out as many messages at once.
type Grouper interface {
	Group() int
}

// GroupReporter is implemented by a Grouper that tells what becomes of its groups.
type GroupReporter interface {
	// GroupStats returns what has been done so far. ok is false if the store makes no groups.
	GroupStats() (stats GroupStats, ok bool)

	// WatchGroups has f called after each transaction, also of a single call, until the store is gone. A second f of the
	// same watcher takes the place of the first. f must return soon, and must not call the store.
	WatchGroups(watcher any, f func(GroupResult))
}

// GroupStats is what a store has done in groups. Counts only grow.
type GroupStats struct {
	Transactions int64 // that were committed
	Calls        int64 // of Once that they answered
	RolledBack   int64 // groups whose calls came again, in smaller groups
	Size         int   // the most calls in the next group, at most Group
	Side         int   // the most transactions side by side now; they are single ones if Size is 1
	Contended    bool  // groups are held small, one at a time, because of deadlocks or serialization failures
	Single       bool  // groups do not pay, since functions wait or fail: calls have transactions of their own, until groups pay again
}

// GroupResult is what became of a transaction.
type GroupResult struct {
	Calls  int          // of Once that it answered; 0 if it was rolled back
	Failed GroupFailure // why it was rolled back; empty if it was committed
}

// GroupFailure is why a group was rolled back, and its calls came again in smaller groups.
type GroupFailure string

// The failures of groups.
const (
	GroupFunction GroupFailure = "function" // a function failed, or a statement that it had queued
	GroupRecord   GroupFailure = "record"   // a key was refused, or held by another transaction for too long
	GroupCommit   GroupFailure = "commit"   // COMMIT failed and nobody can be blamed, as for a deferred constraint
	GroupDeadlock GroupFailure = "deadlock" // a deadlock or a serialization failure
)
