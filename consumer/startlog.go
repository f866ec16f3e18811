package consumer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/einmal-go/einmal/internal/version"
)

// storer is implemented by links that record in a store, whose Go type they tell.
type storer interface{ StoreType() string }

// logRuns writes what runs from now on, in one line.
func (c *Consumer) logRuns(log *slog.Logger) {
	var topics []any
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		topics = append(topics, slog.GroupAttrs(name, c.topics[name].describe()...))
	}
	log.Info("einmal: the start is done, joining the group", slog.String("version", version.Of()),
		slog.Any("brokers", c.cfg.Brokers),
		slog.String("rebalance", fmt.Sprint(c.cfg.Rebalance)), slog.Group("topics", topics...))
}

// describe returns what a topic's line at the start has.
func (t *topic) describe() []slog.Attr {
	attrs := []slog.Attr{slog.String("consumer", t.consumer), slog.String("order", t.order.String()),
		slog.String("workers", t.workersText())}
	for _, h := range t.links {
		if s, ok := h.(storer); ok {
			attrs = append(attrs, slog.String("store", s.StoreType()))
			break
		}
	}
	if w := t.window(); w > 0 {
		attrs = append(attrs, seconds("window", w))
	}
	return attrs
}
