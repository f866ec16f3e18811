package dedupstore

// Grouper is implemented by stores that put concurrent calls of Once into one transaction. Group is the most calls that share one; 0 or 1
// is a transaction each. The consumer's runner hands out as many messages at once.
type Grouper interface {
	Group() int
}
