package audit

import (
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// Kind is a kind of thing that an audit finds.
type Kind string

// What breaks the promise, or hides that it is broken. Each counts events, unless it says otherwise.
const (
	// Lost is an event behind the group's committed offset that is neither recorded nor dead, neither handed on nor
	// filtered.
	Lost Kind = "lost"
	// DoubledEffects are events that the query of effects has returned more than once.
	DoubledEffects Kind = "doubled_effects"
	// EffectsWithoutRecord are events that have an effect and no record: when they are delivered again they have another
	// one.
	EffectsWithoutRecord Kind = "effects_without_record"
	// RecordsWithoutEffect are events of the window that are recorded, not dead, and have no effect by the query.
	RecordsWithoutEffect Kind = "records_without_effect"
	// DifferentValues are ids under which messages of the window have different keys or values: two events that a producer
	// gave one id, of which the second is taken for a redelivery.
	DifferentValues Kind = "different_values"
	// CommittedTooFar counts partitions whose committed offset is behind the end of the log: what is written there next is
	// skipped.
	CommittedTooFar Kind = "committed_too_far"
	// Unreadable counts places at which a partition cannot be decoded. What is behind them in the partition was not read.
	Unreadable Kind = "unreadable"
)

// What is no fault of the consumer's, and good to know.
const (
	// Repeated are ids that stand at several offsets of the window with the same key and value.
	Repeated Kind = "repeated"
	// WithoutID counts messages that have no id, or none that can be recorded. They are judged by their places: see
	// deadletter.Place.
	WithoutID Kind = "without_id"
)

// Findings are the kinds that make a Report not clean, in the order in which they are shown.
func Findings() []Kind {
	return []Kind{Lost, DoubledEffects, EffectsWithoutRecord, RecordsWithoutEffect, DifferentValues, CommittedTooFar,
		Unreadable}
}

// Notes are the other kinds.
func Notes() []Kind { return []Kind{Repeated, WithoutID} }

// Report is what an audit has found.
type Report struct {
	Topic    string    `json:"topic"`
	Group    string    `json:"group"`
	Consumer string    `json:"consumer"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`

	Partitions []*Partition `json:"partitions"`

	Messages int64 `json:"messages"` // that were read in the window
	Events   int64 `json:"events"`   // different ids among them; a message without an id is one

	// What became of the events. Each is one of these, or one of those found Lost or to be among EffectsWithoutRecord.
	Recorded  int64 `json:"recorded"`
	Dead      int64 `json:"dead"`      // a dead letter, or a record at the place of the message
	HandedOn  int64 `json:"handed_on"` // to a retry topic, and not recorded yet
	Filtered  int64 `json:"filtered"`  // not recorded, and not for this consumer
	TooOld    int64 `json:"too_old"`   // not recorded; their records may have been deleted, see Config.Keep
	Undecided int64 `json:"undecided"` // not recorded; not behind the committed offset, or on their way back to the topic

	Records int64 `json:"records"` // of the consumer, in the whole table
	Effects int64 `json:"effects"` // rows that the query of effects has returned
	// Unjudged are effects without a record whose event is not in the window: with Config.Keep nobody can tell whether the
	// record was deleted.
	Unjudged int64 `json:"effects_unjudged"`

	Found Found `json:"found"`
}

// Finding is how often something was found, and the first examples, in the order of the ids.
type Finding struct {
	Count    int64     `json:"count"`
	Examples []Example `json:"examples"`
}

// Example is an event, or a place, of which something was found.
type Example struct {
	Event   string  `json:"event,omitempty"` // its id; empty if there is none
	Places  []Place `json:"places"`          // where it stands in the window: the first of them, and where it differs
	Times   int64   `json:"times,omitempty"` // how often, where it is more than once
	Problem string  `json:"problem,omitempty"`
}

// Place is where a message stands.
type Place struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time,omitzero"`
	Key       []byte    `json:"key,omitempty"`   // with Config.Values
	Value     []byte    `json:"value,omitempty"` // with Config.Values
}

// Part is what was read of a partition.
type Part struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`             // the window
	To        int64 `json:"to"`               // without it
	Unread    int64 `json:"unread,omitempty"` // offsets behind To that were to be read: of an open transaction, or behind what is unreadable
	End       int64 `json:"end"`              // of the log
	Messages  int64 `json:"messages"`         // that were read
}

// Partition is what was looked at of a partition.
type Partition struct {
	Part
	Committed int64 `json:"committed"` // by the group, before anything else was looked at; -1 for nothing
}

// Found has an entry for each kind that is looked for.
type Found map[Kind]*Finding

func newFound(kinds ...Kind) Found {
	f := Found{}
	for _, kind := range kinds {
		f[kind] = &Finding{Examples: []Example{}}
	}
	return f
}

// add counts, and keeps an example while there are fewer than limit. A negative limit is none.
func (f Found) add(kind Kind, limit int, example func() Example) {
	found := f[kind]
	found.Count++
	if limit < 0 || len(found.Examples) < limit {
		found.Examples = append(found.Examples, example())
	}
}

// unreadable notes where a partition cannot be decoded.
func (f Found) unreadable(rg topicwindow.Range, err error, limit int) {
	f.add(Unreadable, limit, func() Example {
		return Example{Places: []Place{{Partition: rg.Partition, Offset: rg.From}}, Problem: err.Error()}
	})
}

// none reports whether nothing of these kinds was found.
func (f Found) none(kinds []Kind) bool {
	return !slices.ContainsFunc(kinds, func(kind Kind) bool { return f[kind].Count > 0 })
}

func newReport() *Report { return &Report{Found: newFound(append(Findings(), Notes()...)...)} }

// Clean reports whether nothing of Findings was found. It says nothing of what is undecided, too old or unread.
func (r *Report) Clean() bool { return r.Found.none(Findings()) }
