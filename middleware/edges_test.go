package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// ending is a handler that returns err and whose context is over when it does, for the cause.
func ending(t *testing.T, cause, err error) (context.Context, consumer.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		cancel(cause)
		return err
	})
}

// What a drain has cut short is no last word, whatever it looks like: neither a dead letter nor a hand-on is made of
// it.
func TestDrainHasNoLastWord(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]error{"permanent": consumer.Permanent(errBase),
		"gave up": &consumer.GaveUp{Attempts: 5, Err: errBase}} {
		ctx, h := ending(t, errBase, last)
		c, s := &cemetery{}, &store{}
		if err := middleware.DeadLetter(s, c, nil)(h).Handle(ctx, message()); !errors.Is(err, last) || len(c.dead) > 0 {
			t.Errorf("%s: %v, %d dead letters; want that it comes again", name, err, len(c.dead))
		}
	}
}

// A drain that begins while the last word is written has the message come again as it is, without a pause of its own.
func TestDrainDuringTheLastWord(t *testing.T) {
	t.Parallel()
	last := &consumer.GaveUp{Attempts: 5, Err: errBase}
	check := func(name string, chain func(*store) consumer.Handler) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &store{onRecord: func() error { cancel(); return dedupstore.ErrUnavailable }}
		err := chain(s).Handle(ctx, message())
		if _, delayed := consumer.Delay(err); delayed || !consumer.IsGaveUp(err) || len(s.charges) > 0 {
			t.Errorf("%s: %v, wrote %q; want what was given up", name, err, s.charges)
		}
	}
	check("DeadLetter", func(s *store) consumer.Handler {
		return middleware.DeadLetter(s, &cemetery{}, &middleware.DeadLetterConfig{Logger: quiet()})(returning(last))
	})
	check("HandOn", func(s *store) consumer.Handler { return handing(s, last, nil) })
}

// Only a key that the table refuses is a reason to take another one.
func TestDeadLetterKeepsItsKeyInAnOutage(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{
		"away":          dedupstore.ErrUnavailable,
		"unknown":       dedupstore.ErrOutcomeUnknown,
		"misconfigured": dedupstore.WithClass(dedupstore.Misconfigured, errBase),
		"unclassified":  errors.New("something else"),
	} {
		c := &cemetery{}
		s := &refusing{store: &store{}, event: "e1", err: fails}
		err := middleware.DeadLetter(s, c, &middleware.DeadLetterConfig{Logger: quiet()})(gaveUp(errBase)).Handle(t.Context(),
			message())
		if _, again := consumer.Delay(err); !again || len(c.dead) > 0 {
			t.Errorf("%s: %v, dead letters %+v; want none, and the message once more", name, err, c.dead)
		}
	}
}

// What overruns its time is handed on although the attempt's context is over.
func TestHandOnAfterTheProcessingLimit(t *testing.T) {
	t.Parallel()
	ctx, h := ending(t, consumer.ErrProcessingLimit, &consumer.GaveUp{Attempts: 5, Err: consumer.ErrProcessingLimit})
	s, msg := &store{}, message()
	link := middleware.HandOn(s, "1m", func(ctx context.Context, t *tx, _ *consumer.Message) error {
		t.writes = append(t.writes, "handed on")
		return ctx.Err()
	}, &middleware.HandOnConfig{Logger: quiet()})(h)
	if err := link.Handle(ctx, msg); err != nil || msg.Result.HandedOn == nil || len(s.charges) != 1 {
		t.Errorf("%v, %+v, wrote %q", err, msg.Result, s.charges)
	}
}

// failingStarts are starts that need a context, as a database does, and some of whose questions fail.
type failingStarts struct {
	*starts
	pending error
}

func (s failingStarts) End(ctx context.Context, key dedupstore.Key) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.starts.End(ctx, key)
}

func (s failingStarts) Pending(ctx context.Context, consumer string) (map[string]int, error) {
	if s.pending != nil {
		return nil, s.pending
	}
	return s.starts.Pending(ctx, consumer)
}

// An id that no key takes is counted under the place of the message.
func TestCrashLoopCountsWhatHasNoKey(t *testing.T) {
	t.Parallel()
	s, msg := &starts{}, message()
	msg.EventID = strings.Repeat("x", dedupstore.MaxEventLen+1)
	var during map[string]int
	h := assigned(t, middleware.CrashLoop(s, nil), consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		during, _ = s.now()
		return nil
	}), 1)
	if err := h.Handle(t.Context(), msg); err != nil || during[deadletter.Place(msg)] != 1 || len(during) != 1 {
		t.Errorf("%v, counted %v; want the place alone", err, during)
	}
}

// A count is taken back in a context that is over too: a message that was drained has ended no process.
func TestCrashLoopTakesBackInADrain(t *testing.T) {
	t.Parallel()
	s := &starts{}
	for range 5 {
		ctx, h := ending(t, errBase, errBase)
		if err := assigned(t, middleware.CrashLoop(failingStarts{starts: s}, nil), h, 1).Handle(ctx,
			message()); !errors.Is(err, errBase) || consumer.IsPermanent(err) {
			t.Fatal(err)
		}
		if counts, begun := s.now(); len(counts) > 0 || begun == 0 {
			t.Fatalf("%v is counted of %d begun, though the handler has returned", counts, begun)
		}
	}
}

// Without the counts of before nothing is handled: it might be what ended the process.
func TestCrashLoopWaitsForItsCounts(t *testing.T) {
	t.Parallel()
	called := false
	h := assigned(t, middleware.CrashLoop(failingStarts{&starts{}, dedupstore.ErrUnavailable}, nil),
		consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			called = true
			return nil
		}), 1)
	err := h.Handle(t.Context(), message())
	if _, again := consumer.Delay(err); !again || called || !errors.Is(err, dedupstore.ErrUnavailable) {
		t.Errorf("called %v, %v; want the message once more", called, err)
	}
}

// A step that was handed on is told of, also when other steps follow that were not.
func TestSequenceTellsOfHandOns(t *testing.T) {
	t.Parallel()
	mail := middleware.Step{Name: "mail",
		Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			msg.Result.HandedOn = errBase
			return nil
		})}
	msg := message()
	h := middleware.Sequence(mail, middleware.Step{Name: "ship", Handler: returning(nil)})
	if err := h.Handle(t.Context(), msg); err != nil || !errors.Is(msg.Result.HandedOn, errBase) {
		t.Errorf("%v, %+v", err, msg.Result)
	}
}

// The runner writes no line of a failure that Logging has one for, and one of those that it has not.
func TestLoggingSaysWhatItHasLogged(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		level slog.Level
		err   error
		want  bool
	}{{slog.LevelDebug, errBase, true}, {slog.LevelDebug, nil, false}, {slog.LevelError + 1, errBase, false}} {
		book, msg := &logbook{}, message()
		handled(t.Context(), middleware.Logging(book.logger(test.level), nil)(returning(test.err)), msg)
		if msg.Result.Logged != test.want {
			t.Errorf("level %v, error %v: Logged is %v", test.level, test.err, msg.Result.Logged)
		}
	}
}

// The pause after a failure grows with the failures, not with the attempts that were excused before.
func TestRetryPausesForgetExcuses(t *testing.T) {
	t.Parallel()
	const base = time.Second
	retry := middleware.Retry(5, &middleware.RetryConfig{Base: base, Max: time.Hour})
	var last error
	for attempt := range 10 {
		msg := message()
		msg.Attempt, msg.LastError = attempt+1, last
		last = retry(returning(dedupstore.ErrUnavailable)).Handle(t.Context(), msg)
	}
	for range 50 {
		msg := message()
		msg.Attempt, msg.LastError = 11, last
		if d, ok := consumer.Delay(retry(returning(errBase)).Handle(t.Context(), msg)); !ok || d > base {
			t.Fatalf("the pause after the first failure is %v, asked for %v; want at most %v", d, ok, base)
		}
	}
}
