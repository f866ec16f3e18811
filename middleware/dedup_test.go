package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

func noop(context.Context, *tx, *consumer.Message) error { return nil }

func TestDedupRunsOncePerKey(t *testing.T) {
	t.Parallel()
	s := &store{}
	h := middleware.Dedup(s, func(ctx context.Context, tx *tx, msg *consumer.Message) error {
		key, _ := dedupstore.KeyFrom(ctx)
		tx.writes = append(tx.writes, key.String()+" "+string(msg.Value))
		return nil
	}, nil)
	for _, step := range []struct {
		consumer, event string
		duplicate       bool
	}{
		{"billing/orders", "e1", false},
		{"billing/orders", "e1", true},
		{"mail/orders", "e1", false},
		{"billing/orders", "e2", false},
		{"mail/orders", "e1", true},
	} {
		msg := message()
		msg.Consumer, msg.EventID = step.consumer, step.event
		if err := h.Handle(t.Context(), msg); err != nil || msg.Result.Duplicate != step.duplicate {
			t.Errorf("%v: err %v, duplicate %v", step, err, msg.Result.Duplicate)
		}
	}
	want := []string{`billing/orders "e1" s3cret-value`, `mail/orders "e1" s3cret-value`,
		`billing/orders "e2" s3cret-value`}
	if fmt.Sprint(s.charges) != fmt.Sprint(want) {
		t.Errorf("committed %q, want %q", s.charges, want)
	}
}

func TestDedupRefusesWithoutTheStore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*consumer.Message)
		want   error
	}{
		{"no id", func(m *consumer.Message) { m.EventID, m.EventIDErr = "", errBase }, errBase},
		{"an id and an error", func(m *consumer.Message) { m.EventIDErr = errBase }, errBase},
		{"an error that asks for a retry",
			func(m *consumer.Message) { m.EventIDErr = consumer.RetryAfter(time.Second, errBase) }, errBase},
		{"empty id", func(m *consumer.Message) { m.EventID = "" }, consumer.ErrNoEventID},
		{"a place", func(m *consumer.Message) { m.EventID = "einmal:place:AQAAAAAAAAAAAAAAAAAAAA/0/123" },
			dedupstore.ErrInvalidKey},
	} {
		s := &store{onRecord: func() error { t.Errorf("%s: reached the store", test.name); return nil }}
		msg := message()
		test.change(msg)
		err := middleware.Dedup(s, noop, &middleware.DedupConfig{Window: time.Hour}).Handle(t.Context(), msg)
		if !consumer.IsPermanent(err) || !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want a permanent error that wraps %v", test.name, err, test.want)
		}
		if msg.Result != (consumer.Result{}) {
			t.Errorf("%s: result %+v of a step that was not reached", test.name, msg.Result)
		}
	}
}

// An event that is older than the window is refused, unless it is recorded: then it is a duplicate.
func TestDedupWindow(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]time.Time{"too old": time.Now().Add(-time.Hour - time.Minute),
		"from 1970": time.UnixMilli(0)} {
		s := &store{}
		h := middleware.Dedup(s, func(_ context.Context, tx *tx, _ *consumer.Message) error {
			tx.writes = append(tx.writes, "effect")
			return nil
		}, &middleware.DedupConfig{Window: time.Hour})
		old, young := message(), message()
		old.Timestamp = at
		for range 2 {
			if err := h.Handle(t.Context(), old); !consumer.IsPermanent(err) || !errors.Is(err, middleware.ErrTooOld) ||
				old.Result.Duplicate || !old.Result.HandlerStart.IsZero() {
				t.Errorf("%s: %v, %+v, want a permanent ErrTooOld, and no handler", name, err, old.Result)
			}
		}
		if err := h.Handle(t.Context(), young); err != nil || young.Result.Duplicate {
			t.Errorf("%s: the event in its time: %v, %+v", name, err, young.Result)
		}
		old.Result = consumer.Result{}
		if err := h.Handle(t.Context(), old); err != nil || !old.Result.Duplicate {
			t.Errorf("%s: the event again, too late: %v, %+v, want a duplicate", name, err, old.Result)
		}
		if len(s.charges) != 1 {
			t.Errorf("%s: %d effects", name, len(s.charges))
		}
	}
}

func TestDedupWindowLetsPass(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		window    time.Duration
		timestamp time.Time
	}{
		"inside":          {time.Hour, now.Add(-59 * time.Minute)},
		"from the future": {time.Hour, now.Add(59 * time.Minute)},
		"no timestamp":    {time.Hour, time.Time{}},
		"no window":       {0, time.UnixMilli(0)},
	} {
		msg := message()
		msg.Timestamp = test.timestamp
		h := middleware.Dedup(&store{}, noop, &middleware.DedupConfig{Window: test.window})
		if err := h.Handle(t.Context(), msg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w := h.(interface{ Window() time.Duration }).Window(); w != test.window {
			t.Errorf("%s: Window() = %v, want %v", name, w, test.window)
		}
	}
}

func TestDedupErrors(t *testing.T) {
	t.Parallel()
	invalidKey := dedupstore.Key{}.Validate()
	fails := func(err error) func() error { return func() error { return err } }
	for _, test := range []struct {
		name      string
		store     *store
		handler   error
		id        string
		want      error
		permanent bool
	}{
		{name: "handler", handler: errBase, want: errBase},
		{name: "handler, permanent", handler: consumer.Permanent(errBase), want: errBase, permanent: true},
		{name: "handler, retry after", handler: consumer.RetryAfter(time.Second, errBase), want: errBase},
		{name: "handler, about another key", handler: invalidKey, want: dedupstore.ErrInvalidKey},
		{name: "record", store: &store{onRecord: fails(errBase)}, want: errBase},
		{name: "invalid key", id: strings.Repeat("x", 1<<20), want: dedupstore.ErrInvalidKey, permanent: true},
		{name: "unknown outcome", store: &store{onCommit: fails(dedupstore.ErrOutcomeUnknown)},
			want: dedupstore.ErrOutcomeUnknown},
		{name: "ended transaction", store: &store{onCommit: fails(dedupstore.ErrTxEnded)}, want: dedupstore.ErrTxEnded,
			permanent: true},
	} {
		s := test.store
		if s == nil {
			s = &store{}
		}
		msg := message()
		if test.id != "" {
			msg.EventID = test.id
		}
		err := middleware.Dedup(s, func(context.Context, *tx, *consumer.Message) error { return test.handler },
			nil).Handle(t.Context(), msg)
		if !errors.Is(err, test.want) || consumer.IsPermanent(err) != test.permanent {
			t.Errorf("%s: got %v, permanent %v; want %v, permanent %v", test.name, err, consumer.IsPermanent(err), test.want,
				test.permanent)
		}
		if msg.Result.Duplicate || len(err.Error()) > 300 {
			t.Errorf("%s: duplicate %v, error of %d bytes", test.name, msg.Result.Duplicate, len(err.Error()))
		}
	}
}

func TestDedupDoesNotCommitUnderADoneContext(t *testing.T) {
	t.Parallel()
	s := &store{}
	ctx, cancel := context.WithCancel(t.Context())
	h := middleware.Dedup(s, func(_ context.Context, tx *tx, _ *consumer.Message) error {
		cancel()
		tx.writes = append(tx.writes, "charged")
		return nil
	}, nil)
	if err := h.Handle(ctx, message()); !errors.Is(err, context.Canceled) || len(s.charges) > 0 {
		t.Errorf("err %v, committed %v; want nothing committed", err, s.charges)
	}
}

func TestDedupKeepsTheTimesOfTheSteps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		handler func() error
	}{
		{"success", func() error { return nil }},
		{"error", func() error { return errBase }},
		{"panic", func() error { panic("boom") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			wait := func() error { time.Sleep(time.Second); return nil }
			s := &store{onRecord: wait, onCommit: wait}
			msg := message()
			start := time.Now()
			func() {
				defer func() { _ = recover() }()
				_ = middleware.Dedup(s, func(context.Context, *tx, *consumer.Message) error {
					time.Sleep(2 * time.Second)
					return test.handler()
				}, nil).Handle(t.Context(), msg)
			}()
			res := msg.Result
			if !res.Begin.Equal(start) || res.HandlerStart.Sub(start) != time.Second ||
				res.HandlerEnd.Sub(start) != 3*time.Second || !res.End.Equal(time.Now()) {
				t.Errorf("%s: %+v, started %v, now %v", test.name, res, start, time.Now())
			}
		})
	}
}

func TestDedupDuplicateHasNoHandlerTimes(t *testing.T) {
	t.Parallel()
	h := middleware.Dedup[*tx](lateDuplicate{}, noop, nil)
	msg := message()
	if err := h.Handle(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	if res := msg.Result; !res.Duplicate || !res.HandlerStart.IsZero() || !res.HandlerEnd.IsZero() || res.Begin.IsZero() ||
		res.End.IsZero() {
		t.Errorf("got %+v", res)
	}
}

// lateDuplicate runs the function, rolls back, and then finds that another process was faster.
type lateDuplicate struct{}

func (lateDuplicate) Once(ctx context.Context, _ dedupstore.Key, fn func(context.Context, *tx) error) (bool, error) {
	return false, fn(ctx, &tx{})
}

// checkedStore remembers for which consumer it was checked.
type checkedStore struct {
	*store
	of string
}

func (s *checkedStore) Check(ctx context.Context) error {
	key, _ := dedupstore.KeyFrom(ctx)
	s.of = key.Consumer
	return nil
}

// A store is checked for the consumer of the topic: its table may have places for no other one.
func TestCheckIsForTheTopicsConsumer(t *testing.T) {
	t.Parallel()
	s := &checkedStore{store: &store{}}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"127.0.0.1:1"}, Group: "g",
		Topics: map[string]consumer.Topic{"t": {Consumer: "billing", Handler: middleware.Dedup(s, noop, nil)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context()); err != nil || s.of != "billing" {
		t.Errorf("checked for %q, %v", s.of, err)
	}
}

func TestDedupCheck(t *testing.T) {
	t.Parallel()
	missing := errors.New("table processed_event is missing: run the SQL of package schema")
	checking := checkingStore{&store{check: func(context.Context) error { return missing }}}
	for _, test := range []struct {
		name string
		h    consumer.Handler
		want []string // parts of the error; none for no error
	}{
		{"good", middleware.Dedup(&store{}, noop, &middleware.DedupConfig{Window: time.Hour}), nil},
		{"store that checks", middleware.Dedup[*tx](checking, noop, nil), []string{missing.Error()}},
		{"nil store", middleware.Dedup(nil, noop, nil), []string{"the store is nil"}},
		{"nil handler", middleware.Dedup(&store{}, nil, nil), []string{"the handler is nil"}},
		{"handler of a nil function", middleware.Dedup(&store{}, consumer.JSONTx[*tx, int](nil), nil),
			[]string{"the handler is nil"}},
		{"all at once", middleware.Dedup[*tx](nil, nil, &middleware.DedupConfig{Window: -1}),
			[]string{"the store is nil", "the handler is nil", "Window is -1ns"}},
	} {
		err := check(t, test.h)
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%s: Check says %v", test.name, err)
		}
		for _, part := range test.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: Check says %q, not %q", test.name, err, part)
			}
		}
		if err := test.h.Handle(t.Context(), message()); consumer.IsPermanent(err) ||
			(err != nil) != (len(test.want) > 0 && test.name != "store that checks") {
			t.Errorf("%s: Handle says %v, permanent %v; a configuration error is no reason to give a message up", test.name, err,
				consumer.IsPermanent(err))
		}
	}
}

func TestDedupIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := &store{}
	h := middleware.Dedup(s, func(_ context.Context, tx *tx, msg *consumer.Message) error {
		tx.writes = append(tx.writes, msg.EventID)
		return nil
	}, &middleware.DedupConfig{Window: time.Hour})
	done := make(chan error)
	const workers, events = 8, 50
	for range workers {
		go func() {
			var err error
			for i := range events {
				msg := message()
				msg.EventID = fmt.Sprint(i)
				err = errors.Join(err, h.Handle(t.Context(), msg))
			}
			done <- err
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if len(s.charges) != events {
		t.Errorf("%d effects of %d events", len(s.charges), events)
	}
}
