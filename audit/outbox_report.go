package audit

import "time"

// What breaks the promise of the outbox. DifferentValues and Unreadable are findings of it too.
const (
	// Missing are events whose row says that they were sent, and which are not in the topic, or less often than there are
	// such rows.
	Missing Kind = "missing"
	// OutOfOrder are events that stand in their partition behind a later one of their key, by the numbers of the rows.
	// Only where each stands first counts. An event that was discarded and retried, or whose writer did not hold what
	// serialises the key, is one.
	OutOfOrder Kind = "out_of_order"
	// WithoutRow are events of the topic that no row has, although they are not so old that it may have been deleted: see
	// OutboxConfig.Keep.
	WithoutRow Kind = "without_row"
)

// OutboxFindings are the kinds that make an OutboxReport not clean, in the order in which they are shown. Of
// DifferentValues one value can be that of the row: an event that was edited after it was sent is one.
func OutboxFindings() []Kind {
	return []Kind{Missing, OutOfOrder, WithoutRow, DifferentValues, Unreadable}
}

// OutboxNotes are the other kinds: Repeated are events that stand in the topic more often than rows have them,
// WithoutID are messages that no relay has sent.
func OutboxNotes() []Kind { return []Kind{Repeated, WithoutID} }

// OutboxReport is what an audit of the outbox has found.
type OutboxReport struct {
	Topic string    `json:"topic"`
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"` // when the rows had been read

	Partitions []*Part `json:"partitions"`

	Messages int64 `json:"messages"` // that were read
	Events   int64 `json:"events"`   // different ids among them; a message without an id is one

	Rows      int64 `json:"rows"`      // of the topic, in the whole table
	Waiting   int64 `json:"waiting"`   // of them PENDING or PUBLISHING
	Blocked   int64 `json:"blocked"`   // of them BLOCKED
	Discarded int64 `json:"discarded"` // of them DEAD
	Published int64 `json:"published"` // of them PUBLISHED, and in the window. Each is one of the next three, or its event is Missing

	Sent      int64 `json:"sent"`      // their events are in the topic
	Deleted   int64 `json:"deleted"`   // they are not, and may have been deleted by the topic's retention
	Undecided int64 `json:"undecided"` // they are not in what could be read, and some could not be

	// What the events are that no row has, beside those found WithoutRow.
	Swept int64 `json:"swept"` // their rows may have been deleted because of their age
	New   int64 `json:"new"`   // they came to the topic after the audit had begun to read the rows

	Found Found `json:"found"`
}

func newOutboxReport() *OutboxReport {
	return &OutboxReport{Partitions: []*Part{}, Found: newFound(append(OutboxFindings(), OutboxNotes()...)...)}
}

// Clean reports whether nothing of OutboxFindings was found. It says nothing of what is undecided, deleted, swept or
// new.
func (r *OutboxReport) Clean() bool { return r.Found.none(OutboxFindings()) }
