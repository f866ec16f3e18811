package handlertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/turn"
)

// grouper is the store under test, if it puts several messages into one transaction.
type grouper interface {
	dedupstore.Grouper
	dedupstore.GroupReporter
}

// groups reports whether the store under test does.
func (b *bench[Tx]) groups() bool {
	g, ok := b.h.Store.(grouper)
	return ok && g.Group() > 1
}

// side is how many transactions it has side by side.
func (b *bench[Tx]) side() int {
	if g, ok := b.h.Store.(grouper); ok {
		stats, _ := g.GroupStats()
		return max(1, stats.Side)
	}
	return 1
}

// groupCases are the cases of such a store.
func groupCases[Tx any]() []testCase[Tx] {
	all := []testCase[Tx]{
		{"all in one transaction", (*bench[Tx]).together},
		{"in a transaction in which another message fails", (*bench[Tx]).beside},
	}
	for _, at := range points {
		all = append(all, testCase[Tx]{fmt.Sprint("failure ", at, " in a transaction of several"),
			func(b *bench[Tx]) string { return b.failingAmong(at) }})
	}
	return all
}

// together delivers all messages at once.
func (b *bench[Tx]) together() string {
	outs, hidden := b.share(-1, 0, false)
	return b.judgeGroup("when all messages share a transaction", sharesTx, outs, hidden)
}

// beside delivers all messages at once, and a message behind them whose function fails.
func (b *bench[Tx]) beside() string {
	outs, hidden := b.share(-1, 0, true)
	return b.judgeGroup("when another message fails in the transaction that all share", reason{outsideTx, remembers}, outs,
		hidden)
}

// failingAmong delivers all messages at once, one of which fails.
func (b *bench[Tx]) failingAmong(at Point) string {
	failing := len(b.h.Messages) / 2
	what := fmt.Sprintf("when all messages share a transaction, and the store fails %v for message %d", at, failing)
	reason := reasonOf(at)
	if at != AfterCommit {
		reason.doubled = outsideTx // of the others, too
	}
	outs, hidden := b.share(failing, at, false)
	return b.judgeGroup(what, reason, outs, hidden)
}

func (b *bench[Tx]) judgeGroup(what string, why reason, outs []*consumertest.Outcome, hidden bool) string {
	b.t.Helper()
	last := len(b.h.Messages) - 1
	return b.judge(story{event: last, what: what, reason: why, hidden: hidden}, outs...)
}

// spared marks the context of messages that do not fail.
type spared struct{}

// share delivers all messages side by side, in one order, while the store is kept from beginning with one, so that they
// form a group. The one with that index fails once.
func (b *bench[Tx]) share(failing int, at Point, another bool) (outs []*consumertest.Outcome, hidden bool) {
	b.t.Helper()
	free := b.occupy()
	var come sync.WaitGroup
	come.Add(len(b.h.Messages))
	first := make([]sync.Once, len(b.h.Messages))
	b.store.onCall(nil)
	b.store.Fail(at, 1)
	var lane turn.Lane
	outs = make([]*consumertest.Outcome, len(b.h.Messages))
	var deliveries sync.WaitGroup
	for i, msg := range b.h.Messages {
		place := lane.Join()
		ctx := turn.With(context.WithValue(b.t.Context(), arrival{}, func() { first[i].Do(come.Done) }), place)
		if i != failing {
			ctx = context.WithValue(ctx, spared{}, true)
		}
		deliveries.Go(func() {
			defer place.Settle()
			defer first[i].Do(come.Done) // should it never call the store
			if i != failing {
				outs[i] = b.service.patient.Deliver(ctx, msg)
				return
			}
			if outs[i] = b.service.limited.Deliver(ctx, msg); outs[i].Err == nil {
				hidden = b.store.failed()
				return
			}
			outs[i] = b.service.patient.Deliver(ctx, msg) // to the next owner
		})
	}
	come.Wait()
	if another {
		place := lane.Join()
		deliveries.Go(func() {
			defer place.Settle()
			_, _ = b.h.Store.Once(turn.With(b.t.Context(), place), ownKey("another message"),
				func(context.Context, Tx) error { return ErrInjected })
		})
	}
	time.Sleep(settling) // until they wait in the store, which tells nobody; if one comes later, the group has one less
	free()
	deliveries.Wait()
	b.store.Fail(0, 1)
	for _, out := range outs {
		if out == nil {
			b.t.FailNow() // t.Fatal in the handler
		}
	}
	return outs, hidden
}

// arrival is the key of a function in a context that is called at the first call of the store.
type arrival struct{}

// settling is what lies between a call of the store and its waiting there, at most.
const settling = 20 * time.Millisecond

// occupy holds as many transactions as the store has side by side, until free is called: what comes meanwhile waits,
// and forms a group.
func (b *bench[Tx]) occupy() (free func()) {
	b.t.Helper()
	freed := make(chan struct{})
	var held, holding sync.WaitGroup
	for i := range b.side() {
		held.Add(1)
		holding.Go(func() {
			var once sync.Once
			defer once.Do(held.Done)
			_, _ = b.h.Store.Once(b.t.Context(), ownKey(fmt.Sprint("holds ", i)), func(context.Context, Tx) error {
				once.Do(held.Done)
				<-freed
				return ErrInjected
			})
		})
	}
	held.Wait()
	return func() {
		close(freed)
		holding.Wait()
	}
}

// ownKey is the key of a call that the suite makes itself. None of them is committed.
func ownKey(event string) dedupstore.Key {
	return dedupstore.Key{Consumer: "handlertest", Event: event}
}
