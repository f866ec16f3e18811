package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

func (b *bench) everyByte() {
	topic := b.Topic(b.t, 3, nil)
	events := []outbox.Event{
		{ID: "plain", Topic: topic, Key: []byte("k"), Value: []byte("v"),
			Headers: []outbox.Header{{Key: "b", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "b", Value: []byte{}}}},
		{ID: "empty", Topic: topic, Key: []byte{}, Value: []byte{}},
		{ID: "none", Topic: topic},
		{ID: `"quotes" \ {}`, Topic: topic, Key: []byte{0, 255}, Value: []byte("\x00\xff\\x")},
	}
	b.write(events...)
	b.start(b.config())
	b.awaitEmpty()
	list := b.records(topic)
	if len(list) != len(events) {
		b.t.Fatalf("%d records, want %d", len(list), len(events))
	}
	for _, msg := range list {
		i := slices.IndexFunc(events, func(e outbox.Event) bool { return e.ID == IDOf(msg) })
		if i < 0 || string(msg.Headers[0].Key) != outbox.IDHeader {
			b.t.Errorf("a record has the headers %v", msg.Headers)
			continue
		}
		if e := events[i]; !sameBytes(msg.Key, e.Key) || !sameBytes(msg.Value, e.Value) ||
			!sameHeaders(msg.Headers[1:], e.Headers) {
			b.t.Errorf("%s became key %q, value %q, headers %v", e.ID, msg.Key, msg.Value, msg.Headers)
		}
		if age := time.Since(msg.Timestamp); age < -time.Minute || age > time.Hour {
			b.t.Errorf("the record's time is %v ago", age)
		}
	}
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func sameHeaders(got []*sarama.RecordHeader, want []outbox.Header) bool {
	return slices.EqualFunc(got, want, func(g *sarama.RecordHeader, w outbox.Header) bool {
		return string(g.Key) == w.Key && sameBytes(g.Value, w.Value)
	})
}

var errNo = errors.New("no")

func (b *bench) committedOnly() {
	topic := b.Topic(b.t, 1, nil)
	b.start(b.config())
	if err := b.Write(b.ctx(), func() error { return errNo }, outbox.Event{ID: "rolled back", Topic: topic,
		Key: []byte("k")}); !errors.Is(err, errNo) {
		b.t.Fatal(err)
	}
	// the late one has its number before the others, and is committed after they were sent
	b.must(b.Write(b.ctx(), func() error {
		for i := range 100 {
			b.write(outbox.Event{ID: fmt.Sprint("early ", i), Topic: topic, Key: []byte(fmt.Sprint(i))})
		}
		b.awaitEmpty()
		return nil
	}, outbox.Event{ID: "late", Topic: topic, Key: []byte("late")}))
	b.awaitEmpty()
	byKey, _ := FirstCopies(b.records(topic))
	if len(byKey) != 101 || len(byKey["late"]) != 1 || len(byKey["k"]) != 0 {
		b.t.Errorf("%d keys, of late %v, of k %v", len(byKey), byKey["late"], byKey["k"])
	}
}

// order has writers and three relays at work at once.
func (b *bench) order() {
	const writers, keys, each = 4, 7, 150
	topic := b.Topic(b.t, 3, nil)
	want := b.writeInOrder(topic, writers, keys, each)
	for range 3 {
		cfg := b.config()
		cfg.BatchRows = 50
		b.start(cfg)
	}
	more := b.writeInOrder(topic, writers, keys, each)
	b.awaitEmpty()
	for k := range more {
		want[k] = append(want[k], more[k]...)
	}
	b.wantInOrder(topic, want)
}

// writeInOrder writes events of some keys from several goroutines, which serialise by key, and returns the order of
// each key. Each call has keys of its own ids.
func (b *bench) writeInOrder(topic string, writers, keys, each int) map[string][]string {
	b.t.Helper()
	var mu sync.Mutex
	locks := make([]sync.Mutex, keys)
	order := map[string][]string{}
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				k := rand.IntN(keys)
				id, key := outbox.NewID(), fmt.Sprint("key ", k)
				locks[k].Lock()
				if err := b.Write(b.ctx(), func() error { return nil }, outbox.Event{ID: id, Topic: topic, Key: []byte(key),
					Value: []byte("v")}); err != nil {
					b.t.Error(err)
				}
				mu.Lock()
				order[key] = append(order[key], id)
				mu.Unlock()
				locks[k].Unlock()
			}
		})
	}
	all.Wait()
	return order
}

// wantInOrder checks that each event is there, and the first copies of each key in order.
func (b *bench) wantInOrder(topic string, want map[string][]string) (repeated int) {
	b.t.Helper()
	got, repeated := FirstCopies(b.records(topic))
	for key, ids := range want {
		if !slices.Equal(got[key], ids) {
			b.t.Errorf("%s: %d events in the order %.200q, want %d in the order %.200q", key, len(got[key]), got[key], len(ids),
				ids)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		b.t.Errorf("%d keys that nobody wrote", len(got))
	}
	return repeated
}

func (b *bench) poison() {
	topic := b.Topic(b.t, 1, map[string]string{"max.message.bytes": "20000"})
	big := bytes.Repeat([]byte("s3cret"), 5000)
	event := func(id, key string, value []byte) outbox.Event {
		return outbox.Event{ID: id, Topic: topic, Key: []byte(key), Value: value}
	}
	b.write(event("a1", "a", nil), event("b1", "b", nil), event("a2", "a", big), event("b2", "b", nil),
		event("a3", "a", nil), event("c1", "c", nil),
		outbox.Event{ID: "free", Topic: topic, Value: big})
	b.must(b.Exec(b.ctx(), "insert into outbox_event (event_id, topic, partition_key, headers) values ('d1', '"+topic+
		"', 'd', 'nonsense'), ('d2', '"+topic+"', 'd', ''), ('e1', 'not a topic', 'e', '')"))
	b.start(b.config())
	b.eventually("the poison is blocked",
		func() bool { return b.value("select count(*) from outbox_event where status = 'BLOCKED'") == 4 })
	b.eventually("all else is sent", func() bool { return b.value("select count(*) from outbox_event") == 6 })
	if n := b.value("select count(*) from outbox_event where status = 'BLOCKED' and attempts = 1 and last_error <> '' and last_error not like '%s3cret%' and event_id in ('a2', 'free', 'd1', 'e1')"); n != 4 {
		b.t.Errorf("%d rows are blocked as they should be", n)
	}
	if n := b.value("select count(*) from outbox_event where status = 'PENDING' and attempts = 0 and event_id in ('a3', 'd2')"); n != 2 {
		b.t.Errorf("%d rows wait behind them", n)
	}
	b.must(b.Exec(b.ctx(), "update outbox_event set payload = 'small', headers = '', status = 'PENDING' where event_id in ('a2', 'd1')"))
	b.eventually("the keys go on", func() bool { return b.value("select count(*) from outbox_event") == 2 })
	got, _ := FirstCopies(b.records(topic))
	if s := fmt.Sprint(got); s != "map[a:[a1 a2 a3] b:[b1 b2] c:[c1] d:[d1 d2]]" {
		b.t.Error(s)
	}
}

func (b *bench) unknownTopic() {
	topic := b.Topic(b.t, 1, nil)
	missing := topic + "-missing"
	b.write(outbox.Event{ID: "m1", Topic: missing, Key: []byte("k")},
		outbox.Event{ID: "m2", Topic: missing, Key: []byte("k")},
		outbox.Event{ID: "1", Topic: topic, Key: []byte("k")}, outbox.Event{ID: "2", Topic: topic, Key: []byte("k")})
	b.start(b.config())
	b.eventually("the head of the key is blocked", func() bool {
		return b.value("select count(*) from outbox_event where status = 'BLOCKED' and event_id = 'm1'") == 1
	})
	b.eventually("the other topic is sent", func() bool { return b.value("select count(*) from outbox_event") == 2 })
	if n := b.value("select count(*) from outbox_event where status = 'PENDING' and attempts = 0 and event_id = 'm2'"); n != 1 {
		b.t.Error("the row behind it does not wait")
	}
	if records, err := Records(b.Brokers, missing); err == nil && len(records) > 0 {
		b.t.Error("the topic was created")
	}
}

func (b *bench) kafkaAway() {
	topic := b.Topic(b.t, 2, nil)
	n := newNetwork()
	cfg := b.config()
	cfg.PublishTimeout, cfg.OutcomeTimeout = 2*time.Second, 4*time.Second
	cfg.Sarama = func(c *sarama.Config) {
		n.use(c)
		c.Producer.Timeout = cfg.PublishTimeout
	}
	r := b.start(cfg)
	want := b.writeInOrder(topic, 2, 5, 20)
	b.awaitEmpty()
	n.set(true)
	more := b.writeInOrder(topic, 2, 5, 20)
	b.eventually("Status tells that it is paused", func() bool { s := r.Status(); return s.Paused && s.Error != nil })
	b.eventually("all rows wait without blame, also those that were on their way", func() bool {
		return b.value("select count(*) from outbox_event where status = 'PENDING' and attempts = 0 and claims = 0") == 40
	})
	n.set(false)
	b.awaitEmpty()
	for k := range more {
		want[k] = append(want[k], more[k]...)
	}
	b.wantInOrder(topic, want)
	b.eventually("Status tells that it goes on", func() bool { return !r.Status().Paused })
}

// connectionsBreak breaks them while there is much to send, in small record batches.
func (b *bench) connectionsBreak() {
	topic := b.Topic(b.t, 2, nil)
	n := newNetwork()
	for range 2 {
		cfg := b.config()
		cfg.BatchRows = 100
		cfg.Sarama = func(c *sarama.Config) {
			n.use(c)
			c.Producer.MaxMessageBytes = 2000
		}
		b.start(cfg)
	}
	done, broken := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(broken)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
				n.cut(0.5)
			}
		}
	}()
	want := b.writeInOrder(topic, 4, 5, 200)
	time.AfterFunc(3*time.Second, sync.OnceFunc(func() { close(done) }))
	b.eventually("all is sent", func() bool { return b.value("select count(*) from outbox_event") == 0 })
	<-broken
	repeated := b.wantInOrder(topic, want)
	b.t.Logf("%d records were sent again", repeated)
}

// stop stops relays while there is much to do. Nothing may stay claimed, and what Kafka has is gone from the table.
func (b *bench) stop() {
	const rows = 1500
	topic := b.Topic(b.t, 2, nil)
	var events []outbox.Event
	for i := range rows {
		events = append(events, outbox.Event{ID: fmt.Sprint(i), Topic: topic, Key: []byte(fmt.Sprint(i % 50))})
	}
	b.write(events...)
	for i := 0; b.value("select count(*) from outbox_event") > 0; i++ {
		cfg := b.config()
		cfg.BatchRows = 100
		r := b.start(cfg)
		before := b.value("select count(*) from outbox_event")
		b.eventually("some are sent", func() bool { return b.value("select count(*) from outbox_event") < before })
		r.stop()
		left := b.value("select count(*) from outbox_event")
		if n := b.value("select count(*) from outbox_event where status = 'PENDING' and claims = 0"); n != left {
			b.t.Fatalf("after a stop %d of %d rows are not as they were", left-n, left)
		}
		if n := b.value("select count(*) from outbox_lease where leased_until > clock_timestamp()"); n != 0 {
			b.t.Fatalf("after a stop %d buckets are leased", n)
		}
		if n := len(b.records(topic)); n != rows-int(left) {
			b.t.Fatalf("Kafka has %d records, %d are gone from the table", n, rows-left)
		}
	}
}

func (b *bench) heldRow() {
	topic := b.Topic(b.t, 1, nil)
	for i := range 3 {
		b.write(outbox.Event{ID: fmt.Sprint("a", i), Topic: topic, Key: []byte("a")},
			outbox.Event{ID: fmt.Sprint("b", i), Topic: topic, Key: []byte("b")})
	}
	b.must(b.Database.InTx(b.ctx(), func(ctx context.Context, tx outbox.Tx) error {
		if _, err := tx.Exec(ctx, "update outbox_event set payload = 'by hand' where event_id = 'a1'"); err != nil {
			return err
		}
		b.start(b.config())
		b.eventually("all else is sent", func() bool { return b.value("select count(*) from outbox_event") == 2 })
		return nil
	}))
	b.awaitEmpty()
	got, _ := FirstCopies(b.records(topic))
	if s := fmt.Sprint(got); s != "map[a:[a0 a1 a2] b:[b0 b1 b2]]" {
		b.t.Error(s)
	}
}

func (b *bench) otherMode() {
	r := b.start(b.config())
	b.eventually("it runs", func() bool { return r.Status().Running })
	cfg := b.config()
	if cfg.Mode = outbox.TwoPhase; b.mode == outbox.TwoPhase {
		cfg.Mode = outbox.SinglePhase
	}
	other, err := relay.New(cfg)
	b.must(err)
	if err := other.Run(b.ctx()); !errors.Is(err, relay.ErrOtherMode) || !strings.Contains(err.Error(), "SwitchMode") {
		b.t.Errorf("Run() = %v", err)
	}
}

// wakeUp has a relay that polls once a minute.
func (b *bench) wakeUp() {
	topic := b.Topic(b.t, 1, nil)
	cfg := b.config()
	cfg.PollInterval, cfg.IdleInterval = time.Minute, time.Minute
	r := b.start(cfg)
	b.eventually("it runs", func() bool { s := r.Status(); return s.Running && !s.Seen.IsZero() })
	for i := range 5 {
		b.write(outbox.Event{ID: fmt.Sprint(i), Topic: topic})
		begun := time.Now()
		b.eventually("it is sent", func() bool { // the first poll may be under way, and see nothing
			r.Wake()
			return b.value("select count(*) from outbox_event") == 0
		})
		if took := time.Since(begun); took > 20*time.Second {
			b.t.Errorf("sent after %v", took)
		}
	}
}
