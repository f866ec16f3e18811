package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// cemetery keeps dead letters in memory.
type cemetery struct {
	mu    sync.Mutex
	dead  []*deadletter.Record
	fails error
}

func (c *cemetery) Write(_ context.Context, t *tx, rec *deadletter.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return c.fails
	}
	c.dead = append(c.dead, rec)
	t.writes = append(t.writes, "dead "+rec.Event)
	return nil
}

// gaveUp is a handler that has given up for err.
func gaveUp(err error) consumer.Handler { return returning(&consumer.GaveUp{Attempts: 5, Err: err}) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestDeadLetterTakesWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	panicked := &consumer.Panic{Value: "boom"}
	for name, test := range map[string]struct {
		err  error
		kind deadletter.Kind // "" if it passes
	}{
		"gave up":          {&consumer.GaveUp{Attempts: 5, Err: errBase}, deadletter.KindGaveUp},
		"permanent":        {consumer.Permanent(errBase), deadletter.KindPermanent},
		"panic":            {&consumer.GaveUp{Attempts: 5, Err: panicked}, deadletter.KindPanicked},
		"timeout":          {&consumer.GaveUp{Attempts: 5, Err: middleware.ErrTimeout}, deadletter.KindTimedOut},
		"processing limit": {&consumer.GaveUp{Attempts: 5, Err: consumer.ErrProcessingLimit}, deadletter.KindTimedOut},
		"tombstone": {consumer.Permanent(&consumer.DecodeError{Err: consumer.ErrTombstone}),
			deadletter.KindUndecodable},
		"too old":              {consumer.Permanent(middleware.ErrTooOld), deadletter.KindTooOld},
		"no id":                {consumer.Permanent(consumer.ErrNoEventID), deadletter.KindNoEventID},
		"invalid id":           {consumer.Permanent(dedupstore.ErrInvalidKey), deadletter.KindNoEventID},
		"invalid, tried again": {&consumer.GaveUp{Attempts: 5, Err: dedupstore.ErrInvalidKey}, deadletter.KindGaveUp}, // a key of the handler's own
		"crash loop":           {consumer.Permanent(middleware.ErrCrashLoop), deadletter.KindCrashLoop},
		"plain error":          {errBase, ""},
		"another attempt":      {consumer.RetryAfter(time.Second, consumer.Permanent(errBase)), ""},
		"success":              {nil, ""},
		"panic, not given up":  {panicked, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s, msg := &cemetery{}, &store{}, message()
			err := middleware.DeadLetter(s, c, nil)(returning(test.err)).Handle(t.Context(), msg)
			if test.kind == "" {
				if !errors.Is(err, test.err) || len(c.dead) > 0 || msg.Result.Dead {
					t.Errorf("%v, %d dead letters, %+v; want that it passes", err, len(c.dead), msg.Result)
				}
				return
			}
			if err != nil || len(c.dead) != 1 || !msg.Result.Dead || !errors.Is(msg.Result.DeadErr, test.err) ||
				msg.Result.Duplicate {
				t.Fatalf("%v, %d dead letters, %+v", err, len(c.dead), msg.Result)
			}
			if rec := c.dead[0]; rec.Kind != test.kind || rec.Event != "e1" || rec.Consumer != "billing/orders" ||
				rec.Offset != 42 || rec.ErrorType == "" || rec.Error == "" {
				t.Errorf("%+v, want the kind %s", rec, test.kind)
			}
			// Its kind may be excepted.
			except := &middleware.DeadLetterConfig{Except: []deadletter.Kind{test.kind}}
			if err := middleware.DeadLetter(s, c, except)(returning(test.err)).Handle(t.Context(), message()); !errors.Is(err,
				test.err) || len(c.dead) != 1 {
				t.Errorf("excepted: %v, %d dead letters", err, len(c.dead))
			}
		})
	}
}

// The record says whether the effect is there: then nothing is written.
func TestDeadLetterOfADuplicate(t *testing.T) {
	t.Parallel()
	c, s := &cemetery{}, &store{}
	h := middleware.DeadLetter(s, c, nil)(gaveUp(errBase))
	for delivery, want := range []consumer.Result{{Dead: true}, {Duplicate: true}} {
		msg := message()
		if err := h.Handle(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
		if msg.Result.Dead != want.Dead || msg.Result.Duplicate != want.Duplicate || msg.Result.End.IsZero() {
			t.Errorf("delivery %d: %+v", delivery, msg.Result)
		}
	}
	if len(c.dead) != 1 || len(s.charges) != 1 {
		t.Errorf("%d dead letters", len(c.dead))
	}
}

// Where the id cannot be recorded, the place is the key; and where the handler has ended the transaction, whose record
// may be there.
func TestDeadLetterKeys(t *testing.T) {
	t.Parallel()
	id := consumer.TopicID{7}
	place := "einmal:place:" + id.String() + "/3/42"
	for name, test := range map[string]struct {
		edit  func(*consumer.Message)
		err   error
		event string
	}{
		"id": {func(*consumer.Message) {}, errBase, "e1"},
		"no id": {func(m *consumer.Message) { m.EventID, m.EventIDErr = "", consumer.ErrNoEventID },
			consumer.ErrNoEventID, place},
		"id and error": {func(m *consumer.Message) { m.EventIDErr = consumer.ErrNoEventID }, consumer.ErrNoEventID,
			place},
		"empty id": {func(m *consumer.Message) { m.EventID = "" }, errBase, place},
		"id too long": {func(m *consumer.Message) { m.EventID = strings.Repeat("x", 2000) }, dedupstore.ErrInvalidKey,
			place},
		"ended":            {func(*consumer.Message) {}, dedupstore.ErrTxEnded, place},
		"too old to store": {func(m *consumer.Message) { m.EventID = "old" }, middleware.ErrTooOld, place},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, msg := &cemetery{}, message()
			msg.TopicID = id
			test.edit(msg)
			s := &refusing{store: &store{}, event: "old", err: dedupstore.ErrTooOld}
			err := middleware.DeadLetter(s, c, nil)(returning(consumer.Permanent(test.err))).Handle(t.Context(), msg)
			if err != nil || len(c.dead) != 1 || c.dead[0].Event != test.event {
				t.Errorf("%v, %d dead letters: %+v; want the key %q", err, len(c.dead), c.dead, test.event)
			}
		})
	}
}

// refusing refuses one event.
type refusing struct {
	*store
	event string
	err   error
}

func (s *refusing) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *tx) error) (bool, error) {
	if key.Event == s.event {
		return false, s.err
	}
	return s.store.Once(ctx, key, fn)
}

// What cannot be written stays, for as long as it takes, and says why in the log, now and then.
func TestDeadLetterCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*store, *cemetery){
		"no database":     func(s *store, _ *cemetery) { s.onRecord = func() error { return dedupstore.ErrUnavailable } },
		"unknown outcome": func(s *store, _ *cemetery) { s.onCommit = func() error { return dedupstore.ErrOutcomeUnknown } },
		"no table":        func(_ *store, c *cemetery) { c.fails = dedupstore.WithClass(dedupstore.Misconfigured, errBase) },
		"too large":       func(_ *store, c *cemetery) { c.fails = deadletter.ErrTooLarge },
		"permanently":     func(s *store, _ *cemetery) { s.onRecord = func() error { return dedupstore.ErrInvalidKey } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, s, log := &cemetery{}, &store{}, &strings.Builder{}
				harm(s, c)
				h := middleware.DeadLetter(s, c,
					&middleware.DeadLetterConfig{Logger: slog.New(slog.NewTextHandler(log, nil))})(gaveUp(errBase))
				msg, last := message(), time.Duration(0)
				for attempt := range 20 {
					err := h.Handle(t.Context(), msg)
					delay, ok := consumer.Delay(err)
					if !ok || delay < min(time.Minute, time.Second<<min(attempt, 6))/2 || delay > time.Minute || msg.Result.Dead ||
						!errors.Is(err, errBase) {
						t.Fatalf("attempt %d: %v after %v, %v", attempt, delay, last, err)
					}
					last = delay
					time.Sleep(delay)
					msg = message()
					msg.LastError = err
				}
				if lines := strings.Count(log.String(), "\n"); lines < 2 || lines > 20 {
					t.Errorf("%d lines in the log:\n%s", lines, log)
				}
				s.onRecord, s.onCommit, c.fails, c.dead = nil, nil, nil, nil
				if err := h.Handle(t.Context(), msg); err != nil || len(c.dead) != 1 {
					t.Errorf("afterwards: %v, %d dead letters", err, len(c.dead))
				}
			})
		})
	}
}

// Every message fails, for ten minutes: so many dead letters, and no more, each message once, few lines in the log.
func TestDeadLetterStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, log := &cemetery{}, &strings.Builder{}
		h := middleware.DeadLetter(&store{}, c,
			&middleware.DeadLetterConfig{Logger: slog.New(slog.NewTextHandler(log, nil))})(gaveUp(errBase))
		const lanes, minutes = 100, 10
		begin, attempts := time.Now(), 0
		var all sync.WaitGroup
		var mu sync.Mutex
		for lane := range lanes { // as partitions, or keys, have the messages behind one wait for it
			all.Go(func() {
				var last error
				for offset := int64(0); time.Since(begin) < minutes*time.Minute; {
					msg := message()
					msg.EventID, msg.Offset, msg.LastError = fmt.Sprint(lane, " ", offset), offset, last
					last = h.Handle(t.Context(), msg)
					mu.Lock()
					attempts++
					mu.Unlock()
					if last == nil {
						offset++
						continue
					}
					delay, ok := consumer.Delay(last)
					if !ok || delay > time.Minute {
						t.Errorf("%v, %v", delay, last)
						return
					}
					time.Sleep(delay)
				}
			})
		}
		all.Wait()
		const most = 100 + 10*60*minutes
		if n := len(c.dead); n > most+lanes || n < most-lanes {
			t.Errorf("%d dead letters in %d minutes, want about %d", n, minutes, most)
		}
		if attempts > 2*len(c.dead)+2*lanes {
			t.Errorf("%d attempts for %d dead letters: a message that waits is to run once more, when it is its turn", attempts,
				len(c.dead))
		}
		seen := map[string]bool{}
		for _, rec := range c.dead {
			if seen[rec.Event] {
				t.Errorf("%s is dead twice", rec.Event)
			}
			seen[rec.Event] = true
		}
		if lines := strings.Count(log.String(), "\n"); lines < minutes/2 || lines > minutes+1 {
			t.Errorf("%d lines in the log", lines)
		}
	})
}

// A drain is no failure, and the processing limit is one, whose dead letter is written although the attempt's context
// is done.
func TestDeadLetterWhenTheContextIsDone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cause error
		dead  int
	}{"drain": {errBase, 0}, "processing limit": {consumer.ErrProcessingLimit, 1}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		h := consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
			cancel(test.cause)
			return context.Cause(ctx)
		})
		c := &cemetery{}
		chain := compose(h, middleware.DeadLetter(&store{}, c, nil), middleware.Retry(1, nil))
		err := chain.Handle(ctx, message())
		if len(c.dead) != test.dead || (err == nil) != (test.dead == 1) {
			t.Errorf("%s: %v, %d dead letters", name, err, len(c.dead))
		}
		if test.dead > 0 && c.dead[0].Kind != deadletter.KindTimedOut {
			t.Errorf("%+v", c.dead[0])
		}
	}
}

func TestDeadLetterKnowsTheTrace(t *testing.T) {
	t.Parallel()
	c := &cemetery{}
	ctx := trace.ContextWithSpanContext(t.Context(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	if err := middleware.DeadLetter(&store{}, c, nil)(gaveUp(errBase)).Handle(ctx, message()); err != nil ||
		c.dead[0].TraceID != "01000000000000000000000000000000" {
		t.Errorf("%v, %+v", err, c.dead)
	}
}

// Texts are bounded, masked, and what the user makes of them.
func TestDeadLetterErrorText(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("long ", 1000) + "\x00")
	for want, test := range map[string]struct {
		err error
		cfg *middleware.DeadLetterConfig
	}{
		"refused ***": {errors.New("refused s3cret-value"), nil},
		"mine\xff":    {errBase, &middleware.DeadLetterConfig{ErrorText: func(error, *consumer.Message) string { return "mine?" }}},
	} {
		c := &cemetery{}
		if err := middleware.DeadLetter(&store{}, c, test.cfg)(returning(consumer.Permanent(test.err))).Handle(t.Context(),
			message()); err != nil {
			t.Fatal(err)
		}
		if got := c.dead[0].Error; got != strings.ReplaceAll(want, "\xff", "?") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := &cemetery{}
	cfg := &middleware.DeadLetterConfig{ErrorText: func(err error, _ *consumer.Message) string { return err.Error() }}
	if err := middleware.DeadLetter(&store{}, c, cfg)(returning(consumer.Permanent(long))).Handle(t.Context(),
		message()); err != nil {
		t.Fatal(err)
	}
	if got := c.dead[0].Error; len(got) != deadletter.MaxText || strings.Contains(got, "\x00") {
		t.Errorf("%d bytes", len(got))
	}
}

// A dead letter that must hold nothing of the message says where it stands, and why it died.
func TestDeadLetterWithoutMessage(t *testing.T) {
	t.Parallel()
	c := &cemetery{}
	err := middleware.DeadLetter(&store{}, c,
		&middleware.DeadLetterConfig{WithoutMessage: true})(returning(consumer.Permanent(errBase))).Handle(t.Context(),
		message())
	if err != nil {
		t.Fatal(err)
	}
	want := message()
	rec := c.dead[0]
	if rec.Key != nil || rec.Value != nil || rec.Headers != nil || !rec.LeftOut || rec.Size == 0 ||
		rec.Offset != want.Offset || rec.Event != want.EventID || rec.Error == "" {
		t.Errorf("%+v", rec)
	}
}

func TestDeadLetterChecks(t *testing.T) {
	t.Parallel()
	says := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for want, h := range map[string]consumer.Handler{
		"the store is nil": middleware.DeadLetter(nil, deadletter.Writer[*tx](&cemetery{}), nil)(returning(nil)),
		"the table is nil": middleware.DeadLetter[*tx](&store{}, nil, nil)(returning(nil)),
		`"no id", which is no`: middleware.DeadLetter(&store{}, &cemetery{},
			&middleware.DeadLetterConfig{Except: []deadletter.Kind{"no id"}})(returning(nil)),
		"no table processed_event": middleware.DeadLetter(checkingStore{&store{check: says(errors.New("no table processed_event"))}}, &cemetery{}, nil)(returning(nil)),
	} {
		if err := check(t, h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	away := middleware.DeadLetter(checkingStore{&store{check: says(dedupstore.ErrUnavailable)}}, &cemetery{},
		nil)(returning(nil))
	if _, again := consumer.Delay(check(t, away)); !again {
		t.Error("a database that does not answer is not asked again")
	}
	if err := check(t, middleware.DeadLetter(&store{}, &cemetery{}, nil)(returning(nil))); err != nil {
		t.Error(err)
	}
}

// txChecking is a writer that tells in a transaction whether it works.
type txChecking struct {
	cemetery
	says error
}

func (w *txChecking) CheckTx(context.Context, *tx) error { return w.says }

// transacting is a store that is a dedupstore.Transactor.
type transacting struct {
	*store
	rolledBack int
}

func (s *transacting) InTx(ctx context.Context, fn func(ctx context.Context, tx *tx) error) error {
	err := fn(ctx, &tx{})
	if err != nil {
		s.rolledBack++
	}
	return err
}

// A writer that can tell is asked at the start, in a transaction that is rolled back, and again while the database does
// not answer.
func TestDeadLetterChecksInATransaction(t *testing.T) {
	t.Parallel()
	missing := errors.New("no table outbox_event")
	for _, tc := range []struct {
		says  error
		again bool
	}{{nil, false}, {missing, false}, {dedupstore.WithClass(dedupstore.Unavailable, missing), true},
		{dedupstore.ErrUnavailable, true}} {
		s := &transacting{store: &store{}}
		err := check(t, middleware.DeadLetter[*tx](s, &txChecking{says: tc.says}, nil)(returning(nil)))
		if _, again := consumer.Delay(err); again != tc.again || !errors.Is(err, tc.says) || s.rolledBack != 1 {
			t.Errorf("%v: %v, asked again %v, rolled back %d times", tc.says, err, again, s.rolledBack)
		}
		if err := check(t, middleware.DeadLetter[*tx](&store{}, &txChecking{says: tc.says},
			nil)(returning(nil))); err != nil {
			t.Errorf("a store without transactions of its own: %v", err)
		}
	}
}

// A producer may set any id, that of a place too: a message without an id has its dead letter all the same.
func TestDeadLetterWithoutIDCannotBeForestalled(t *testing.T) {
	t.Parallel()
	id := consumer.TopicID{1}
	victim := message()
	victim.TopicID, victim.Timestamp, victim.EventID, victim.EventIDErr = id, time.Now(), "", consumer.ErrNoEventID
	asUUID, _ := deadletter.PlaceUUID(victim)
	for _, forged := range []string{id.String() + "/3/42", deadletter.Place(victim), asUUID, strings.ToUpper(asUUID)} {
		c, s := &cemetery{}, &store{}
		h := middleware.DeadLetter(s, c, nil)(middleware.Dedup(s, noop, nil))
		first, again := message(), *victim
		first.TopicID, first.Offset, first.EventID = id, 7, forged
		if err := errors.Join(h.Handle(t.Context(), first), h.Handle(t.Context(), &again)); err != nil ||
			!again.Result.Dead || again.Result.Duplicate {
			t.Errorf("after an event with the id %q: %v, %+v, want a dead letter", forged, err, again.Result)
		}
	}
}
