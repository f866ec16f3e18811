package consumer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// idleStore is a store with an IdleTimeout.
type idleStore struct {
	*memstore.Store
	idle time.Duration
}

func (s idleStore) IdleTimeout() time.Duration { return s.idle }

// repeatable is a handler of which repeating does no harm.
type repeatable struct{ consumer.Handler }

func (repeatable) Link() consumer.Link { return consumer.LinkDedup }

// Settings that may be meant and hardly ever are make a line at the start, which names both; others make none.
func TestDoubtfulSettings(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	dedup := func(s idleStore) consumer.Handler {
		return middleware.Dedup(s, func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }, nil)
	}
	within := func(d time.Duration) []consumer.Middleware { return []consumer.Middleware{middleware.Timeout(d)} }
	store := idleStore{memstore.New(), time.Minute}
	long := consumer.Topic{Handler: nop, Middleware: within(time.Minute)}
	for name, c := range map[string]struct {
		topic consumer.Topic
		edit  func(*consumer.Config)
		key   string // of the record, "" for none
		says  []string
	}{
		"the defaults": {topic: consumer.Topic{Handler: dedup(store)}},
		"a Dedup in a branch": {topic: consumer.Topic{Handler: middleware.Route(middleware.ByHeader("type"),
			map[string]consumer.Handler{
				"a": dedup(store),
			}, &middleware.RouteConfig{Default: dedup(store)})}},
		"a Dedup in another topic": {topic: consumer.Topic{Handler: nop}, edit: func(c *consumer.Config) {
			other := b.Topic(t, 1)
			c.Topics[other] = consumer.Topic{Handler: dedup(store)}
		}},
		"a handler that says that it may be repeated": {topic: consumer.Topic{Handler: repeatable{nop}}},
		"no Dedup":                {topic: consumer.Topic{Handler: nop}, says: []string{"no chain has a Dedup"}},
		"Timeout in DrainTimeout": {topic: consumer.Topic{Handler: dedup(store), Middleware: within(8 * time.Second)}},
		"Timeout beyond DrainTimeout": {topic: consumer.Topic{Handler: dedup(store), Middleware: within(9 * time.Second)},
			says: []string{"middleware.Timeout is 9s, but Config.DrainTimeout is 8s"}},
		"both": {
			topic: long, edit: func(c *consumer.Config) { c.DrainTimeout = 30 * time.Second },
			says: []string{"no chain has a Dedup", "middleware.Timeout is 1m0s, but Config.DrainTimeout is 30s"},
		},
		"a drain of a minute": {topic: consumer.Topic{Handler: dedup(store)},
			edit: func(c *consumer.Config) { c.DrainTimeout = time.Minute }},
		"a drain of 10 minutes": {topic: consumer.Topic{Handler: dedup(store)},
			edit: func(c *consumer.Config) { c.DrainTimeout = 10 * time.Minute },
			says: []string{"Config.DrainTimeout is 10m0s"}},
		"ProcessingLimit up to IdleTimeout": {
			topic: consumer.Topic{Handler: dedup(store), ProcessingLimit: time.Minute},
		},
		"ProcessingLimit beyond IdleTimeout": {
			topic: consumer.Topic{Handler: dedup(store), ProcessingLimit: 2 * time.Minute},
			says:  []string{"Topic.ProcessingLimit is 2m0s, but the store's IdleTimeout is 1m0s"},
		},
		"no ProcessingLimit": {topic: consumer.Topic{Handler: dedup(store), ProcessingLimit: -1}},
		"a store without the limit": {topic: consumer.Topic{Handler: dedup(idleStore{memstore.New(), 0}),
			ProcessingLimit: 2 * time.Minute}},
		"beyond the shorter IdleTimeout of two": {
			topic: consumer.Topic{Handler: middleware.Sequence(
				middleware.Step{Name: "a", Handler: dedup(idleStore{memstore.New(), 9 * time.Minute})},
				middleware.Step{Name: "b", Handler: dedup(idleStore{memstore.New(), 5 * time.Minute})},
				middleware.Step{Name: "c", Handler: dedup(idleStore{memstore.New(), 0})},
				middleware.Step{Name: "d", Handler: dedup(idleStore{memstore.New(), 8 * time.Minute})},
			), ProcessingLimit: 6 * time.Minute},
			says: []string{"Topic.ProcessingLimit is 6m0s, but the store's IdleTimeout is 5m0s"},
		},
		"Timeout beyond IdleTimeout": {
			topic: consumer.Topic{Handler: dedup(idleStore{memstore.New(), 5 * time.Second}),
				Middleware: within(6 * time.Second)},
			says: []string{"middleware.Timeout is 6s, but the store's IdleTimeout is 5s"},
		},
		"KeyOrder": {topic: consumer.Topic{Handler: dedup(store), Order: consumer.KeyOrder}, key: "k"},
		"KeyOrder, no keys": {topic: consumer.Topic{Handler: dedup(store), Order: consumer.KeyOrder},
			says: []string{"a message has no key, and Topic.Order is KeyOrder"}},
		"Unordered, no key": {topic: consumer.Topic{Handler: dedup(store), Order: consumer.Unordered}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := b.Topic(t, 1)
			for range 3 {
				rec := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("v"),
					Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("e")}}}
				if c.key != "" {
					rec.Key = sarama.StringEncoder(c.key)
				}
				b.Produce(t, rec)
			}
			var log journal
			cfg := consumer.Config{Brokers: b.Addrs, Group: serverstest.Group(t), Logger: log.logger(),
				Topics: map[string]consumer.Topic{topic: c.topic}}
			if c.edit != nil {
				c.edit(&cfg)
			}
			r := start(t, cfg)
			eventually(t, "all is committed", func() bool { return b.Committed(t, cfg.Group, topic)[0] == 3 })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range log.with("") {
				if l["level"] == "WARN" {
					got = append(got, l["msg"].(string))
				}
			}
			if len(got) != len(c.says) {
				t.Fatalf("%d lines, want %d: %q", len(got), len(c.says), got)
			}
			for i, want := range c.says {
				if !strings.HasPrefix(got[i], "einmal: "+want) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
		})
	}
}

// A time-out of an attempt that the processing limit ends first never acts.
func TestTimeoutBeyondTheProcessingLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		timeout, limit time.Duration
		says           string
	}{
		{time.Minute, 0, ""},
		{5 * time.Minute, 0, ""},
		{6 * time.Minute, 0, "middleware.Timeout is 6m0s, but Topic.ProcessingLimit is 5m0s"},
		{6 * time.Minute, 10 * time.Minute, ""},
		{6 * time.Minute, -1, ""},
		{time.Minute, time.Second, "middleware.Timeout is 1m0s, but Topic.ProcessingLimit is 1s"},
	} {
		cfg := valid()
		cfg.Topics["orders"] = consumer.Topic{Handler: middleware.Sequence(middleware.Step{
			Name: "a", Middleware: []consumer.Middleware{middleware.Timeout(c.timeout)}, Handler: nop,
		}), ProcessingLimit: c.limit}
		_, err := consumer.New(cfg)
		if found := configErrors(t, err); c.says == "" && err != nil || c.says != "" &&
			(len(found) != 1 || !strings.HasPrefix(found[0].Problem, c.says)) {
			t.Errorf("%v of %v: %v, want %q", c.timeout, c.limit, err, c.says)
		}
	}
}

// The stores tell the limit that they have.
func TestIdleTimeoutOfStores(t *testing.T) {
	t.Parallel()
	charge := func(context.Context, pgx.Tx, *consumer.Message) error { return nil }
	for name, c := range map[string]struct {
		store interface{ IdleTimeout() time.Duration }
		want  time.Duration
	}{
		"pgxstore":           {pgxstore.New(nil, nil), time.Minute},
		"pgxstore, set":      {pgxstore.New(nil, &pgxstore.Config{IdleTimeout: time.Second}), time.Second},
		"sqlstore":           {sqlstore.New(nil, schema.Postgres, nil), time.Minute},
		"sqlstore on SQLite": {sqlstore.New(nil, schema.SQLite, nil), 0},
		"in a chain":         {ofLink{middleware.Dedup(pgxstore.New(nil, nil), charge, nil)}, time.Minute},
	} {
		if got := c.store.IdleTimeout(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// ofLink asks a link as the consumer does.
type ofLink struct{ consumer.Handler }

func (l ofLink) IdleTimeout() time.Duration {
	return l.Handler.(interface{ StoreIdleTimeout() time.Duration }).StoreIdleTimeout()
}
