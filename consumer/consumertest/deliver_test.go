package consumertest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
)

func message() *consumer.Message {
	return consumertest.Message("orders", "e1", []byte("value"), consumer.Header{Key: "a", Value: []byte("1")})
}

func TestFactsOfEachAttempt(t *testing.T) {
	t.Parallel()
	parked := consumer.RetryAfter(time.Hour, errStock)
	h := &script{errs: []error{parked, errStock, nil}}
	spoils := consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if got, ok := consumer.MessageFrom(ctx); !ok || got != msg {
			t.Errorf("MessageFrom returned %p, want the message of the attempt, %p", got, msg)
		}
		err := h.Handle(ctx, msg)
		msg.Result.Dead, msg.EventID, msg.Attempt = true, "spoilt", 99
		msg.Headers[0] = consumer.Header{}
		msg.Headers = nil
		return err
	})
	chains := consumertest.New(t, consumer.Config{Group: "billing",
		Topics: map[string]consumer.Topic{"orders": {Handler: spoils}}}, nil)
	began := time.Now()
	out := chains.Deliver(t.Context(), message())
	if out.Err != nil || out.End != consumertest.Done || len(out.Attempts) != 3 || !out.Result.Dead {
		t.Fatalf("%v\n%+v", out, out)
	}
	for i, msg := range h.seen {
		if msg.Group != "billing" || msg.Consumer != "billing/orders" || msg.EventID != "e1" || msg.EventIDErr != nil {
			t.Errorf("attempt %d: %+v", i+1, msg)
		}
		if msg.Attempt != i+1 || msg.FirstAttempt.Before(began) || !msg.FirstAttempt.Equal(h.seen[0].FirstAttempt) {
			t.Errorf("attempt %d: Attempt %d, FirstAttempt %v", i+1, msg.Attempt, msg.FirstAttempt)
		}
		if want := []error{nil, parked, errStock}[i]; msg.LastError != want { //nolint:errorlint // the very error
			t.Errorf("attempt %d: LastError %v, want %v", i+1, msg.LastError, want)
		}
		if msg.Result != (consumer.Result{}) || len(msg.Headers) != 2 {
			t.Errorf("attempt %d sees what the one before it left: %+v", i+1, msg)
		}
	}
	if h.msgs[0] == h.msgs[1] {
		t.Error("two attempts share a Message")
	}
}

func TestFactsThatTheTopicChooses(t *testing.T) {
	t.Parallel()
	noID := errors.New("no id")
	h := &script{errs: []error{nil}}
	topic := consumer.Topic{Handler: h, Consumer: "charges", EventID: func(*consumer.Message) (string, error) {
		return "",
			noID
	}}
	if out := consumertest.Run(t, topic, message()); out.Err != nil {
		t.Fatal(out)
	}
	if msg := h.seen[0]; msg.Group != "test" || msg.Consumer != "charges" || msg.EventID != "" || msg.EventIDErr != noID { //nolint:errorlint // the very error
		t.Errorf("%+v", msg)
	}
}

func TestDelaysAreNotedAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	h := &script{errs: []error{consumer.RetryAfter(time.Hour, errStock), consumer.RetryAfter(-1, errStock), errStock}}
	chains := consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"orders": {Handler: h}}},
		&consumertest.Config{Attempts: 10})
	began := time.Now()
	out := chains.Deliver(t.Context(), message())
	if out.End != consumertest.Limit || !errors.Is(out.Err, errStock) {
		t.Fatal(out)
	}
	var got []time.Duration
	for _, a := range out.Attempts {
		got = append(got, a.Delay)
	}
	want := []time.Duration{time.Hour, 10 * time.Millisecond, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		32 * time.Second, time.Minute, time.Minute, time.Minute, time.Minute}
	if !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
	if sum := time.Hour + 4*time.Minute + 10*time.Millisecond; out.Waited() != sum || time.Since(began) > 30*time.Second {
		t.Errorf("Waited() = %v, want %v, in %v", out.Waited(), sum, time.Since(began))
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	h := &script{errs: []error{consumer.RetryAfter(time.Second, errStock), consumer.Permanent(errStock)}}
	out := consumertest.Run(t, consumer.Topic{Handler: h, OnFailure: consumer.Stop}, message())
	if out.End != consumertest.Stopped || len(out.Attempts) != 2 || !consumer.IsPermanent(out.Err) {
		t.Errorf("%v", out)
	}
	if want := "attempt 1: no stock; again after 1s\nattempt 2: no stock; stopped"; out.String() != want {
		t.Errorf("String() = %q, want %q", out, want)
	}
}

func TestNothingStopsAtTheDefaultLimit(t *testing.T) {
	t.Parallel()
	out := consumertest.Run(t, consumer.Topic{Handler: &script{errs: []error{consumer.Permanent(errStock)}}}, message())
	if out.End != consumertest.Limit || len(out.Attempts) != 20 ||
		!strings.HasSuffix(out.String(), "\nattempt 20: no stock; the runner would try again after 1m0s") {
		t.Errorf("%v", out)
	}
}

func TestPanicsAreContained(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail func()
		inID bool
		want any
	}{
		"panic":              {func() { panic(errStock) }, false, errStock},
		"goexit":             {runtime.Goexit, false, nil},
		"goexit, in EventID": {runtime.Goexit, true, nil},
	} {
		first := true
		fail := func() {
			if first {
				first = false
				test.fail()
			}
		}
		topic := consumer.Topic{Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { fail(); return nil })}
		if test.inID {
			topic.EventID = func(*consumer.Message) (string, error) { fail(); return "e1", nil }
		}
		out := consumertest.Run(t, topic, message())
		var p *consumer.Panic
		if out.End != consumertest.Done || len(out.Attempts) != 2 || !errors.As(out.Attempts[0].Err, &p) ||
			p.Value != test.want {
			t.Errorf("%s: %v", name, out)
		}
	}
}

// A panic in EventID is as good as no id: the chain says what becomes of the message.
func TestPanicInEventID(t *testing.T) {
	t.Parallel()
	var id error
	out := consumertest.Run(t, consumer.Topic{
		Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error { id = msg.EventIDErr; return nil }),
		EventID: func(*consumer.Message) (string, error) { panic(errStock) },
	}, message())
	var p *consumer.Panic
	if out.End != consumertest.Done || len(out.Attempts) != 1 || !errors.Is(id, consumer.ErrNoEventID) ||
		!errors.As(id, &p) || p.Value != any(errStock) {
		t.Errorf("%v, EventIDErr %v", out, id)
	}
}

// A context that is done is a drain that is over: nothing follows, whatever the chain returned.
func TestCancelled(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(error) error{
		"the context's error": func(err error) error { return err },
		"asks for more":       func(err error) error { return consumer.RetryAfter(time.Second, err) },
		"swallows":            func(error) error { return nil },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		h := consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
			cancel()
			return answer(ctx.Err())
		})
		chains := consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"orders": {Handler: h,
			OnFailure: consumer.Stop}}}, nil)
		out := chains.Deliver(ctx, message())
		want := consumertest.Cancelled
		if answer(errStock) == nil {
			want = consumertest.Done // Dedup's store does not let this happen
		}
		if out.End != want || len(out.Attempts) != 1 {
			t.Errorf("%s: %v", name, out)
		}
	}
}

func TestEachDeliveryBeginsAnew(t *testing.T) {
	t.Parallel()
	h := &script{errs: []error{errStock, nil}}
	chains := consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"orders": {Handler: h}}}, nil)
	msg := message()
	for range 2 {
		if out := chains.Deliver(t.Context(), msg); out.Err != nil {
			t.Fatal(out)
		}
	}
	if n := len(h.seen); n != 3 || h.seen[2].Attempt != 1 || h.seen[2].LastError != nil {
		t.Errorf("%d attempts, the last %+v", n, h.seen[n-1])
	}
	again := *h.msgs[0]
	again.Result.Dead = true
	if out := chains.Deliver(t.Context(), &again); out.Err != nil || h.seen[3].Result.Dead || h.seen[3].Attempt != 1 ||
		h.seen[3].LastError != nil {
		t.Errorf("a message of an attempt, delivered again: %v, %+v", out, h.seen[3])
	}
	if msg.Group != "" || msg.Attempt != 0 || msg.EventID != "" {
		t.Errorf("the test's own message was changed: %+v", msg)
	}
}
