package handlertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// books are the effects of handlers on a memstore.
type books struct {
	*memstore.Store
	charges []string
	sent    []string // outside of any transaction
	dials   atomic.Int32
}

// charge writes by tx.
func (b *books) charge(tx *memstore.Tx, msg *consumer.Message) {
	tx.OnCommit(func() { b.charges = append(b.charges, "charge "+string(msg.Value)) })
}

func (b *books) effects(context.Context) ([]string, error) {
	all := slices.Concat(b.charges, b.sent)
	if n := b.dials.Load(); n > 0 {
		all = append(all, fmt.Sprintf("dialled %d times", n))
	}
	return all, nil
}

type memHandler = consumer.TxHandler[*memstore.Tx]

// mem opens a harness on a memstore.
func mem(handler func(b *books) memHandler) func(testing.TB) Harness[*memstore.Tx] {
	return memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
		return middleware.Dedup(store, handler(b), nil)
	}, consumer.Topic{})
}

func memAround(handler func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler,
	topic consumer.Topic) func(testing.TB) Harness[*memstore.Tx] {
	return func(testing.TB) Harness[*memstore.Tx] {
		b := &books{Store: memstore.New()}
		return Harness[*memstore.Tx]{
			Store:    b.Store,
			Handler:  func(store dedupstore.Store[*memstore.Tx]) consumer.Handler { return handler(b, store) },
			Topic:    topic,
			Messages: messages(),
			Effects:  b.effects,
		}
	}
}

// messages are two events and one of them again.
func messages() []*consumer.Message {
	return []*consumer.Message{
		consumertest.Message("orders", "e1", []byte("o1 500")),
		consumertest.Message("refunds", "e2", []byte("o2 700")),
		consumertest.Message("orders", "e1", []byte("o1 500")),
	}
}

var everyCase = []string{
	"delivered twice", "all again after a restart", "two owners at once", "failure before the record",
	"failure after the record",
	"failure in the handler", "failure after the handler", "failure at COMMIT", "failure after COMMIT",
}

// wantFindings compares the cases that found something with those that must, and looks for words in each finding.
func wantFindings(t *testing.T, got map[string]string, words []string, in ...string) {
	t.Helper()
	if found := slices.Sorted(maps.Keys(got)); !slices.Equal(found, slices.Sorted(slices.Values(in))) {
		t.Errorf("findings in %q, want them in %q", found, in)
	}
	for name, text := range got {
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is missing in\n%s", name, word, text)
			}
		}
	}
	if t.Failed() {
		for name, text := range got {
			t.Logf("%s:\n%s", name, text)
		}
	}
}

func TestRightHandlers(t *testing.T) {
	t.Parallel()
	right := func(b *books) memHandler {
		return func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error { b.charge(tx, msg); return nil }
	}
	obeys := func(b *books) memHandler {
		return func(ctx context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			b.charge(tx, msg)
			return ctx.Err()
		}
	}
	// calls a service that knows keys, outside of tx
	keyed := func(b *books) memHandler {
		seen := map[dedupstore.Key]bool{}
		return func(ctx context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			if key, _ := dedupstore.KeyFrom(ctx); !seen[key] {
				seen[key] = true
				b.sent = append(b.sent, "sent "+key.Event)
			}
			b.charge(tx, msg)
			return nil
		}
	}
	for name, open := range map[string]func(testing.TB) Harness[*memstore.Tx]{"plain": mem(right),
		"obeys its context": mem(obeys), "calls with a key": mem(keyed)} {
		t.Run(name, func(t *testing.T) { // as users call it
			t.Parallel()
			Run(t, open)
		})
	}
	t.Run("Retry", func(t *testing.T) {
		t.Parallel()
		Run(t, memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
			return middleware.Dedup(store, right(b), nil)
		}, consumer.Topic{Consumer: "charges", Middleware: []consumer.Middleware{middleware.Retry(3, nil),
			middleware.Recover()}, OnFailure: consumer.Stop}))
	})
}

func TestCountsInAVariable(t *testing.T) {
	t.Parallel()
	got := findings(t, mem(func(b *books) memHandler {
		return func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			b.dials.Add(1)
			b.charge(tx, msg)
			return nil
		}
	}))
	wantFindings(t, got, []string{
		`message 0 (event "e1"), when the store fails `,
		"\tone delivery does not make \"dialled 2 times\"\n\tinstead of \"dialled 1 times\"\n",
		"something in it, or around Dedup, is not written by tx", "dedupstore.KeyFrom",
	}, "failure after the handler", "failure at COMMIT")
}

func TestWritesOutsideTheTransaction(t *testing.T) {
	t.Parallel()
	got := findings(t, mem(func(b *books) memHandler {
		return func(_ context.Context, _ *memstore.Tx, msg *consumer.Message) error {
			b.charges = append(b.charges, "charge "+string(msg.Value))
			return nil
		}
	}))
	wantFindings(t, got, []string{`message 0 (event "e1"), when the store fails `, `applied twice: "charge o1 500"`,
		"is not written by tx"},
		"failure after the handler", "failure at COMMIT")
}

func TestSwallowsErrors(t *testing.T) {
	t.Parallel()
	got := findings(t, mem(func(b *books) memHandler {
		return func(ctx context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			if ctx.Err() == nil { // a statement, say
				b.charge(tx, msg)
			}
			return nil
		}
	}))
	wantFindings(t, got, []string{`message 0 (event "e1"), when the store fails in the handler`, `lost: "charge o1 500"`,
		"it swallows an error"}, "failure in the handler")
}

func TestRemembersOutsideTheTransaction(t *testing.T) {
	t.Parallel()
	got := findings(t, mem(func(b *books) memHandler {
		seen := map[string]bool{}
		return func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			if !seen[msg.EventID] {
				seen[msg.EventID] = true
				b.charge(tx, msg)
			}
			return nil
		}
	}))
	wantFindings(t, got, []string{`lost: "charge o1 500"`, "something in it remembers the first run"},
		"failure after the handler", "failure at COMMIT")
}

// around is a handler that does something outside of Dedup.
func around(before func(b *books, msg *consumer.Message),
	after func(error) error) func(testing.TB) Harness[*memstore.Tx] {
	return memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
		next := middleware.Dedup(store,
			func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error { b.charge(tx, msg); return nil }, nil)
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			before(b, msg)
			return after(next.Handle(ctx, msg))
		})
	}, consumer.Topic{})
}

func TestActsAroundDedup(t *testing.T) {
	t.Parallel()
	got := findings(t, around(func(b *books, _ *consumer.Message) { b.dials.Add(1) },
		func(err error) error { return err }))
	wantFindings(t, got, []string{"dialled", "instead of", "around Dedup"},
		slices.DeleteFunc(slices.Clone(everyCase), func(name string) bool {
			return name == "failure in the handler" // it does not look at its context
		})...)
}

func TestHidesFailures(t *testing.T) {
	t.Parallel()
	got := findings(t, around(func(*books, *consumer.Message) {}, func(error) error { return nil }))
	wantFindings(t, got, []string{`lost: "charge o1 500"`, "the chain returned nil although the store had failed"},
		"failure before the record", "failure after the record", "failure after the handler", "failure at COMMIT")
}

// What a process remembers is gone after a restart.
func TestRemembersAroundDedup(t *testing.T) {
	t.Parallel()
	got := findings(t, memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
		next := middleware.Dedup(store,
			func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error { b.charge(tx, msg); return nil }, nil)
		var seen sync.Map
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if _, known := seen.LoadOrStore(msg.EventID, true); !known {
				b.dials.Add(1)
			}
			return next.Handle(ctx, msg)
		})
	}, consumer.Topic{}))
	wantFindings(t, got, []string{`message 0 (event "e1"), when all messages are delivered again after a restart`,
		`one delivery does not make "dialled 3 times"`},
		"all again after a restart")
}

// Who remembers in the wrong place loses what the store could not record.
func TestSkipsTheStore(t *testing.T) {
	t.Parallel()
	skipping := func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
		next := middleware.Dedup(store,
			func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error { b.charge(tx, msg); return nil }, nil)
		var seen sync.Map
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if _, known := seen.LoadOrStore(msg.EventID, true); known {
				return nil
			}
			return next.Handle(ctx, msg)
		})
	}
	got := findings(t, memAround(skipping, consumer.Topic{}))
	if text := got[""]; !strings.HasPrefix(text, "message 2 took effect without a call of the store") { // it is message 0 again
		t.Errorf("%q", text)
	}
	got = findings(t, func(t testing.TB) Harness[*memstore.Tx] {
		h := memAround(skipping, consumer.Topic{})(t)
		h.Messages = h.Messages[:2]
		return h
	})
	wantFindings(t, got, []string{`message 0 (event "e1"), when the store fails `, `lost: "charge o1 500"`, "remembers"},
		"failure before the record", "failure after the record", "failure after the handler", "failure at COMMIT")
}

func TestCannotBeCompared(t *testing.T) {
	t.Parallel()
	right := func(b *books) memHandler {
		return func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error { b.charge(tx, msg); return nil }
	}
	opened := 0
	for name, test := range map[string]struct {
		open func(testing.TB) Harness[*memstore.Tx]
		want string
	}{
		"no dedup": {memAround(func(b *books, _ dedupstore.Store[*memstore.Tx]) consumer.Handler {
			return consumer.HandlerFunc(func(context.Context, *consumer.Message) error { b.dials.Add(1); return nil })
		}, consumer.Topic{}), "took effect without a call of the store"},
		"another store": {memAround(func(b *books, _ dedupstore.Store[*memstore.Tx]) consumer.Handler {
			return middleware.Dedup(b.Store, right(b), nil)
		}, consumer.Topic{}), "took effect without a call of the store"},
		"random id": {memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
			return middleware.Dedup(store, right(b), nil)
		}, consumer.Topic{EventID: func(*consumer.Message) (string, error) { return fmt.Sprint(rand.Uint64()), nil }}),
			"let Topic.EventID return the event's own id"},
		"random effect": {mem(func(b *books) memHandler {
			return func(_ context.Context, tx *memstore.Tx, _ *consumer.Message) error {
				tx.OnCommit(func() { b.charges = append(b.charges, fmt.Sprint(rand.Uint64())) })
				return nil
			}
		}), "let Effects leave out what differs from run to run"},
		"fails anyway": {mem(func(*books) memHandler {
			return func(context.Context, *memstore.Tx, *consumer.Message) error { return errors.New("no stock") }
		}), "message 0 does not succeed in its first attempt, although nothing fails:\nattempt 1: no stock"},
		"fails at first": {mem(func(b *books) memHandler {
			return func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
				b.charge(tx, msg)
				if msg.Attempt == 1 {
					return errors.New("no stock")
				}
				return nil
			}
		}), "message 0 does not succeed in its first attempt, although nothing fails:\nattempt 1: no stock; again"},
		"not emptied": {func(t testing.TB) Harness[*memstore.Tx] {
			opened++
			h := mem(right)(t)
			effects := h.Effects
			h.Effects = func(ctx context.Context) ([]string, error) {
				all, err := effects(ctx)
				return append(all, fmt.Sprint("opened ", opened)), err
			}
			return h
		}, "let open empty the database"},
		"no effects": {func(t testing.TB) Harness[*memstore.Tx] {
			h := mem(right)(t)
			h.Effects, h.Messages = nil, nil
			return h
		},
			"Harness.Messages is missing: the suite cannot do without it\nhandlertest: Harness.Effects is missing"},
		"effects fail": {func(t testing.TB) Harness[*memstore.Tx] {
			h := mem(right)(t)
			h.Effects = func(context.Context) ([]string, error) { return nil, errors.New("connection refused") }
			return h
		}, "Harness.Effects: connection refused"},
	} {
		got := findings(t, test.open)
		if len(got) != 1 || !strings.Contains(got[""], test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A Sequence fails at each step of each of its calls; a step that is not safe is found in its own.
func TestSequence(t *testing.T) {
	t.Parallel()
	steps := func(second func(b *books, tx *memstore.Tx, msg *consumer.Message)) func(testing.TB) Harness[*memstore.Tx] {
		return memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
			return middleware.Sequence(
				middleware.Step{Name: "charge",
					Handler: middleware.Dedup(store, func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
						b.charge(tx, msg)
						return nil
					}, nil)},
				middleware.Step{Name: "mail", Handler: middleware.Dedup(store,
					func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
						second(b, tx, msg)
						return nil
					}, nil)},
			)
		}, consumer.Topic{})
	}
	mail := func(b *books, msg *consumer.Message) { b.sent = append(b.sent, "mail "+string(msg.Value)) }
	if got := findings(t, steps(func(b *books, tx *memstore.Tx, msg *consumer.Message) {
		tx.OnCommit(func() {
			mail(b,
				msg)
		})
	})); len(got) > 0 {
		t.Errorf("a right one: %q", got)
	}
	got := findings(t, steps(func(b *books, _ *memstore.Tx, msg *consumer.Message) { mail(b, msg) }))
	wantFindings(t, got, []string{`applied twice: "mail o1 500"`, "is not written by tx"},
		"failure after the handler, call 2 of the store", "failure at COMMIT, call 2 of the store")
}

func TestFatalInTheHandlerEndsTheCase(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "two owners at once"} {
		got := findings(t, func(t testing.TB) Harness[*memstore.Tx] {
			return memAround(func(b *books, store dedupstore.Store[*memstore.Tx]) consumer.Handler {
				return middleware.Dedup(store, func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
					b.charge(tx, msg)
					if in == "" || store.(*Store[*memstore.Tx]).meets() {
						t.Fatal("called by the handler")
					}
					return nil
				}, nil)
			}, consumer.Topic{})(t)
		})
		if len(got) != 1 || !strings.HasPrefix(got[in], "called by the handler") {
			t.Errorf("%q", got)
		}
	}
}
