package forward_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

func TestRetryTopicNames(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "o.retry.1m", 10 * time.Minute: "o.retry.10m", time.Hour: "o.retry.1h",
		90 * time.Minute: "o.retry.1h30m", 90 * time.Second: "o.retry.1m30s",
		100 * time.Millisecond: "o.retry.100ms", 24 * time.Hour: "o.retry.24h", time.Second: "o.retry.1s",
		time.Hour + time.Second: "o.retry.1h0m1s",
	} {
		if got := forward.RetryTopicName("o", d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got, want := forward.RetryTopicNames("o", nil),
		[]string{"o.retry.1m", "o.retry.10m", "o.retry.1h"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The entries of retry topics are those of the topic, but for what makes them retry topics.
func TestRetryTopicsEntries(t *testing.T) {
	t.Parallel()
	mws := []consumer.Middleware{middleware.Recover()}
	mws[0] = middleware.Retry(1, nil)
	given := consumer.Topic{
		Consumer: "billing", Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }),
		Middleware: mws,
		Order:      consumer.KeyOrder, Workers: 7, ProcessingLimit: time.Minute, OnFailure: consumer.Stop,
		OnStuck: consumer.LeaveGroup,
		Start:   consumer.FromNewest(), OutOfRange: consumer.Fail,
	}
	f := open(t)
	topics := forward.RetryTopics(pgxstore.New(f.pool, nil), pgxoutbox.NewWriter(nil), "orders", given, nil)
	names := slices.Sorted(maps.Keys(topics))
	if want := []string{"orders", "orders.retry.10m", "orders.retry.1h", "orders.retry.1m"}; !slices.Equal(names, want) {
		t.Fatalf("%q, want %q", names, want)
	}
	for name, got := range topics {
		want := given
		if name != "orders" {
			want.Order, want.Start, want.OutOfRange = consumer.Unordered, consumer.Start{}, consumer.ToOldest
		}
		if got.Start != want.Start || got.OutOfRange != want.OutOfRange {
			t.Errorf("%s begins at %+v, or %v", name, got.Start, got.OutOfRange)
		}
		if got.Consumer != want.Consumer || got.Order != want.Order || got.Workers != 7 || got.OnFailure != consumer.Stop ||
			got.OnStuck != consumer.LeaveGroup || got.ProcessingLimit != time.Minute {
			t.Errorf("%s: %+v", name, got)
		}
		if want := map[bool]string{true: "", false: "orders"}[name == "orders"]; got.SameEventsAs != want {
			t.Errorf("%s has the same events as %q, want %q", name, got.SameEventsAs, want)
		}
		if (got.EventID == nil) != (name == "orders") {
			t.Errorf("%s takes its ids from elsewhere", name)
		}
	}
	if len(mws) != 1 || len(given.Middleware) != 1 {
		t.Error("the caller's list was changed")
	}
	copied := given
	copied.SameEventsAs = "orders.old"
	for name, got := range forward.RetryTopics(pgxstore.New(f.pool, nil), pgxoutbox.NewWriter(nil), "orders", copied,
		nil) {
		if got.SameEventsAs != "orders.old" {
			t.Errorf("%s of a copy has the same events as %q", name, got.SameEventsAs)
		}
	}
	cfg := consumer.Config{Brokers: []string{"b:1"}, Group: "g", Topics: topics}
	c, err := consumer.New(cfg)
	must(t, err)
	must(t, c.Check(t.Context()))
	f.exec("drop table outbox_event")
	if err := c.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "outbox_event") {
		t.Errorf("without an outbox: %v", err)
	}
}

func TestRetryTopicsInvalid(t *testing.T) {
	t.Parallel()
	f := open(t)
	s, e := pgxstore.New(f.pool, nil), pgxoutbox.NewWriter(nil)
	nop := consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })
	valid := consumer.Topic{Consumer: "billing", Handler: nop, Middleware: []consumer.Middleware{middleware.Retry(1, nil)}}
	nameless, retryless, inside := valid, valid, valid
	nameless.Consumer, retryless.Middleware = "", []consumer.Middleware{middleware.Recover()}
	inside.Middleware = []consumer.Middleware{middleware.Retry(1, nil),
		middleware.DeadLetter(s, pgxdeadletter.New(f.pool, nil), nil)}
	delays := func(d ...time.Duration) *forward.RetryTopicsConfig { return &forward.RetryTopicsConfig{Delays: d} }
	for says, topics := range map[string]map[string]consumer.Topic{
		"the store is nil":            forward.RetryTopics[pgx.Tx](nil, e, "orders", valid, nil),
		"the writer of events is nil": forward.RetryTopics[pgx.Tx](s, nil, "orders", valid, nil),
		"Topic.Consumer is empty":     forward.RetryTopics(s, e, "orders", nameless, nil),
		"has no middleware.Retry":     forward.RetryTopics(s, e, "orders", retryless, nil),
		"DeadLetter stands inside":    forward.RetryTopics(s, e, "orders", inside, nil),
		"less than a millisecond":     forward.RetryTopics(s, e, "orders", valid, delays(time.Second, -1)),
		"the delay 999.999µs is less": forward.RetryTopics(s, e, "orders", valid, delays(time.Millisecond-1)),
		"the delay 0s is less":        forward.RetryTopics(s, e, "orders", valid, delays(0)),
		`two topics have the name "p"`: forward.RetryTopics(s, e, "p", valid,
			&forward.RetryTopicsConfig{Delays: []time.Duration{time.Second},
				Name: func(string, time.Duration) string { return "p" }}),
		"stands twice":               forward.RetryTopics(s, e, "orders", valid, delays(time.Second, time.Second)),
		"is not the name of a topic": forward.RetryTopics(s, e, strings.Repeat("x", 245), valid, nil),
		`two topics have the name "o"`: forward.RetryTopics(s, e, "o", valid,
			&forward.RetryTopicsConfig{Name: func(string, time.Duration) string { return "o" }}),
	} {
		_, err := consumer.New(consumer.Config{Brokers: []string{"b:1"}, Group: "g", Topics: topics})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	_, err := consumer.New(consumer.Config{
		Brokers: []string{"b:1"}, Group: "g", Middleware: []consumer.Middleware{middleware.Retry(1, nil)},
		Topics: forward.RetryTopics(s, e, "orders", retryless, nil),
	})
	if err == nil || !strings.Contains(err.Error(), "none into Config.Middleware") {
		t.Errorf("%v", err)
	}
}

// stops are where a message was handled.
type stops struct {
	mu   sync.Mutex
	seen map[string][]consumer.Message // by the id of the event
}

func (s *stops) add(msg *consumer.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string][]consumer.Message{}
	}
	s.seen[msg.EventID] = append(s.seen[msg.EventID], *msg)
}

func (s *stops) of(event string) []consumer.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen[event])
}

func (s *stops) all() map[string][]consumer.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seen)
}

var idSources = map[string]func(*consumer.Message) (string, error){"header": nil, "place": consumer.OffsetID,
	"key": consumer.UniqueKeyID}

// Messages fail so many times, and go through the retry topics, each after its delay, and after the last one into the
// table of dead letters; what takes effect does so once, under the key that it would have had at first. Those behind it
// do not wait.
func TestRetryTopics(t *testing.T) {
	t.Parallel()
	for name, from := range idSources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) { goThrough(t, b, from) })
		})
	}
}

func goThrough(t *testing.T, b *serverstest.Broker, from func(*consumer.Message) (string, error)) {
	f := open(t)
	orders, group := b.Topic(t, 1), serverstest.Group(t)
	delays := []time.Duration{300 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond}
	names := []string{b.Topic(t, 2), b.Topic(t, 1), b.Topic(t, 1)}
	cfg := &forward.RetryTopicsConfig{Delays: delays, Logger: quiet(),
		Name: func(_ string, d time.Duration) string { return names[slices.Index(delays, d)] }}
	failures := map[string]int{"ok": 0, "once": 1, "thrice": 3, "always": 100} // by the key
	var handled stops
	store := pgxstore.New(f.pool, nil)
	topic := consumer.Topic{
		Consumer: "billing",
		EventID:  from,
		Middleware: []consumer.Middleware{middleware.DeadLetter(store, pgxdeadletter.New(f.pool, nil), nil),
			middleware.Retry(2, &middleware.RetryConfig{Base: time.Millisecond}), middleware.Recover()},
		Handler: middleware.Dedup(store, func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
			if _, err := tx.Exec(ctx, effectSQL, string(msg.Key)); err != nil {
				return err
			}
			handled.add(msg)
			if len(handled.of(msg.EventID)) <= 2*failures[string(msg.Key)] { // in each topic there are two attempts
				return errBase
			}
			return nil
		}, nil),
	}
	f.relay(b)
	f.consume(b, group, forward.RetryTopics(store, pgxoutbox.NewWriter(nil), orders, topic, cfg))
	keys := []string{"always", "thrice", "once", "ok"}
	var msgs []*sarama.ProducerMessage
	for _, key := range keys {
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: orders, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder("value"),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("id of " + key)},
				{Key: []byte("h"), Value: []byte("v")}},
		})
	}
	b.Produce(t, msgs...)
	eventually(t, "all have taken effect or died", func() bool {
		return f.count("select count(*) from effect") == 3 && f.count("select count(*) from dead_message") == 1
	})
	for _, key := range keys {
		ids := map[string]bool{}
		var passed []string // the topics
		for _, seen := range handled.all() {
			for _, msg := range seen {
				if string(msg.Key) != key {
					continue
				}
				ids[msg.EventID] = true
				passed = append(passed, msg.Topic)
				own, _ := msg.Header("event-id")
				h, _ := msg.Header("h")
				if msg.Consumer != "billing" || string(msg.Value) != "value" || string(h) != "v" || string(own) != "id of "+key {
					t.Errorf("%s came as %+v", key, msg)
				}
				if msg.Topic == orders {
					continue
				}
				due, _ := msg.Header(forward.RetryDueHeader)
				at, err := time.Parse(time.RFC3339Nano, string(due))
				origin, _ := msg.Header(forward.RetryTopicHeader)
				if err != nil || msg.FirstAttempt.Before(at.Add(-time.Millisecond)) || string(origin) != orders ||
					msg.Attempt > 2 || len(msg.Headers) != 9 {
					t.Errorf("%s in %s: due %v, first attempt %v, %q (%v)", key, msg.Topic, at, msg.FirstAttempt, msg.Headers, err)
				}
			}
		}
		want := expected(min(failures[key], 3), failures[key] > 3, append([]string{orders}, names...))
		if !reflect.DeepEqual(passed, want) || len(ids) != 1 {
			t.Errorf("%s was handled in %q under %d ids, want %q and 1", key, passed, len(ids), want)
		}
	}
	// A record for each event, and for each time that one was handed on: thrice and always three times each, once once.
	f.want(1, 4+3+3+1, 0)
	if n := f.count("select count(*) from processed_event where consumer_id = 'billing/retry/300ms'"); n != 3 {
		t.Errorf("%d were handed on to the first retry topic, want 3", n)
	}
	if topic := f.text("select topic from dead_message"); topic != names[2] {
		t.Errorf("it died in %s", topic)
	}
	b.Produce(t, msgs...) // all once more, and a last one
	last := produced(orders, "last")
	last[0].Key = sarama.StringEncoder("last")
	b.Produce(t, last...)
	eventually(t, "the last takes effect",
		func() bool { return f.count("select count(*) from effect where event = 'last'") == 1 })
	if from == nil && f.count("select count(*) from effect") != 4 {
		t.Error("a message that was delivered again has taken effect again")
	}
}

// expected are the topics of a message that fails in so many: twice in each, once in the one after them, unless it
// always fails.
func expected(failures int, always bool, topics []string) (list []string) {
	for _, topic := range topics[:failures] {
		list = append(list, topic, topic)
	}
	if list = append(list, topics[failures]); always {
		list = append(list, topics[failures])
	}
	return list
}

func (f *fixture) text(query string) (text string) {
	f.t.Helper()
	if err := f.pool.QueryRow(f.t.Context(), query).Scan(&text); err != nil {
		f.t.Fatalf("%.100s: %v", query, err)
	}
	return text
}

// An event that the outbox does not take goes where it goes without retry topics.
func TestRetryTopicsTooLarge(t *testing.T) {
	t.Parallel()
	f := open(t)
	store := pgxstore.New(f.pool, nil)
	topics := forward.RetryTopics(store, pgxoutbox.NewWriter(nil), "orders", consumer.Topic{
		Consumer: "billing",
		Middleware: []consumer.Middleware{middleware.DeadLetter(store, pgxdeadletter.New(f.pool, nil), nil),
			middleware.Retry(1, nil)},
		Handler: middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error { return errBase }, nil),
	}, &forward.RetryTopicsConfig{Logger: quiet()})
	c, err := consumer.New(consumer.Config{Brokers: []string{"b:1"}, Group: "g", Topics: topics})
	must(t, err)
	for i, value := range [][]byte{make([]byte, 2_000_000), {}} {
		d, err := c.Deliver(&consumer.Message{Topic: "orders", Value: value,
			Headers: []consumer.Header{{Key: "event-id", Value: fmt.Append(nil, i)}}})
		must(t, err)
		a := d.Attempt(t.Context())
		if res := a.Message.Result; a.Err != nil || res.Dead != (i == 0) || (res.HandedOn == nil) != (i == 0) {
			t.Errorf("%d: %v, %+v", i, a.Err, res)
		}
	}
	f.want(1, 2, 1)
}

// A message goes to the partition of a retry topic that it had in the topic before, where its key's other messages go
// too.
func TestRetryTopicsKeepThePartition(t *testing.T) {
	t.Parallel()
	f := open(t)
	store := pgxstore.New(f.pool, nil)
	c, err := consumer.New(consumer.Config{Brokers: []string{"b:1"}, Group: "g",
		Topics: forward.RetryTopics(store, pgxoutbox.NewWriter(nil), "orders", consumer.Topic{
			Consumer:   "billing",
			Middleware: []consumer.Middleware{middleware.Retry(1, nil)},
			Handler:    middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error { return errBase }, nil),
		}, &forward.RetryTopicsConfig{Logger: quiet()})})
	must(t, err)
	for _, partition := range []int32{0, 3} {
		d, err := c.Deliver(&consumer.Message{Topic: "orders", Partition: partition,
			Headers: []consumer.Header{{Key: "event-id", Value: fmt.Append(nil, partition)}}})
		must(t, err)
		must(t, d.Attempt(t.Context()).Err)
	}
	if got := f.text("select string_agg(partition::text, ' ' order by partition) from outbox_event where topic = 'orders.retry.1m'"); got != "0 3" {
		t.Errorf("they go to the partitions %q", got)
	}
}

// A message whose delay is not over is nobody's start: CrashLoop, which stands inside of the wait, neither counts nor
// asks for it.
func TestRetryTopicsWaitOutsideOfCrashLoop(t *testing.T) {
	t.Parallel()
	f := open(t)
	store, dead := pgxstore.New(f.pool, nil), pgxdeadletter.New(f.pool, nil)
	c, err := consumer.New(consumer.Config{Brokers: []string{"b:1"}, Group: "g",
		Topics: forward.RetryTopics(store, pgxoutbox.NewWriter(nil), "orders", consumer.Topic{
			Consumer:   "billing",
			Middleware: []consumer.Middleware{middleware.CrashLoop(dead.Starts(), nil), middleware.Retry(1, nil)},
			Handler:    middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error { return nil }, nil),
		}, &forward.RetryTopicsConfig{Logger: quiet()})})
	must(t, err)
	f.exec("drop table if exists started_message")
	due := time.Now().Add(time.Hour)
	msg := &consumer.Message{Topic: "orders.retry.1h", Timestamp: time.Now(), Headers: []consumer.Header{
		{Key: forward.RetryEventHeader, Value: []byte("e1")},
		{Key: forward.RetryDueHeader, Value: []byte(due.UTC().Format(time.RFC3339Nano))},
	}}
	d, err := c.Deliver(msg)
	must(t, err)
	if a := d.Attempt(t.Context()); a.Err != nil && strings.Contains(a.Err.Error(), "started_message") ||
		a.Delay < 50*time.Minute {
		t.Errorf("before it is due: %+v", a)
	}
}

// A dead letter that is published again can be handed on again, although it was before.
func TestRetryTopicsAfterARedrive(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, _ *fixture, k *kit) {
		key := dedupstore.Key{Consumer: "billing/orders", Event: id(1)}
		_, err := k.record(t.Context(), key.HandOn("1m"))
		must(t, err)
		must(t, k.bury(t.Context(), deadOf(message(1), "permanent")))
		_, err = k.redrive(t.Context(), nil)
		must(t, err)
		if ran, err := k.record(t.Context(), key.HandOn("1m")); err != nil || !ran {
			t.Errorf("it would be taken for handed on, and lost: %v, %v", ran, err)
		}
	})
}
