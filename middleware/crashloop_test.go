package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// starts counts in memory.
type starts struct {
	mu     sync.Mutex
	counts map[string]int
	begun  int
	known  map[string]bool // as processed
	fails  error
}

func (s *starts) Begin(_ context.Context, key dedupstore.Key) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil || s.known[key.Event] {
		return 0, s.fails
	}
	s.begun++
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[key.Event]++
	return s.counts[key.Event], nil
}

func (s *starts) End(_ context.Context, key dedupstore.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, key.Event)
	return nil
}

func (s *starts) Pending(context.Context, string) (map[string]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts), nil
}

func (s *starts) Check(context.Context) error { return s.fails }

func (s *starts) now() (counts map[string]int, begun int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts), s.begun
}

// assigned is a CrashLoop of which the partition of message has just been assigned.
func assigned(t *testing.T, mw consumer.Middleware, h consumer.Handler, inFlight int) consumer.Handler {
	t.Helper()
	link := mw(h)
	link.(consumer.Assignee).Assigned("orders", 3, inFlight)
	return link
}

func numbered(event string) *consumer.Message {
	msg := message()
	msg.EventID = event
	return msg
}

// So many messages are counted as can have been in work at a crash, each until it is done; none before the partition
// was assigned.
func TestCrashLoopCountsTheFirst(t *testing.T) {
	t.Parallel()
	s := &starts{known: map[string]bool{"duplicate": true}}
	var result error
	var counted int
	inner := consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		counts, _ := s.now()
		counted += counts[msg.EventID]
		return result
	})
	handle := func(h consumer.Handler, event string, err error, want int) {
		t.Helper()
		counted, result = 0, err
		if got := h.Handle(t.Context(), numbered(event)); !errors.Is(got, err) {
			t.Errorf("%s: %v, want %v", event, got, err)
		}
		if counted != want {
			t.Errorf("%s: counted %d while it was handled, want %d", event, counted, want)
		}
		if left, _ := s.now(); len(left) > 0 {
			t.Errorf("%s: %v are left", event, left)
		}
	}
	mw := middleware.CrashLoop(s, nil)
	handle(mw(inner), "not assigned", nil, 0)
	h := assigned(t, mw, inner, 2)
	handle(h, "fails", errBase, 1)
	handle(h, "fails", errBase, 1)
	handle(h, "duplicate", nil, 0)
	handle(h, "fails", nil, 1)
	handle(h, "second", nil, 1)
	handle(h, "third", nil, 0)
	h.(consumer.Assignee).Assigned("orders", 3, 1)
	handle(h, "assigned again", nil, 1)
	// One that was counted when the process was killed after its COMMIT.
	s.counts["duplicate"] = 1
	h.(consumer.Assignee).Assigned("orders", 3, 1)
	handle(h, "duplicate", nil, 1)
	handle(h, "assigned once more", nil, 1)
	handle(h, "the one behind", nil, 0)
}

// A panic and runtime.Goexit do not end the process.
func TestCrashLoopForgetsWhatReturned(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		s := &starts{}
		h := assigned(t, middleware.CrashLoop(s, nil), consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			ends()
			return nil
		}), 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_ = h.Handle(t.Context(), message())
		}()
		<-done
		if left, begun := s.now(); len(left) > 0 || begun != 1 {
			t.Errorf("%s: %v are left of %d", name, left, begun)
		}
	}
}

// forgetful is a table whose rows cannot be deleted.
type forgetful struct{ *starts }

func (f forgetful) End(context.Context, dedupstore.Key) error { return errors.New("permission denied") }

// A count that cannot be taken back is told of: the message will be under suspicion.
func TestCrashLoopCannotForget(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	mw := middleware.CrashLoop(forgetful{&starts{}},
		&middleware.CrashLoopConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	h := assigned(t, mw, consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }), 1)
	for range 2 { // of which the second one is not counted
		if err := h.Handle(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
	}
	if text := lines.String(); strings.Count(text, "could not be forgotten") != 1 ||
		!strings.Contains(text, "level=WARN") || !strings.Contains(text, "permission denied") {
		t.Error(text)
	}
}

// What has ended the process too often is not handled, whatever comes of it.
func TestCrashLoopLimit(t *testing.T) {
	t.Parallel()
	for limit, cfg := range map[int]*middleware.CrashLoopConfig{3: nil, 1: {Limit: 1}} {
		for count := range 5 {
			s := &starts{counts: map[string]int{"e1": count}}
			ran := false
			h := assigned(t, middleware.CrashLoop(s, cfg), consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
				ran = true
				return nil
			}), 1)
			for range 2 {
				err := h.Handle(t.Context(), message())
				if refused := errors.Is(err, middleware.ErrCrashLoop); refused != (count >= limit) || refused == ran ||
					refused != consumer.IsPermanent(err) {
					t.Errorf("limit %d, count %d: %v, ran %v", limit, count, err, ran)
				}
			}
			if left, _ := s.now(); count >= limit && left["e1"] != count {
				t.Errorf("limit %d, count %d: %v", limit, count, left)
			}
		}
	}
}

// What may have ended the process has no other message beside it, in no partition and no topic.
func TestCrashLoopOneAtATime(t *testing.T) {
	t.Parallel()
	s := &starts{counts: map[string]int{"suspect": 1, "other suspect": 2}}
	type call struct{ entered, leave, left chan struct{} }
	calls := map[string]*call{}
	for _, event := range []string{"fresh", "suspect", "other suspect"} {
		calls[event] = &call{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	}
	inner := consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		close(calls[msg.EventID].entered)
		<-calls[msg.EventID].leave
		return nil
	})
	mw := middleware.CrashLoop(s, nil)
	one, other := assigned(t, mw, inner, 10), assigned(t, mw, inner, 10) // of two topics
	start := func(h consumer.Handler, event string) {
		go func() {
			defer close(calls[event].left)
			if err := h.Handle(context.Background(), numbered(event)); err != nil {
				t.Errorf("%s: %v", event, err)
			}
		}()
		<-calls[event].entered
	}
	end := func(event string) {
		close(calls[event].leave)
		<-calls[event].left
	}
	refused := func(what string, h consumer.Handler, event string) {
		t.Helper()
		err := h.Handle(t.Context(), numbered(event))
		if d, ok := consumer.Delay(err); !ok || d <= 0 || d > time.Second {
			t.Errorf("%s: %v after %v, want that it comes again soon", what, err, d)
		}
	}
	start(one, "fresh")
	refused("a suspect beside another message", other, "suspect")
	refused("a message while a suspect waits", other, "behind")
	end("fresh")
	start(other, "suspect")
	refused("a message beside a suspect", one, "behind")
	refused("a suspect beside a suspect", one, "other suspect")
	if counts, _ := s.now(); counts["other suspect"] != 2 || counts["behind"] != 0 || counts["suspect"] != 2 {
		t.Errorf("what waits was counted: %v", counts)
	}
	end("suspect")
	start(one, "other suspect")
	end("other suspect")
	if counts, _ := s.now(); len(counts) != 0 {
		t.Errorf("counted: %v", counts)
	}
}

// Without its table a message waits; the attempts are not Retry's.
func TestCrashLoopWithoutItsTable(t *testing.T) {
	t.Parallel()
	s := &starts{fails: dedupstore.ErrUnavailable}
	retries := 0
	h := assigned(t, middleware.CrashLoop(s, nil),
		middleware.Retry(2, nil)(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			retries++
			return errBase
		})), 1)
	msg := message()
	for attempt := 1; attempt <= 10; attempt++ {
		msg.Attempt = attempt
		msg.LastError = h.Handle(t.Context(), msg)
		if _, ok := consumer.Delay(msg.LastError); !ok || retries > 0 {
			t.Fatalf("attempt %d: %v, %d retries", attempt, msg.LastError, retries)
		}
	}
	s.fails = nil
	msg.Attempt = 11
	if msg.LastError = h.Handle(t.Context(), msg); consumer.IsGaveUp(msg.LastError) {
		t.Errorf("given up after one attempt: %v", msg.LastError)
	}
	msg.Attempt = 12
	if err := h.Handle(t.Context(), msg); !consumer.IsGaveUp(err) || !strings.Contains(err.Error(), "after 2 attempts") {
		t.Errorf("%v, want that it is given up after 2 attempts", err)
	}
}

func TestCrashLoopChecks(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]consumer.Handler{
		"starts is nil": middleware.CrashLoop(nil, nil)(returning(nil)),
		"Limit is -1":   middleware.CrashLoop(&starts{}, &middleware.CrashLoopConfig{Limit: -1})(returning(nil)),
		errBase.Error(): middleware.CrashLoop(&starts{fails: errBase}, nil)(returning(nil)),
	} {
		if err := check(t, h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// Policies without a dead letter.
	for policy, end := range map[consumer.OnFailure]consumertest.End{consumer.KeepTrying: consumertest.Limit,
		consumer.Stop: consumertest.Stopped} {
		topic := consumer.Topic{
			Handler: returning(nil), OnFailure: policy,
			Middleware: []consumer.Middleware{middleware.CrashLoop(&starts{counts: map[string]int{"e1": 3}}, nil)},
		}
		msg := &consumer.Message{Topic: "t", Headers: []consumer.Header{{Key: "event-id", Value: []byte("e1")}}}
		if out := consumertest.Run(t, topic, msg); out.End != end || !errors.Is(out.Err, middleware.ErrCrashLoop) {
			t.Errorf("%v: %v", policy, out)
		}
	}
}
