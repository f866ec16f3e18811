package middleware_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// What has another type is skipped and counted, without a record; what has none, or cannot be read, is not.
func TestFilter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		types   []string
		skipped bool
		err     string
	}{
		"ours":            {[]string{"order.confirmed"}, false, ""},
		"another of ours": {[]string{"order.paid"}, false, ""},
		"theirs":          {[]string{"order.shipped"}, true, ""},
		"empty":           {[]string{""}, true, ""},
		"the last counts": {[]string{"order.paid", "order.shipped"}, true, ""},
		"none":            {nil, false, "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var skipped, handled int
			count := func(*consumer.Message) { skipped++ }
			topic := consumer.Topic{
				Middleware: []consumer.Middleware{middleware.Filter(middleware.OtherType("type", "order.confirmed", "order.paid"),
					&middleware.FilterConfig{Skipped: count, Logger: quiet()})},
				Handler: middleware.Dedup(memstore.New(), consumer.JSONTx(func(context.Context, *memstore.Tx, int) error {
					handled++
					return nil
				}), nil),
				OnFailure: consumer.Stop,
			}
			msg := &consumer.Message{Topic: "t", Value: []byte("1"),
				Headers: []consumer.Header{{Key: "event-id", Value: []byte("e")}}}
			for _, typ := range test.types {
				msg.Headers = append(msg.Headers, consumer.Header{Key: "type", Value: []byte(typ)})
			}
			if test.err != "" || test.skipped {
				msg.Value = []byte("not JSON")
			}
			out := consumertest.Run(t, topic, msg)
			if test.err != "" {
				if out.End != consumertest.Stopped || !strings.Contains(out.Err.Error(), test.err) {
					t.Errorf("%v", out)
				}
				return
			}
			if out.End != consumertest.Done || out.Result.Skipped != test.skipped || (skipped == 1) != test.skipped ||
				(handled == 1) == test.skipped {
				t.Errorf("%v, %d skipped, %d handled", out, skipped, handled)
			}
		})
	}
}

// The log has a line a minute, with the number.
func TestFilterLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		h := middleware.Filter(func(*consumer.Message) bool { return true },
			&middleware.FilterConfig{Logger: slog.New(slog.NewTextHandler(log, nil))})(returning(errBase))
		for range 100 {
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "skipped=1\n") ||
			!strings.Contains(text, "skipped=60\n") || strings.Contains(text, "s3cret") {
			t.Errorf("%s", text)
		}
	})
}

func TestFilterChecks(t *testing.T) {
	t.Parallel()
	h := middleware.Filter(nil, nil)(returning(nil))
	if err := check(t, h); err == nil || h.Handle(t.Context(), message()) == nil {
		t.Errorf("%v", err)
	}
}
