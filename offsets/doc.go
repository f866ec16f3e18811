// Package offsets turns messages that finish in any order into the one offset of a partition that may be committed.
//
// Committing an offset tells Kafka that everything below it is done. Where messages are handled side by side, the
// offset that may be committed is therefore the end of the contiguous prefix of finished messages, counted in the
// offsets that were delivered: compaction and transactions leave gaps that nobody will ever finish.
//
// The package does no input or output and imports the standard library only.
//
//	var t offsets.Tracker
//	t.Deliver(100)
//	t.Deliver(101)
//	t.Done(101)
//	_, ok := t.Committable() // false: 100 is open
//	t.Done(100)
//	offset, ok := t.Committable() // 102, true
package offsets
