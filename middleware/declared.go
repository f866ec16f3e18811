package middleware

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/safelog"
)

// declared is what a link knows of whether consumer.New has seen it.
type declared struct{ seen, said atomic.Bool }

// declare is called with Validate.
func (d *declared) declare() { d.seen.Store(true) }

// reached says, once, that messages come to a link that New has not seen. A message that no runner has filled in is a
// test's.
func (d *declared) reached(ctx context.Context, msg *consumer.Message, link consumer.Link) {
	if d.seen.Load() || msg.Group == "" || !d.said.CompareAndSwap(false, true) {
		return
	}
	safelog.Logger(nil).WarnContext(ctx,
		"einmal: a link is reached that consumer.New has not seen: its place in the chain and its table were not checked, its window is not compared, "+
			"and a CrashLoop does nothing; let the handler around it have a method Unwrap() consumer.Handler, or choose by middleware.Route",
		slog.String("link", link.String()), slog.String(string(names.Topic), msg.Topic),
		slog.String(string(names.Consumer), msg.Consumer))
}
