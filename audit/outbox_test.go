package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

// sender is a service whose outbox is audited.
type sender struct {
	*serverstest.Broker
	topic string
	pool  *pgxpool.Pool
	cfg   audit.OutboxConfig
}

func newSender(t *testing.T, b *serverstest.Broker) *sender {
	t.Helper()
	s := &sender{Broker: b, topic: b.Topic(t, 2), pool: serverstest.Pool(t)}
	s.exec(t, schema.Postgres.SQL(nil, schema.Outbox))
	s.cfg = audit.OutboxConfig{Topic: s.topic, Keep: time.Hour, TempDir: t.TempDir()}
	return s
}

func (s *sender) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (s *sender) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// write writes events "key.number" of the keys, by turns.
func (s *sender) write(t *testing.T, from, to int) {
	t.Helper()
	w := pgxoutbox.NewWriter(nil)
	for n := from; n < to; n++ {
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			for _, key := range []string{"a", "b", "c"} {
				e := outbox.Event{ID: fmt.Sprint(key, ".", n), Topic: s.topic, Key: []byte(key),
					Value: fmt.Append(nil, "value ", n)}
				if err := w.Write(t.Context(), tx, e); err != nil {
					return err
				}
			}
			return w.Write(t.Context(), tx, outbox.Event{ID: fmt.Sprint("none.", n), Topic: s.topic})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// relay runs one until nothing waits.
func (s *sender) relay(t *testing.T, mode outbox.Mode) {
	t.Helper()
	r, err := relay.New(relay.Config{
		Database: pgxoutbox.NewDatabase(s.pool), Brokers: s.Addrs, Mode: mode, Keep: time.Hour, Workers: 1,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); s.count(t,
		"select count(*) from outbox_event where status in ('PENDING', 'PUBLISHING')") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the relay has not sent what waits")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// finished has ten events of each of three keys, and ten without a key, sent by a relay.
func (s *sender) finished(t *testing.T, mode outbox.Mode) {
	t.Helper()
	s.write(t, 0, 10)
	s.relay(t, mode)
}

func (s *sender) audit(t *testing.T) *audit.OutboxReport {
	t.Helper()
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	r, err := audit.Outbox(t.Context(), audit.Kafka{Brokers: s.Addrs}, db, s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// copy sends the event of a row once more, as a relay does whose predecessor died.
func (s *sender) copy(t *testing.T, id, value string) {
	t.Helper()
	msg := &sarama.ProducerMessage{
		Topic: s.topic, Key: sarama.StringEncoder(id[:1]), Value: sarama.StringEncoder(value), Timestamp: time.Now(),
		Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}},
	}
	partition, err := sarama.NewHashPartitioner(s.topic).Partition(msg, 2)
	if err != nil {
		t.Fatal(err)
	}
	msg.Partition = partition
	s.Produce(t, msg)
}

// wantSent fails the test unless exactly this was found.
func wantSent(t *testing.T, what string, r *audit.OutboxReport, want map[audit.Kind][]string) {
	t.Helper()
	wantFound(t, what, r.Found, want)
	if r.Clean() != !slices.ContainsFunc(audit.OutboxFindings(), func(k audit.Kind) bool { return len(want[k]) > 0 }) {
		t.Errorf("%s: Clean() = %v", what, r.Clean())
	}
}

// sentDamage is a way to break what a relay has done.
type sentDamage struct {
	name  string
	do    func(t *testing.T, s *sender)
	kind  audit.Kind
	found string
}

var sentDamages = []sentDamage{
	{"an event is dropped on its way", func(t *testing.T, s *sender) {
		t.Helper()
		s.exec(t, `insert into outbox_event (event_id, topic, partition_key, payload, status, published_at) values ('dropped', $1, 'a', 'x', 'PUBLISHED', clock_timestamp())`, s.topic)
	}, audit.Missing, "dropped"},
	{"the row of an event is deleted", func(t *testing.T, s *sender) {
		t.Helper()
		s.exec(t, `delete from outbox_event where event_id = 'b.3'`)
	}, audit.WithoutRow, "b.3"},
	{"two of a key are swapped", func(t *testing.T, s *sender) {
		t.Helper()
		// as if the writer of c.5 had come before that of c.4: the log has them in the other order
		s.exec(t, `update outbox_event o set event_id = x.event_id, payload = x.payload from outbox_event x
where o.event_id in ('c.4', 'c.5') and x.event_id in ('c.4', 'c.5') and x.event_id <> o.event_id`)
	}, audit.OutOfOrder, "c.5"},
	{"a value is changed under an id", func(t *testing.T, s *sender) {
		t.Helper()
		s.exec(t, `update outbox_event set payload = 'another' where event_id = 'a.7'`)
	}, audit.DifferentValues, "a.7"},
	{"an event is sent twice", func(t *testing.T, s *sender) {
		t.Helper()
		s.copy(t, "b.6", "value 6")
	}, audit.Repeated, "b.6"},
}

// Exactly what was damaged is found, by itself and in every order, whatever the relay's mode.
func TestDamagedOutbox(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				for _, d := range sentDamages {
					t.Run(d.name, func(t *testing.T) {
						t.Parallel()
						s := newSender(t, b)
						s.finished(t, mode)
						r := s.audit(t)
						wantSent(t, "before", r, nil)
						if r.Published != 40 || r.Sent != 40 || r.Messages != 40 || r.Events != 40 || r.Rows != 40 {
							t.Errorf("%+v", r)
						}
						d.do(t, s)
						wantSent(t, d.name, s.audit(t), map[audit.Kind][]string{d.kind: {d.found}})
					})
				}
			})
		})
	}
}

// All damages at once are found, each as it is, in whatever order they come.
func TestOutboxDamagedInEveryOrder(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	for _, order := range permutations(4) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			s := newSender(t, b)
			s.finished(t, outbox.SinglePhase)
			planted := map[audit.Kind][]string{}
			for _, n := range order {
				d := sentDamages[n]
				d.do(t, s)
				planted[d.kind] = append(planted[d.kind], d.found)
			}
			wantSent(t, "in the end", s.audit(t), planted)
		})
	}
}

// What relays may leave behind is told apart, and is no finding.
func TestOutboxToldApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *sender)
		want func(r *audit.OutboxReport) bool
	}{
		{"what waits, is blocked or discarded", func(t *testing.T, s *sender) {
			t.Helper()
			s.exec(t, `insert into outbox_event (event_id, topic, partition_key, status) select v.column1, $1::text, 'z'::bytea, v.column1 from (values ('PENDING'), ('PUBLISHING'), ('BLOCKED'), ('DEAD')) v`, s.topic)
		}, func(r *audit.OutboxReport) bool {
			return r.Waiting == 2 && r.Blocked == 1 && r.Discarded == 1 && r.Rows == 44
		}},
		{"an event that was sent, and whose row waits still", func(t *testing.T, s *sender) {
			t.Helper()
			s.exec(t, `update outbox_event set status = 'PENDING', published_at = null where event_id = 'a.9'`)
		}, func(r *audit.OutboxReport) bool { return r.Waiting == 1 && r.Sent == 39 }},
		{"rows of which nobody knows how long they were kept", func(t *testing.T, s *sender) {
			t.Helper()
			s.cfg.Keep = 0
			s.exec(t, `delete from outbox_event where event_id like 'a.%'`)
		}, func(r *audit.OutboxReport) bool { return r.Swept == 10 && r.Sent == 30 }},
		{"rows that have been swept", func(t *testing.T, s *sender) {
			t.Helper()
			s.Produce(t, &sarama.ProducerMessage{
				Topic: s.topic, Timestamp: time.Now().Add(-2 * time.Hour),
				Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("swept")}},
			})
		}, func(r *audit.OutboxReport) bool { return r.Swept == 1 && r.Sent == 40 }},
		{"rows outside of the window", func(t *testing.T, s *sender) {
			t.Helper()
			s.cfg.From, s.cfg.To = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			s.exec(t, `insert into outbox_event (event_id, topic, status, published_at) values ('dropped', $1, 'PUBLISHED', clock_timestamp())`, s.topic)
		}, func(r *audit.OutboxReport) bool { return r.Published == 0 && r.Rows == 41 && r.Messages == 0 }},
		{"what the topic's retention has deleted", func(t *testing.T, s *sender) {
			t.Helper()
			admin, err := sarama.NewClusterAdmin(s.Addrs, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			if err := admin.DeleteRecords(s.topic,
				map[int32]int64{0: s.End(t, s.topic, 0), 1: s.End(t, s.topic, 1)}); err != nil {
				t.Fatal(err)
			}
		}, func(r *audit.OutboxReport) bool { return r.Deleted == 40 && r.Sent == 0 }},
		{"messages of other producers", func(t *testing.T, s *sender) {
			t.Helper()
			s.Produce(t, &sarama.ProducerMessage{Topic: s.topic, Value: sarama.StringEncoder("x")})
		}, func(r *audit.OutboxReport) bool { return r.Found[audit.WithoutID].Count == 1 && r.Events == 41 }},
		{"an event that was redriven", func(t *testing.T, s *sender) {
			t.Helper() // it stood there before its row was written, behind which others of its key have come
			s.write(t, 10, 11)
			s.copy(t, "a.11", "value 11")
			s.exec(t, `select pg_sleep(0.01)`)
			s.write(t, 11, 12)
			s.relay(t, outbox.SinglePhase)
		}, func(r *audit.OutboxReport) bool { return r.Sent == 48 && r.Found[audit.Repeated].Count == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, serverstest.InProcess(t))
			s.finished(t, outbox.SinglePhase)
			c.do(t, s)
			if r := s.audit(t); !r.Clean() || !c.want(r) {
				t.Errorf("%+v\n%+v", r, r.Found)
			}
		})
	}
}

// Beside a relay that works, and writers that write, nothing is found.
func TestOutboxBesideARelay(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		s := newSender(t, b)
		r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(s.pool), Brokers: s.Addrs, Keep: time.Hour,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		written := make(chan struct{})
		go func() {
			defer close(written)
			s.write(t, 0, 100)
		}()
		for audits, over := 0, false; ; audits++ {
			report := s.audit(t)
			if !report.Clean() {
				t.Fatalf("after %d audits beside it: %+v", audits, report)
			}
			select {
			case <-written:
				over = true
			default:
			}
			if over && report.Sent == 400 {
				break
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What cannot be answered is an error, which says what to do.
func TestOutboxThatCannotBeAudited(t *testing.T) {
	t.Parallel()
	s := newSender(t, serverstest.InProcess(t))
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	for _, c := range []struct {
		edit func(*audit.OutboxConfig)
		says string
	}{
		{func(c *audit.OutboxConfig) { c.Topic = "" }, "name the topic"},
		{func(c *audit.OutboxConfig) { c.Topic += "x" }, s.topic + "x"},
		{func(c *audit.OutboxConfig) { c.Keep = -1 }, "OutboxConfig.Keep is -1ns"},
		{func(c *audit.OutboxConfig) { c.Rate = -1 }, "OutboxConfig.Rate is -1"},
		{func(c *audit.OutboxConfig) { c.From = time.Now(); c.To = c.From.Add(-1) }, "From is not before To"},
		{func(c *audit.OutboxConfig) {
			c.Tables = &schema.Config{Tables: map[string]string{"outbox_event": "nothing"}}
		}, `there is no table "nothing"`},
	} {
		cfg := s.cfg
		c.edit(&cfg)
		if r, err := audit.Outbox(t.Context(), audit.Kafka{Brokers: s.Addrs}, db, cfg); r != nil || err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want it to say %q", err, c.says)
		}
	}
	if _, err := audit.Outbox(t.Context(), audit.Kafka{}, db, s.cfg); err == nil ||
		!strings.Contains(err.Error(), "Kafka.Brokers is empty") {
		t.Errorf("without brokers: %v", err)
	}
}
