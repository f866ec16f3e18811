package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

// handing is HandOn around a handler that returns err, with what it wrote in the store.
func handing(s *store, err error, write func() error) consumer.Handler {
	return middleware.HandOn(s, "1m", func(ctx context.Context, t *tx, msg *consumer.Message) error {
		if key, ok := dedupstore.KeyFrom(ctx); !ok || key.Event != msg.EventID || key.Consumer != "billing/orders/retry/1m" {
			return errors.New("the context has another key")
		}
		t.writes = append(t.writes, "handed on "+msg.EventID)
		if write == nil {
			return nil
		}
		return write()
	}, &middleware.HandOnConfig{Logger: quiet()})(returning(err))
}

// What was given up is handed on once, under a key of its own; all else passes.
func TestHandOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		handed bool
	}{
		"gave up":         {&consumer.GaveUp{Attempts: 5, Err: errBase}, true},
		"a panic":         {&consumer.GaveUp{Attempts: 5, Err: &consumer.Panic{Value: "boom"}}, true},
		"permanent":       {consumer.Permanent(errBase), false},
		"plain error":     {errBase, false},
		"another attempt": {consumer.RetryAfter(time.Second, errBase), false},
		"not due":         {consumer.NotBefore(time.Now().Add(time.Hour)), false},
		"success":         {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &store{}
			h := handing(s, test.err, nil)
			for i := range 2 {
				msg := message()
				err := h.Handle(t.Context(), msg)
				if !test.handed {
					if !errors.Is(err, test.err) || msg.Result.HandedOn != nil || len(s.charges) > 0 {
						t.Errorf("%v, %+v, want that it passes", err, msg.Result)
					}
					continue
				}
				if err != nil || !errors.Is(msg.Result.HandedOn, errBase) && name == "gave up" || msg.Result.HandedOn == nil ||
					msg.Result.Duplicate != (i == 1) || len(s.charges) != 1 {
					t.Errorf("delivery %d: %v, %+v, wrote %q", i, err, msg.Result, s.charges)
				}
			}
			if ran, _ := s.Once(t.Context(), dedupstore.Key{Consumer: "billing/orders", Event: "e1"},
				func(context.Context, *tx) error { return nil }); !ran {
				t.Error("the event's own key is recorded")
			}
		})
	}
}

// What can never be handed on is left to those outside.
func TestHandOnOfWhatCannotBe(t *testing.T) {
	t.Parallel()
	gaveUp := &consumer.GaveUp{Attempts: 5, Err: errBase}
	long := message()
	long.Consumer = strings.Repeat("c", dedupstore.MaxConsumerLen)
	noID := message()
	noID.EventID, noID.EventIDErr = "", consumer.ErrNoEventID
	for name, test := range map[string]struct {
		msg   *consumer.Message
		write func() error
	}{
		"no id": {noID, nil}, "a name that is too long": {long, nil},
		"refused": {message(), func() error { return consumer.Permanent(errors.New("too large")) }},
	} {
		s := &store{}
		if err := handing(s, gaveUp, test.write).Handle(t.Context(), test.msg); !consumer.IsGaveUp(err) ||
			!errors.Is(err, errBase) || len(s.charges) > 0 || test.msg.Result.HandedOn != nil {
			t.Errorf("%s: %v, %+v", name, err, test.msg.Result)
		}
	}
}

// A message without an id is none that cannot be handed on: its dead letter, or OnFailure, says what is wrong with it.
func TestHandOnSaysNothingOfWhatHasNoID(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	h := middleware.HandOn(&store{}, "1m", func(context.Context, *tx, *consumer.Message) error { return nil },
		&middleware.HandOnConfig{Logger: book.logger(slog.LevelDebug)})(gaveUp(errBase))
	msg := message()
	msg.EventID, msg.EventIDErr = "", consumer.ErrNoEventID
	if err := h.Handle(t.Context(), msg); !consumer.IsGaveUp(err) {
		t.Errorf("%v", err)
	}
	if lines := book.lines(t); len(lines) > 0 {
		t.Errorf("%v", lines)
	}
}

// As long as it is not known that it was handed on, the message stays, with growing pauses.
func TestHandOnStays(t *testing.T) {
	t.Parallel()
	s := &store{}
	gaveUp := &consumer.GaveUp{Attempts: 5, Err: errBase}
	away := true
	down := errors.New("no database")
	h := handing(s, gaveUp, func() error {
		if away {
			return dedupstore.WithClass(dedupstore.Unavailable, down)
		}
		return nil
	})
	msg := message()
	var last time.Duration
	for range 8 {
		err := h.Handle(t.Context(), msg)
		d, again := consumer.Delay(err)
		if !again || !errors.Is(err, down) || !errors.Is(err, errBase) || d > time.Minute || len(s.charges) > 0 {
			t.Fatalf("%v, after %v", err, d)
		}
		msg.LastError, last = err, d
	}
	if last < 20*time.Second {
		t.Errorf("the last pause was %v", last)
	}
	away = false
	if err := h.Handle(t.Context(), msg); err != nil || len(s.charges) != 1 {
		t.Errorf("%v, wrote %q", err, s.charges)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Handle(ctx, message()); !consumer.IsGaveUp(err) {
		t.Errorf("in a drain: %v", err)
	}
}

func TestHandOnInvalid(t *testing.T) {
	t.Parallel()
	h := middleware.HandOn[*tx](nil, "", nil, nil)(returning(nil))
	err := check(t, h)
	for _, want := range []string{"the store is nil", "write is nil", "the stage has no name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := h.Handle(t.Context(), message()); err == nil || consumer.IsPermanent(err) {
		t.Errorf("Handle: %v", err)
	}
}
