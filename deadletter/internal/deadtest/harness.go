// Package deadtest is the tests that all tables of dead letters must pass.
package deadtest

import (
	"context"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

// Harness is a table on a fresh database, in which package schema's tables are, and effect (name text).
type Harness[Tx any] struct {
	Table deadletter.Table[Tx]
	Store Store[Tx]
	Write func(ctx context.Context, tx Tx, effect string) error // a row of effect
	Exec  func(ctx context.Context, tx Tx, text string) error   // a statement
	Run   func(text string)                                     // one or more statements
	Count func(query string) int

	Starts   deadletter.Starts
	Locks    bool                                                  // rows are locked one by one
	Limited  func(maxBytes int64, leave bool) deadletter.Table[Tx] // on the same database
	Renamed  func() deadletter.Table[Tx]                           // on tables that are not there
	Backdate func(id int64, to time.Time)
}

// Store is what the tests need of a store.
type Store[Tx any] interface {
	dedupstore.Store[Tx]
	dedupstore.Transactor[Tx]
}

// Run runs all tests, each in parallel on a database of its own.
func Run[Tx any](t *testing.T, open func(t testing.TB) Harness[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Harness[Tx]){
		"round trip":         roundTrip[Tx],
		"rolled back":        rolledBack[Tx],
		"filters":            filters[Tx],
		"pages":              pages[Tx],
		"take":               take[Tx],
		"taken at once":      takenAtOnce[Tx],
		"discard":            discard[Tx],
		"failed":             failed[Tx],
		"too large":          tooLarge[Tx],
		"edited by hand":     edited[Tx],
		"check":              check[Tx],
		"starts":             countsStarts[Tx],
		"swallowed":          swallowed[Tx],
		"tables stay":        tablesStay[Tx],
		"start of another":   startOfAnother[Tx],
		"redrive":            redrives[Tx],
		"redrive that fails": redriveFails[Tx],
		"redrive by two":     redriveByTwo[Tx],
		"redrive in order":   redriveInOrder[Tx],
		"browse":             browses[Tx],
		"search":             searches[Tx],
		"search large":       searchesLarge[Tx],
		"groups":             groups[Tx],
		"overtaken":          overtakes[Tx],
		"browse too long":    browseTooLong[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// message is one with all that a message can have.
func message(offset int64) *consumer.Message {
	return &consumer.Message{
		Topic: "orders", Partition: 3, Offset: offset, TopicID: consumer.TopicID{1, 2, 3},
		Key: []byte("k\x00\xff"), Value: []byte{}, Timestamp: time.Date(2026, 11, 29, 12, 0, 0, 123e6, time.UTC),
		Headers: []consumer.Header{
			{Key: "event-id", Value: []byte("e1")}, {Key: "raw", Value: []byte{0, 1, 0xff}}, {Key: "none"},
			{Key: "empty", Value: []byte{}},
			{Key: "event-id", Value: []byte(`again "quoted" $1 ? \ 'x'`)}, {Key: "", Value: []byte("no name")},
			{Key: "\xff\x00", Value: []byte("no text")},
		},
		Group: "billing", Consumer: "billing/orders", EventID: "e1", Attempt: 5,
		FirstAttempt: time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC),
	}
}

// record is a dead letter of a message.
func record(offset int64) *deadletter.Record {
	r := deadletter.NewRecord(message(offset), dedupstore.Key{Consumer: "billing/orders", Event: event(offset)})
	r.Kind, r.ErrorType, r.Error, r.TraceID = deadletter.KindGaveUp, "23505", `it's "no" good: $1 ?`,
		"0af7651916cd43dd8448eb211c80319c"
	return r
}

func event(offset int64) string { return string(rune('a'+offset%26)) + "-event" }

// write writes dead letters, each with its record, and returns the ids of their rows.
func (h Harness[Tx]) write(t *testing.T, table deadletter.Writer[Tx], recs ...*deadletter.Record) (ids []int64) {
	t.Helper()
	for _, rec := range recs {
		ran, err := h.Store.Once(t.Context(), rec.DedupKey(),
			func(ctx context.Context, tx Tx) error { return table.Write(ctx, tx, rec) })
		if !ran || err != nil {
			t.Fatalf("write: %v, %v", ran, err)
		}
	}
	all, err := h.Table.List(t.Context(), deadletter.Filter{}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range all[len(all)-len(recs):] {
		ids = append(ids, rec.ID)
	}
	return ids
}

func (h Harness[Tx]) dead() int { return h.Count("select count(*) from dead_message") }

func (h Harness[Tx]) effects() int { return h.Count("select count(*) from effect") }
