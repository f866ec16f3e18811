package consumer

import "time"

// Failing is what became of the attempts at a message that is still open.
type Failing struct {
	Offset   int64
	Attempts int       // that have failed
	Since    time.Time // start of the first of them
	RetryAt  time.Time // not before this is the next one; zero if there is none, because OnFailure is Stop
	Err      error     // of the last one

	delay   time.Duration // from the judgement of the last one to RetryAt
	excused int           // of Attempts: that do not count for middleware.Retry

	waits bool // the last one has not failed: the message was not due
}

// FailingMessage is a Failing, and where the message stands.
type FailingMessage struct {
	Topic     string
	Partition int32
	Failing
}

const (
	keepTryingBase = time.Second
	keepTryingMax  = time.Minute
)

const (
	// minDelay is the shortest pause before another attempt that was asked for: without one a message whose handler asks
	// for none would be attempted as fast as the machine can, for ever.
	minDelay = 10 * time.Millisecond

	// maxDelay is the longest that RetryAfter gets. An attempt an hour costs nothing, and a delay in a wrong unit cannot
	// keep a partition waiting for years.
	maxDelay = time.Hour
)

// askedDelay is how long a message waits that asked for delay. A time before which it is not due (NotBefore) has no
// cap.
func askedDelay(delay time.Duration, notDue bool) time.Duration {
	if notDue {
		return max(minDelay, delay)
	}
	return min(maxDelay, max(minDelay, delay))
}

// keepTryingDelay is how long KeepTrying waits after so many failed attempts. It is a pure function of their number.
func keepTryingDelay(attempts int) time.Duration {
	if attempts > 6 { // 2^6 s > 1 min
		return keepTryingMax
	}
	return min(keepTryingMax, keepTryingBase<<(attempts-1))
}
