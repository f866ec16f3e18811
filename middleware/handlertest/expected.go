package handlertest

import (
	"slices"
	"testing"

	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
)

// expected is what exactly one delivery of each message comes to.
type expected struct {
	before []string           // effects before the first message, sorted
	after  [][]string         // and after each
	keys   [][]dedupstore.Key // of the calls of Once, by message
	groups bool               // the store makes groups
}

func (e *expected) mostCalls() int {
	most := 0
	for _, keys := range e.keys {
		most = max(most, len(keys))
	}
	return most
}

// expect delivers each message once, on two harnesses: what differs between them cannot be compared with anything.
func expect[Tx any](t testing.TB, open func(t testing.TB) Harness[Tx]) *expected {
	t.Helper()
	one := deliverOnce(newBench(t, open, nil))
	two := deliverOnce(newBench(t, open, one))
	for i, keys := range one.keys {
		if !slices.Equal(keys, two.keys[i]) {
			t.Fatalf("the key of the same message differs between two deliveries, %v and %v: let Topic.EventID return the event's own id, and Topic.Consumer be a constant", keys, two.keys[i])
		}
		if d := compare(two.after[i], one.after[i]); !d.none() {
			t.Fatalf("the effects of the same messages differ between two fresh harnesses:\n%v\n\tlet Effects leave out what differs from run to run (times, random ids, values of sequences), and open make everything anew", d)
		}
	}
	return one
}

func deliverOnce[Tx any](b *bench[Tx]) *expected {
	b.t.Helper()
	e := &expected{before: b.effects(), groups: b.groups()}
	for i, msg := range b.h.Messages {
		calls := len(b.store.Keys())
		out := b.service.patient.Deliver(b.t.Context(), msg)
		if out.End != consumertest.Done || len(out.Attempts) > 1 {
			b.t.Fatalf("message %d does not succeed in its first attempt, although nothing fails:\n%v", i, out)
		}
		keys := b.store.Keys()[calls:]
		if len(keys) == 0 {
			b.t.Fatalf("message %d took effect without a call of the store: the handler does not stand behind Dedup, or behind one that does not use the store which Harness.Handler was given", i)
		}
		e.keys, e.after = append(e.keys, keys), append(e.after, b.effects())
	}
	return e
}
