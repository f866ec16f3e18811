// Package middleware holds the links of a message's chain.
//
//	     Config.Middleware, then Topic.Middleware; the first in the list is the outermost
//	┌────────────────────────────────────────────────────────────────────────────────────────┐
//	│ Tracing     outermost: one span per attempt, which knows what all inner links decided  │
//	│ Metrics     inside the span, so that an exemplar leads to it                           │
//	│ Logging     inside the span, so that its lines carry the trace                         │
//	│ DeadLetter  outside Retry: it acts on Retry's last word, GaveUp, and on Permanent      │
//	│ HandOn      outside Retry: it acts on GaveUp, and leaves to DeadLetter what it cannot  │
//	│ CrashLoop   outside Retry: it gives up what has ended the process before               │
//	│ Retry       outside all that makes one attempt: it decides what follows on a failure   │
//	│ Recover     inside Retry: a panic is a failed attempt like any other                   │
//	│ Timeout     inside Retry: each attempt has its own time                                │
//	└────────────────────────────────────────────────────────────────────────────────────────┘
//	     Topic.Handler
//	┌────────────────────────────────────────────────────────────────────────────────────────┐
//	│ Dedup       innermost: each attempt has its own transaction, and no link lies between  │
//	│             the transaction and the function that writes in it                         │
//	└────────────────────────────────────────────────────────────────────────────────────────┘
//
// Every link may be left out, and others may stand anywhere between them. consumer.New refuses a chain in which these
// stand in another order, or in which Metrics, DeadLetter, HandOn, CrashLoop, Retry or Dedup stand twice;
// consumer.Linker tells it where a link belongs. Dedup is not in a list because it is a Handler: it takes a function
// with a transaction, whose type must be that of the store.
//
// A failure travels from the inside to the outside: Dedup makes one attempt and rolls back; Recover makes an error of a
// panic; Retry makes a consumer.RetryAfter or a *consumer.GaveUp of an error; what still is an error at the outside is
// for the runner, which alone waits. consumer.Permanent passes Retry at once.
//
// All links are safe for concurrent use and cannot be changed after they were made.
package middleware
