// Package recordsize has what a record takes in Kafka's format beside its key, its value, and the names and values of
// its headers. The writers refuse an event by it, and the relay fills its batches by it.
package recordsize

// The most bytes that each part takes.
const (
	Batch  = 61           // a record batch, beside its records
	Record = 5*5 + 10 + 1 // a record: its lengths, deltas and attributes
	Header = 2 * 5        // a header: the lengths of its name and its value
)
