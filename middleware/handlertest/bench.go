package handlertest

import (
	"slices"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
)

// bench is a harness in one case of the suite.
type bench[Tx any] struct {
	t       testing.TB
	h       Harness[Tx]
	store   *Store[Tx]
	service service
	want    *expected
}

func newBench[Tx any](t testing.TB, open func(t testing.TB) Harness[Tx], want *expected) *bench[Tx] {
	t.Helper()
	h := open(t)
	if err := h.validate(); err != nil {
		t.Fatal(err)
	}
	b := &bench[Tx]{t: t, h: h, store: NewStore(h.Store), want: want}
	b.restart()
	if want != nil {
		if d := compare(b.effects(), want.before); !d.none() {
			t.Fatalf("this harness does not begin with the effects with which the first one began:\n%v\n\tlet open empty the database and make anew what Effects reads", d)
		}
	}
	return b
}

// restart makes the handler anew, as a process does.
func (b *bench[Tx]) restart() {
	b.t.Helper()
	b.service = newService(b.t, b.h, b.store)
}

// effects reads what is there, sorted.
func (b *bench[Tx]) effects() []string {
	b.t.Helper()
	effects, err := b.h.Effects(b.t.Context())
	if err != nil {
		b.t.Fatalf("Harness.Effects: %v", err)
	}
	return slices.Sorted(slices.Values(effects))
}

// deliver hands msg to the handler as often as it takes.
func (b *bench[Tx]) deliver(msg *consumer.Message) *consumertest.Outcome {
	b.t.Helper()
	return b.service.patient.Deliver(b.t.Context(), msg)
}

// fail delivers msg with a failure, and, if the handler did not report it as done nevertheless, to the next owner.
func (b *bench[Tx]) fail(at Point, call int, msg *consumer.Message) (out *consumertest.Outcome, hidden bool) {
	b.t.Helper()
	b.store.Fail(at, call)
	out = b.service.limited.Deliver(b.t.Context(), msg)
	failed := b.store.failed()
	b.store.Fail(0, 1)
	if out.Err == nil {
		return out, failed
	}
	return b.deliver(msg), false
}

// meet delivers msg twice at the same time: neither delivery's first call of the store goes on before the other's has
// come.
func (b *bench[Tx]) meet(msg *consumer.Message) (outs [2]*consumertest.Outcome) {
	b.t.Helper()
	both := make(chan struct{})
	var mu sync.Mutex
	come := 0
	arrive := func() {
		mu.Lock()
		defer mu.Unlock()
		if come++; come == 2 {
			close(both)
		}
	}
	b.store.onCall(func() { arrive(); <-both })
	defer b.store.onCall(nil)
	var owners sync.WaitGroup
	for i := range outs {
		owners.Go(func() {
			defer arrive() // should it never call the store
			outs[i] = b.deliver(msg)
		})
	}
	owners.Wait()
	if outs[0] == nil || outs[1] == nil {
		b.t.FailNow() // t.Fatal in the handler
	}
	return outs
}
