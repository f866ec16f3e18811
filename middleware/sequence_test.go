package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// effects is a store in memory and the effects that steps have on it.
type effects struct {
	*memstore.Store
	committed []string
	seen      []consumer.Message // by a step's function, as they came
}

func newEffects() *effects { return &effects{Store: memstore.New()} }

// step is a Step whose function fails with what fail returns for its attempt, and else has the step's name as its
// effect.
func (e *effects) step(name string, fail func(msg *consumer.Message) error,
	mws ...consumer.Middleware) middleware.Step {
	return middleware.Step{Name: name, Middleware: mws,
		Handler: middleware.Dedup(e.Store, func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
			e.seen = append(e.seen, *msg)
			tx.OnCommit(func() { e.committed = append(e.committed, name) })
			if fail == nil {
				return nil
			}
			return fail(msg)
		}, nil)}
}

// until makes the first n attempts of a step fail.
func until(n int, err error) func(*consumer.Message) error {
	return func(msg *consumer.Message) error {
		if msg.Attempt <= n {
			return err
		}
		return nil
	}
}

func (e *effects) want(t *testing.T, names ...string) {
	t.Helper()
	if !slices.Equal(e.committed, names) {
		t.Errorf("effects %v, want %v", e.committed, names)
	}
}

// calls are the calls of the steps' functions: "charge 1" is the first attempt at the step charge.
func (e *effects) calls() []string {
	var calls []string
	for _, msg := range e.seen {
		calls = append(calls, fmt.Sprintf("%s %d", msg.Consumer[strings.LastIndex(msg.Consumer, "/")+1:], msg.Attempt))
	}
	return calls
}

func sequenceTopic(steps ...middleware.Step) consumer.Topic {
	return consumer.Topic{Handler: middleware.Sequence(steps...)}
}

func event() *consumer.Message { return consumertest.Message("orders", "e1", []byte("v")) }

func TestSequenceRunsStepsOnItsOwnCopies(t *testing.T) {
	t.Parallel()
	e := newEffects()
	tampers := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if from, _ := consumer.MessageFrom(ctx); from != msg {
				t.Error("MessageFrom does not return the step's copy")
			}
			if msg.Result != (consumer.Result{}) {
				t.Errorf("the result is %+v before the step", msg.Result)
			}
			err := next.Handle(ctx, msg)
			msg.EventID, msg.Consumer, msg.Attempt = "spoilt", "spoilt", 99
			return err
		})
	}
	out := consumertest.Run(t, sequenceTopic(e.step("charge", nil, tampers), e.step("mail", nil, tampers),
		e.step("ship", nil)), event())
	if out.Err != nil {
		t.Fatal(out)
	}
	e.want(t, "charge", "mail", "ship")
	for i, name := range e.committed {
		msg := e.seen[i]
		if msg.Consumer != "test/orders/"+name || msg.EventID != "e1" || msg.Attempt != 1 || msg.Result.Duplicate ||
			msg.FirstAttempt.IsZero() {
			t.Errorf("%s saw %+v", name, msg)
		}
		if !e.Recorded(dedupstore.Key{Consumer: "test/orders/" + name, Event: "e1"}) {
			t.Errorf("%s has no record of its own", name)
		}
	}
	if msg := out.Attempts[0].Message; msg.Consumer != "test/orders" || msg.EventID != "e1" {
		t.Errorf("the outer message was changed: %+v", msg)
	}
}

// A step's failures are its own: what Retry sees of a step is not made worse by another one.
// A topic must not record under the name of a step of another one.
func TestSequenceNamesItsEffects(t *testing.T) {
	t.Parallel()
	inner := middleware.Sequence(middleware.Step{Name: "mail", Handler: returning(nil)})
	steps := middleware.Sequence(middleware.Step{Name: "ledger", Handler: returning(nil)},
		middleware.Step{Name: "notify", Handler: inner})
	for name, refused := range map[string]bool{"c/ledger": true, "c/notify": true, "c/notify/mail": true, "c/mail": false,
		"c/other": false, "ledger": false} {
		cfg := topics(consumer.Topic{Consumer: "c", Handler: steps})
		cfg.Topics["other"] = consumer.Topic{Consumer: name, Handler: returning(nil)}
		if _, err := consumer.New(cfg); (err != nil) != refused {
			t.Errorf("%s: %v, want an error: %v", name, err, refused)
		}
	}
}

func TestSequenceCountsAttemptsPerStep(t *testing.T) {
	t.Parallel()
	e := newEffects()
	fast := &middleware.RetryConfig{Base: time.Nanosecond, Max: time.Nanosecond}
	out := consumertest.Run(t, sequenceTopic(
		e.step("charge", until(2, errBase), middleware.Retry(3, fast)),
		e.step("mail", until(2, errBase), middleware.Retry(3, fast)),
		e.step("ship", until(99, errBase), middleware.Retry(2, fast)),
	), event())
	e.want(t, "charge", "mail")
	want := []string{"charge 1", "charge 2", "charge 3", "mail 1", "mail 2", "mail 3", "ship 1", "ship 2"}
	if got := e.calls()[:8]; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	for i, a := range out.Attempts[:6] {
		if gaveUp := consumer.IsGaveUp(a.Err); gaveUp != (i == 5) {
			t.Errorf("attempt %d: %v, gave up %v", i+1, a.Err, gaveUp)
		}
	}
	gaveUp, ok := errors.AsType[*consumer.GaveUp](out.Attempts[5].Err)
	if !ok || gaveUp.Attempts != 2 || out.Attempts[5].Err.Error() != `step "ship": gave up after 2 attempts: no stock` {
		t.Errorf("the last word is %v", out.Attempts[5].Err)
	}
	for i, msg := range e.seen[:8] {
		again := i > 0 && e.seen[i-1].Consumer == msg.Consumer
		if again != (msg.LastError != nil) || again && !errors.Is(msg.LastError, errBase) || again &&
			strings.Contains(msg.LastError.Error(), "step") {
			t.Errorf("%s attempt %d: last error %v", msg.Consumer, msg.Attempt, msg.LastError)
		}
		if again && !msg.FirstAttempt.Equal(e.seen[i-1].FirstAttempt) {
			t.Errorf("%s attempt %d: first attempt %v, before it was %v", msg.Consumer, msg.Attempt, msg.FirstAttempt,
				e.seen[i-1].FirstAttempt)
		}
	}
}

// A step that had finished, and fails when it is asked again, begins to count anew; the step behind it goes on.
func TestSequenceFinishedStepFailsAgain(t *testing.T) {
	t.Parallel()
	var seen []string
	script := map[string][]error{"a": {errBase, nil, errBase, nil}, "b": {errBase, errBase, nil}}
	step := func(name string) middleware.Step {
		return middleware.Step{Name: name,
			Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
				seen = append(seen, fmt.Sprintf("%s %d", name, msg.Attempt))
				if len(script[name]) == 0 {
					return nil
				}
				err := script[name][0]
				script[name] = script[name][1:]
				return err
			})}
	}
	if out := consumertest.Run(t, sequenceTopic(step("a"), step("b")), event()); out.Err != nil {
		t.Fatal(out)
	}
	want := []string{"a 1", "a 2", "b 1", "a 1", "a 2", "b 2", "a 1", "b 3"}
	if !slices.Equal(seen, want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}

// The error of a step is seen through the Sequence with what it asks for; the outermost control error decides.
func TestSequenceKeepsControlErrors(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"plain":              errBase,
		"permanent":          consumer.Permanent(errBase),
		"retry after":        consumer.RetryAfter(time.Minute, errBase),
		"gave up":            &consumer.GaveUp{Attempts: 3, Err: errBase},
		"permanent inside":   consumer.RetryAfter(time.Minute, consumer.Permanent(errBase)),
		"retry inside":       fmt.Errorf("wrapped: %w", consumer.Permanent(consumer.RetryAfter(time.Minute, errBase))),
		"joined":             errors.Join(errBase, consumer.RetryAfter(time.Minute, errBase)),
		"permanent and more": errors.Join(consumer.Permanent(errBase), consumer.RetryAfter(time.Minute, errBase)),
	} {
		h := middleware.Sequence(middleware.Step{Name: "ship", Handler: returning(err)})
		got := h.Handle(t.Context(), message())
		delay, asked := consumer.Delay(got)
		wantDelay, wantAsked := consumer.Delay(err)
		if kind(got) != kind(err) || delay != wantDelay || asked != wantAsked || !errors.Is(got, errBase) {
			t.Errorf("%s: got %v (%s), want %s", name, got, kind(got), kind(err))
		}
		if want := `step "ship": ` + err.Error(); got.Error() != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// dead is what a dead-letter middleware does, as far as a Sequence sees it.
func dead(next consumer.Handler) consumer.Handler { return &deadLetter{next} }

type deadLetter struct{ next consumer.Handler }

func (*deadLetter) Link() consumer.Link { return consumer.LinkDeadLetter }

func (d *deadLetter) Handle(ctx context.Context, msg *consumer.Message) error {
	err := d.next.Handle(ctx, msg)
	if consumer.IsPermanent(err) || consumer.IsGaveUp(err) {
		msg.Result.Dead = true
		return nil
	}
	return err
}

func always(err error) func(*consumer.Message) error {
	return func(*consumer.Message) error { return err }
}

func TestSequenceDeadStepSkipsNoLaterOne(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]error{"permanent": consumer.Permanent(errBase), "gave up": errBase} {
		e := newEffects()
		out := consumertest.Run(t, sequenceTopic(
			e.step("charge", nil),
			e.step("mail", always(fail), dead, middleware.Retry(3, nil)),
			e.step("ship", nil),
		), event())
		if out.Err != nil || !out.Result.Dead || out.Result.Duplicate {
			t.Errorf("%s: %v, %+v", name, out, out.Result)
		}
		e.want(t, "charge", "ship")
	}
}

// Without a dead letter the steps behind a failing one wait, however long.
func TestSequenceFailingStepHoldsUpLaterOnes(t *testing.T) {
	t.Parallel()
	e := newEffects()
	out := consumertest.Run(t, sequenceTopic(e.step("charge", nil), e.step("mail", always(consumer.Permanent(errBase))),
		e.step("ship", nil)), event())
	if out.End != consumertest.Limit || !consumer.IsPermanent(out.Err) {
		t.Error(out)
	}
	e.want(t, "charge")
}

// Whatever ends the process between two steps: the next owner finds what has finished, and goes on.
func TestSequenceGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	e := newEffects()
	crashed := []middleware.Step{e.step("charge", nil),
		e.step("mail", func(*consumer.Message) error { runtime.Goexit(); return nil }), e.step("ship", nil)}
	healthy := []middleware.Step{e.step("charge", nil), e.step("mail", nil), e.step("ship", nil)}
	chains := consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"orders": sequenceTopic(crashed...)}},
		&consumertest.Config{Attempts: 1})
	if out := chains.Deliver(t.Context(), event()); out.Err == nil {
		t.Fatal(out)
	}
	e.want(t, "charge")

	out := consumertest.Run(t, sequenceTopic(healthy...), event())
	if out.Err != nil || out.Result.Duplicate {
		t.Errorf("%v, %+v: one step was a duplicate, two were not", out, out.Result)
	}
	e.want(t, "charge", "mail", "ship")

	// and once more, with a step that did not exist before
	out = consumertest.Run(t, sequenceTopic(healthy...), event())
	if out.Err != nil || !out.Result.Duplicate {
		t.Errorf("%v, %+v, want a duplicate", out, out.Result)
	}
	out = consumertest.Run(t, sequenceTopic(append([]middleware.Step{e.step("report", nil)}, healthy...)...), event())
	if out.Err != nil || out.Result.Duplicate {
		t.Errorf("%v, %+v", out, out.Result)
	}
	e.want(t, "charge", "mail", "ship", "report")
}

func TestSequenceContainsPanics(t *testing.T) {
	t.Parallel()
	e := newEffects()
	fails := until(2, errBase)
	out := consumertest.Run(t, sequenceTopic(
		e.step("charge", until(1, errBase)),
		e.step("mail", func(msg *consumer.Message) error {
			if msg.Attempt == 2 {
				panic("boom")
			}
			return fails(msg)
		}),
	), event())
	p, ok := errors.AsType[*consumer.Panic](out.Attempts[2].Err)
	if out.Err != nil || !ok || p.Value != "boom" || len(p.Stack) == 0 || !strings.HasPrefix(out.Attempts[2].Err.Error(),
		`step "mail": panic`) {
		t.Errorf("%v", out)
	}
	if want := []string{"charge 1", "charge 2", "mail 1", "mail 2", "mail 3"}; !slices.Equal(e.calls(), want) {
		t.Errorf("calls %v, want %v: a panic counts like any failure", e.calls(), want)
	}
	e.want(t, "charge", "mail")
}

// When the time to drain is over no further step begins, and what was begun is not counted as done.
func TestSequenceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := newEffects()
	why := errors.New("the time to drain is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	last := middleware.Step{Name: "after", Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		cancel(why)
		return nil
	})}
	h := middleware.Sequence(e.step("charge", nil), last, middleware.Step{Name: "ship", Handler: returning(nil)})
	err := h.Handle(ctx, message())
	if !errors.Is(err, why) || err.Error() != `step "ship": not begun: the time to drain is over` {
		t.Errorf("got %v", err)
	}
	e.want(t, "charge")
}

func TestSequenceOfSequences(t *testing.T) {
	t.Parallel()
	e := newEffects()
	inner := middleware.Sequence(e.step("one", until(1, errBase)),
		e.step("two", until(2, errBase), middleware.Retry(3, nil)))
	out := consumertest.Run(t, sequenceTopic(e.step("charge", until(1, errBase)),
		middleware.Step{Name: "mail", Handler: inner}), event())
	if out.Err != nil {
		t.Fatal(out)
	}
	if want := []string{"charge 1", "charge 2", "one 1", "one 2", "two 1", "two 2", "two 3"}; !slices.Equal(e.calls(),
		want) {
		t.Errorf("calls %v, want %v", e.calls(), want)
	}
	if last := e.seen[len(e.seen)-1].Consumer; last != "test/orders/mail/two" {
		t.Errorf("consumer %q", last)
	}
	e.want(t, "charge", "one", "two")
}

// What a step does to its message changes nothing of what the next attempt knows, and the error of an attempt stays
// what it was.
func TestSequenceKeepsWhatItKnows(t *testing.T) {
	t.Parallel()
	var seen []consumer.Message
	spoils := consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		seen = append(seen, *msg)
		msg.Attempt, msg.FirstAttempt, msg.LastError = 99, time.Time{}, nil
		return errBase
	})
	h := middleware.Sequence(middleware.Step{Name: "a", Handler: returning(nil)},
		middleware.Step{Name: "b", Handler: spoils})
	first := h.Handle(t.Context(), message())
	for range 2 {
		msg := message()
		msg.LastError = fmt.Errorf("link outside: %w", first)
		_ = h.Handle(t.Context(), msg)
		if last := seen[len(seen)-1]; last.Attempt != 2 || !last.FirstAttempt.Equal(seen[0].FirstAttempt) ||
			!errors.Is(last.LastError, errBase) {
			t.Errorf("after one failure: %+v", last)
		}
	}

	other := middleware.Sequence(middleware.Step{Name: "x", Handler: returning(first)})
	msg := message()
	msg.LastError = other.Handle(t.Context(), message())
	_ = h.Handle(t.Context(), msg) // found inside another Sequence's error
	if last := seen[len(seen)-1]; last.Attempt != 2 {
		t.Errorf("inside another Sequence's error: attempt %d", last.Attempt)
	}
	msg.LastError = middleware.Sequence(middleware.Step{Name: "x", Handler: returning(errBase)}).Handle(t.Context(),
		message())
	_ = h.Handle(t.Context(), msg)
	if last := seen[len(seen)-1]; last.Attempt != 1 {
		t.Errorf("after another Sequence's error: attempt %d", last.Attempt)
	}
}

// A link outside that hides the error makes the steps count anew; effects stay what they are.
func TestSequenceBehindALinkThatHidesErrors(t *testing.T) {
	t.Parallel()
	e := newEffects()
	hides := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			if err := next.Handle(ctx, msg); err != nil {
				return errors.New("something failed")
			}
			return nil
		})
	}
	calls := 0
	topic := sequenceTopic(e.step("charge", nil), e.step("mail", func(*consumer.Message) error {
		if calls++; calls < 4 {
			return errBase
		}
		return nil
	}))
	topic.Middleware = []consumer.Middleware{hides}
	if out := consumertest.Run(t, topic, event()); out.Err != nil {
		t.Fatal(out)
	}
	if want := []string{"charge 1", "mail 1", "mail 1", "mail 1", "mail 1"}; !slices.Equal(e.calls(), want) {
		t.Errorf("calls %v, want %v", e.calls(), want)
	}
	e.want(t, "charge", "mail")
}
