package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

const effects = "select event_id from charge"

// service is one whose outcome is audited: what it has in Kafka, and in its database.
type service struct {
	*serverstest.Broker
	topic, group string
	dialect      schema.Dialect
	url          string
	db           *sql.DB
	cfg          audit.Config
}

func newService(t *testing.T, b *serverstest.Broker, dialect schema.Dialect) *service {
	t.Helper()
	if dialect == schema.Postgres {
		return newServiceOn(t, b, dialect, serverstest.DatabaseURL(t))
	}
	return newServiceOn(t, b, dialect, "file:"+filepath.Join(t.TempDir(), "db")+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
}

// drivers are those of the dialects.
var drivers = map[schema.Dialect]string{schema.Postgres: "pgx", schema.SQLite: "sqlite"}

func newServiceOn(t *testing.T, b *serverstest.Broker, dialect schema.Dialect, url string) *service {
	t.Helper()
	s := &service{Broker: b, topic: b.Topic(t, 2), group: serverstest.Group(t), dialect: dialect, url: url}
	var err error
	if s.db, err = sql.Open(drivers[dialect], url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	apply := func(ctx context.Context, text string) error {
		_, err := s.db.ExecContext(ctx, text)
		return err
	}
	if err := dialect.Apply(t.Context(), apply, nil); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "create table charge (event_id text not null)")
	s.cfg = audit.Config{Topic: s.topic, Group: s.group, Dialect: dialect, Effects: effects, TempDir: t.TempDir()}
	return s
}

func (s *service) exec(t *testing.T, query string) {
	t.Helper()
	res, err := s.db.ExecContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if n, err := res.RowsAffected(); err == nil && n != 1 && !strings.HasPrefix(query, "create") {
		t.Fatalf("%s: %d rows", query, n)
	}
}

func (s *service) produce(t *testing.T, partition int32, id, value string) {
	t.Helper()
	s.Produce(t, s.message(partition, id, value))
}

func (s *service) message(partition int32, id, value string) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: s.topic, Partition: partition, Value: sarama.StringEncoder(value)}
	if id != "" {
		m.Headers = []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}}
	}
	return m
}

// commit commits an offset, as a tool or a wrong hand does.
func (s *service) commit(t *testing.T, partition int32, offset int64) {
	t.Helper()
	s.Commit(t, s.group, s.topic, partition, offset)
}

func (s *service) audit(t *testing.T) *audit.Report {
	t.Helper()
	r, err := audit.Run(t.Context(), audit.Kafka{Brokers: s.Addrs}, s.db, s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// want fails the test unless exactly this was found: kinds, and the ids or places of each.
func want(t *testing.T, what string, r *audit.Report, want map[audit.Kind][]string) {
	t.Helper()
	wantFound(t, what, r.Found, want)
	if r.Clean() != !slices.ContainsFunc(audit.Findings(), func(k audit.Kind) bool { return len(want[k]) > 0 }) {
		t.Errorf("%s: Clean() = %v", what, r.Clean())
	}
}

func wantFound(t *testing.T, what string, all audit.Found, want map[audit.Kind][]string) {
	t.Helper()
	for kind, found := range all {
		var got []string
		for _, e := range found.Examples {
			id := e.Event
			if id == "" {
				id = fmt.Sprintf("%d/%d", e.Places[0].Partition, e.Places[0].Offset)
			}
			got = append(got, id)
		}
		if !slices.Equal(got, want[kind]) || found.Count != int64(len(got)) {
			t.Errorf("%s: %s: found %q (%d), want %q", what, kind, got, found.Count, want[kind])
		}
	}
}

// finished writes what a run leaves that has handled ten events.
func (s *service) finished(t *testing.T) {
	t.Helper()
	var messages []*sarama.ProducerMessage
	for n := range 10 {
		id := fmt.Sprintf("e%d", n)
		messages = append(messages, s.message(int32(n%2), id, "value of "+id))
		s.exec(t, fmt.Sprintf("insert into processed_event (event_id, consumer_id) values ('%s', '%s/%s')", id, s.group,
			s.topic))
		s.exec(t, fmt.Sprintf("insert into charge (event_id) values ('%s')", id))
	}
	s.Produce(t, messages...)
	s.commit(t, 0, 5)
	s.commit(t, 1, 5)
}

// damage is a way to break a finished run.
type damage struct {
	name  string
	do    func(t *testing.T, s *service)
	kind  audit.Kind
	found string
}

var damages = []damage{
	{"a record is deleted", func(t *testing.T, s *service) {
		t.Helper()
		s.exec(t, "delete from processed_event where event_id = 'e2'")
	}, audit.EffectsWithoutRecord, "e2"},
	{"an effect is doubled", func(t *testing.T, s *service) {
		t.Helper()
		s.exec(t, "insert into charge (event_id) values ('e3')")
	}, audit.DoubledEffects, "e3"},
	{"an offset is skipped", func(t *testing.T, s *service) {
		t.Helper()
		s.produce(t, 0, "skipped", "x")
		s.commit(t, 0, s.End(t, s.topic, 0))
	}, audit.Lost, "skipped"},
	{"a value is changed under an id", func(t *testing.T, s *service) {
		t.Helper()
		s.produce(t, 1, "e4", "another value")
	}, audit.DifferentValues, "e4"},
}

var others = []damage{
	{"an effect is deleted", func(t *testing.T, s *service) {
		t.Helper()
		s.exec(t, "delete from charge where event_id = 'e5'")
	}, audit.RecordsWithoutEffect, "e5"},
	{"the offset is behind the end", func(t *testing.T, s *service) {
		t.Helper()
		s.commit(t, 1, s.End(t, s.topic, 1)+7)
	}, audit.CommittedTooFar, "1/12"},
	{"an event is there twice", func(t *testing.T, s *service) {
		t.Helper()
		s.produce(t, 0, "e6", "value of e6")
	}, audit.Repeated, "e6"},
	{"a record and its effect are deleted", func(t *testing.T, s *service) {
		t.Helper()
		s.exec(t, "delete from processed_event where event_id = 'e7'")
		s.exec(t, "delete from charge where event_id = 'e7'")
	}, audit.Lost, "e7"},
	{"a message without an id is skipped", func(t *testing.T, s *service) {
		t.Helper()
		s.produce(t, 0, "", "x")
		s.commit(t, 0, 6)
	}, audit.Lost, "0/5"},
}

func eachDialect(t *testing.T, f func(t *testing.T, dialect schema.Dialect)) {
	t.Helper()
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			f(t, dialect)
		})
	}
}

// Exactly what was damaged is found, in every order in which a finished run can be damaged, and
// after each step of the first of them.
func TestPlantedDamageIsFoundInEveryOrder(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect schema.Dialect) {
		b := serverstest.InProcess(t)
		for first, order := range permutations(len(damages)) {
			t.Run(fmt.Sprint(order), func(t *testing.T) {
				t.Parallel()
				s := newService(t, b, dialect)
				s.finished(t)
				planted := map[audit.Kind][]string{}
				for n, damage := range order {
					if first == 0 {
						want(t, fmt.Sprintf("%d damages", n), s.audit(t), planted)
					}
					d := damages[damage]
					d.do(t, s)
					planted[d.kind] = append(planted[d.kind], d.found)
				}
				want(t, "in the end", s.audit(t), planted)
			})
		}
	})
}

func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{{}}
	}
	for _, shorter := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(shorter), at, n-1))
		}
	}
	return all
}

// Each damage by itself, with the effects and without a look at them.
func TestEachDamage(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect schema.Dialect) {
		for _, d := range slices.Concat(damages, others) {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
					s := newService(t, b, dialect)
					s.finished(t)
					d.do(t, s)
					planted := map[audit.Kind][]string{d.kind: {d.found}}
					if d.found == "0/5" {
						planted[audit.WithoutID] = []string{"0/5"}
					}
					want(t, d.name, s.audit(t), planted)

					s.cfg.Effects = ""
					blind := maps.Clone(planted)
					for _, kind := range []audit.Kind{audit.DoubledEffects, audit.EffectsWithoutRecord, audit.RecordsWithoutEffect} {
						delete(blind, kind)
					}
					if d.kind == audit.EffectsWithoutRecord {
						blind[audit.Lost] = []string{d.found}
					}
					want(t, d.name+", without effects", s.audit(t), blind)
				})
			})
		}
	})
}

// run has a real chain handle the events that finished only writes, in an order, by transactions of one or of many
// messages.
func (s *service) run(t *testing.T, order consumer.Order, group int) {
	t.Helper()
	var messages []*sarama.ProducerMessage
	for n := range 10 {
		id := fmt.Sprintf("e%d", n)
		messages = append(messages, s.message(int32(n%2), id, "value of "+id))
	}
	s.Produce(t, messages...)
	handler := func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
		_, err := tx.ExecContext(ctx, "insert into charge (event_id) values ('"+msg.EventID+"')")
		return err
	}
	topic := consumer.Topic{Order: order,
		Handler: middleware.Dedup(sqlstore.New(s.db, s.dialect, &sqlstore.Config{Group: group}), handler, nil)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- consumer.Run(ctx, consumer.Config{
			Brokers: s.Addrs, Group: s.group, Logger: slog.New(slog.DiscardHandler),
			Topics: map[string]consumer.Topic{s.topic: topic},
		})
	}()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c := s.Committed(t, s.group, s.topic); c[0] == 5 && c[1] == 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the service has not finished")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A run of a real service, in each order of its messages and with and without groups, is clean, and what is planted in
// it then is found.
func TestDamageAfterEachOrder(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect schema.Dialect) {
		b := serverstest.InProcess(t)
		for _, order := range []consumer.Order{consumer.PartitionOrder, consumer.KeyOrder, consumer.Unordered} {
			for _, group := range []int{1, 30} {
				t.Run(fmt.Sprintf("%v, groups of %d", order, group), func(t *testing.T) {
					t.Parallel()
					s := newService(t, b, dialect)
					s.run(t, order, group)
					r := s.audit(t)
					want(t, "before", r, nil)
					if r.Recorded != 10 || r.Effects != 10 {
						t.Errorf("%+v", r)
					}
					planted := map[audit.Kind][]string{}
					for _, d := range damages {
						d.do(t, s)
						planted[d.kind] = append(planted[d.kind], d.found)
					}
					want(t, "in the end", s.audit(t), planted)
				})
			}
		}
	})
}

// A run of a real chain, with messages that are handled, repeated, without id, given up, handed on and foreign, is
// clean, while it runs and when it has finished.
func TestRealRunIsClean(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect schema.Dialect) {
		b := serverstest.InProcess(t)
		s := newService(t, b, dialect)
		s.cfg.Foreign = middleware.OtherType("type", "ours")
		messages := []*sarama.ProducerMessage{}
		for n := range 200 {
			m := &sarama.ProducerMessage{Topic: s.topic, Partition: int32(n % 2),
				Value: sarama.StringEncoder(fmt.Sprint(n % 150))}
			m.Headers = []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, "e", n%150)}}
			switch {
			case n%40 == 7 && n < 100:
				m.Headers = nil
			case n%50 == 9 && n < 100:
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte("type"), Value: []byte("theirs")})
			}
			messages = append(messages, m)
		}
		b.Produce(t, messages...)
		s.commit(t, 0, 0)
		store := sqlstore.New(s.db, dialect, nil)
		dead := sqldeadletter.New(s.db, dialect, nil)
		handler := func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
			switch string(msg.Value) {
			case "21", "22":
				return consumer.Permanent(errors.New("no use"))
			case "23":
				return context.DeadlineExceeded
			}
			_, err := tx.ExecContext(ctx, "insert into charge (event_id) values ('"+msg.EventID+"')")
			return err
		}
		cfg := consumer.Config{Brokers: b.Addrs, Group: s.group, Logger: slog.New(slog.DiscardHandler),
			Topics: map[string]consumer.Topic{s.topic: {
				Middleware: []consumer.Middleware{
					middleware.Filter(s.cfg.Foreign, &middleware.FilterConfig{Logger: slog.New(slog.DiscardHandler)}),
					middleware.DeadLetter(store, dead,
						&middleware.DeadLetterConfig{PerSecond: -1, Logger: slog.New(slog.DiscardHandler)}),
					middleware.HandOn(store, "1m", func(context.Context, *sql.Tx, *consumer.Message) error { return nil }, nil),
					middleware.Retry(1, nil),
				},
				Handler: middleware.Dedup(store, handler, nil),
			}}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- consumer.Run(ctx, cfg) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		moving := 0
		for deadline := time.Now().Add(2 * time.Minute); ; moving++ {
			r := s.audit(t)
			if !r.Clean() {
				t.Fatalf("after %d audits beside it: %+v, effects without record %+v, records without effect %+v", moving,
					r.Found[audit.Lost], r.Found[audit.EffectsWithoutRecord], r.Found[audit.RecordsWithoutEffect])
			}
			if c := b.Committed(t, s.group, s.topic); c[0] == 100 && c[1] == 100 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the service has not finished")
			}
		}
		r := s.audit(t)
		if !r.Clean() || r.Undecided != 0 || r.Dead != 5 || r.HandedOn != 1 || r.Filtered != 1 || r.Messages != 200 ||
			r.Found[audit.WithoutID].Count != 3 || r.Recorded != 145 {
			t.Errorf("%+v\n%+v", r, r.Found[audit.Lost])
		}
		s.exec(t, "delete from processed_event where consumer_id like '%/retry/%'")
		want := r.Found[audit.Lost].Count + 1
		if r := s.audit(t); r.Found[audit.Lost].Count != want || r.Found[audit.Lost].Examples[0].Event != "e23" {
			t.Errorf("a hand-on that is gone: %+v", r.Found[audit.Lost])
		}
	})
}
