package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

// trail is what happened in a chain, in order.
type trail struct{ steps []string }

func (tr *trail) add(step string) { tr.steps = append(tr.steps, step) }

// probe is a middleware that notes when it is entered and how it is left.
func (tr *trail) probe(name string) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) (err error) {
			tr.add(name)
			left := "panic"
			defer func() { tr.add(name + " " + left) }()
			err = next.Handle(ctx, msg)
			left = kind(err)
			return err
		})
	}
}

// kind names what an error asks for.
func kind(err error) string {
	var p *consumer.Panic
	_, delayed := consumer.Delay(err)
	switch {
	case err == nil:
		return "ok"
	case consumer.IsPermanent(err):
		return "permanent"
	case consumer.IsGaveUp(err):
		return "gave up"
	case delayed:
		return "retry"
	case errors.As(err, &p):
		return "panicked"
	default:
		return "error"
	}
}

// The documented order, as the sequence of what each link sees.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		handler func(cancel context.CancelFunc) error
		change  func(*consumer.Message)
		seen    bool // an earlier delivery was committed
		want    string
	}{
		{
			name: "success",
			want: "outside, attempt, recovered, record, handler, commit, recovered ok, attempt ok, outside ok",
		},
		{
			name: "duplicate",
			seen: true,
			want: "outside, attempt, recovered, record, recovered ok, attempt ok, outside ok",
		},
		{
			name:    "failure",
			handler: func(context.CancelFunc) error { return errBase },
			want:    "outside, attempt, recovered, record, handler, recovered error, attempt error, outside retry",
		},
		{
			name:    "last failure",
			handler: func(context.CancelFunc) error { return errBase },
			change:  func(m *consumer.Message) { m.Attempt = 2 },
			want:    "outside, attempt, recovered, record, handler, recovered error, attempt error, outside gave up",
		},
		{
			name:    "permanent failure",
			handler: func(context.CancelFunc) error { return consumer.Permanent(errBase) },
			want:    "outside, attempt, recovered, record, handler, recovered permanent, attempt permanent, outside permanent",
		},
		{
			name:   "no event id",
			change: func(m *consumer.Message) { m.EventID, m.EventIDErr = "", consumer.ErrNoEventID },
			want:   "outside, attempt, recovered, recovered permanent, attempt permanent, outside permanent",
		},
		{
			name:    "panic",
			handler: func(context.CancelFunc) error { panic("boom") },
			want:    "outside, attempt, recovered, record, handler, recovered panic, attempt panicked, outside retry",
		},
		{
			name:    "drain",
			handler: func(cancel context.CancelFunc) error { cancel(); return nil },
			want:    "outside, attempt, recovered, record, handler, recovered error, attempt error, outside error",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tr := &trail{}
			s := &store{
				onRecord: func() error { tr.add("record"); return nil },
				onCommit: func() error { tr.add("commit"); return nil },
			}
			chain := compose(
				middleware.Dedup(s, func(context.Context, *tx, *consumer.Message) error {
					tr.add("handler")
					if test.handler != nil {
						return test.handler(cancel)
					}
					return nil
				}, nil),
				tr.probe("outside"), middleware.Retry(2, nil), tr.probe("attempt"), middleware.Recover(), tr.probe("recovered"),
			)
			if test.seen {
				_ = chain.Handle(ctx, message())
				tr.steps = nil
			}
			msg := message()
			if test.change != nil {
				test.change(msg)
			}
			_ = chain.Handle(ctx, msg)
			if want := strings.Split(test.want, ", "); !slices.Equal(tr.steps, want) {
				t.Errorf("\n got %s\nwant %s", strings.Join(tr.steps, ", "), test.want)
			}
		})
	}
}

// One middleware stands around the handlers of many topics.
func TestOneMiddlewareServesManyTopics(t *testing.T) {
	t.Parallel()
	for name, mw := range map[string]consumer.Middleware{
		"Retry":   middleware.Retry(1, nil),
		"Recover": middleware.Recover(),
		"Timeout": middleware.Timeout(time.Minute),
		"Logging": middleware.Logging(slog.New(slog.DiscardHandler), nil),
		"Tracing": middleware.Tracing(nil),
		"Metrics": middleware.Metrics(nil),
	} {
		errOther := errors.New("other topic")
		one, two := mw(returning(errBase)), mw(returning(errOther))
		if err := one.Handle(t.Context(), message()); !errors.Is(err, errBase) {
			t.Errorf("%s: got %v, want the error of the first topic", name, err)
		}
		if err := two.Handle(t.Context(), message()); !errors.Is(err, errOther) {
			t.Errorf("%s: got %v, want the error of the second topic", name, err)
		}
	}
}
