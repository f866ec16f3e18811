package consumer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// Arguments that cannot be meant are refused by New, also where a function or a link was made of them.
func TestArgumentsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	var store *memstore.Store
	mem := func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }
	type change = func(cfg *consumer.Config, topic *consumer.Topic)
	eventID := func(f func(*consumer.Message) (string, error)) change {
		return func(_ *consumer.Config, topic *consumer.Topic) { topic.EventID = f }
	}
	id := consumer.HeaderID("event-id")
	for name, test := range map[string]struct {
		change change
		says   string // nothing if it is fine
	}{
		"nothing":                {func(*consumer.Config, *consumer.Topic) {}, ""},
		"CompositeID of nothing": {eventID(consumer.CompositeID()), "EventID: CompositeID has no parts"},
		"CompositeID of nil": {eventID(consumer.CompositeID(id, nil)),
			"EventID: CompositeID's part 1, counted from 0, is nil"},
		"CompositeID of a mistake": {eventID(consumer.CompositeID(id, consumer.JSONID())), "EventID: JSONID has no name"},
		"CompositeID in CompositeID": {eventID(consumer.CompositeID(id, consumer.CompositeID(consumer.HeaderID("")))),
			"EventID: HeaderID has no name"},
		"CompositeID":                {eventID(consumer.CompositeID(id, consumer.JSONID("id"), consumer.OffsetID)), ""},
		"JSONID of nothing":          {eventID(consumer.JSONID()), "EventID: JSONID has no name"},
		"JSONID of an empty name":    {eventID(consumer.JSONID("meta", "")), "EventID: JSONID has no name"},
		"HeaderID of nothing":        {eventID(consumer.HeaderID("")), "EventID: HeaderID has no name"},
		"the user's own, not called": {eventID(func(*consumer.Message) (string, error) { panic("called by New") }), ""},
		"group with a line break": {func(cfg *consumer.Config, _ *consumer.Topic) { cfg.Group = "my group\n" },
			`Config.Group: is "my group\n", which has control characters`},
		"group that ends with a blank": {func(cfg *consumer.Config, _ *consumer.Topic) { cfg.Group = "my group " },
			"begins or ends with a blank"},
		"group that is no text": {func(cfg *consumer.Config, _ *consumer.Topic) { cfg.Group = "my\xffgroup" },
			"is not valid UTF-8"},
		"group with a blank": {func(cfg *consumer.Config, _ *consumer.Topic) { cfg.Group = "my group" }, ""},
		"Consumer with a tab": {func(_ *consumer.Config, topic *consumer.Topic) { topic.Consumer = "a\tb" },
			`Consumer is "a\tb", which has control characters`},
		"Consumer too long": {func(_ *consumer.Config, topic *consumer.Topic) {
			topic.Consumer = strings.Repeat("x", dedupstore.MaxConsumerLen+1)
		}, "Consumer is 513 bytes long"},
		"longest Consumer": {func(_ *consumer.Config, topic *consumer.Topic) {
			topic.Consumer = strings.Repeat("x", dedupstore.MaxConsumerLen)
		}, ""},
		"topic with a blank": {func(cfg *consumer.Config, topic *consumer.Topic) { cfg.Topics["a b"] = *topic },
			`Config.Topics["a b"]: no topic of Kafka has such a name`},
		"topic too long": {func(cfg *consumer.Config, topic *consumer.Topic) {
			cfg.Topics[strings.Repeat("x",
				250)] = *topic
		}, "no topic of Kafka has such a name"},
		"longest topic": {func(cfg *consumer.Config, topic *consumer.Topic) {
			cfg.Topics[strings.Repeat("x",
				249)] = *topic
		}, ""},
		"topic of two dots": {func(cfg *consumer.Config, topic *consumer.Topic) { cfg.Topics[".."] = *topic },
			"no topic of Kafka has such a name"},
		"store, a nil pointer": {func(_ *consumer.Config, topic *consumer.Topic) {
			topic.Handler = middleware.Dedup(store,
				mem, nil)
		}, "middleware.Dedup: the store is nil"},
		"store, nil": {func(_ *consumer.Config, topic *consumer.Topic) {
			topic.Handler = middleware.Dedup(nil, mem,
				nil)
		}, "middleware.Dedup: the store is nil"},
	} {
		cfg := valid()
		topic := cfg.Topics["orders"]
		test.change(&cfg, &topic)
		cfg.Topics["orders"] = topic
		_, err := consumer.New(cfg)
		switch {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}
