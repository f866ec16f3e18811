// Package gather puts concurrent calls of a store's Once into groups that share a transaction. It knows no SQL: a
// Backend runs a group's statements.
//
// # The life of a call
//
// A call that finds nobody in front of it and a transaction to spare runs as if there were no groups, on its caller's
// goroutine. Any other call waits in a queue. When a transaction ends, the calls that wait form the next group; nobody
// waits for a group to fill.
//
// A group begins a transaction with the records of all its calls. Then the functions of the fresh ones run, one after
// the other, each on its caller's goroutine and with its caller's context, and the transaction is committed. A function
// that fails rolls the group back: its call gets its error, the others come again, in their order, before all who came
// later, in a group half as large. A group that cannot begin is halved, down to single calls.
//
//	          ┌──────────── again ────────────┐
//	queued ──▸ member ──▸ running ──▸ ran ──▸ answered
//	   └─ left ──┘
//
// A call whose context ends before its function runs leaves at once; its record is taken back in the transaction that
// inserted it. A function that has run is answered for with the group's end.
package gather
