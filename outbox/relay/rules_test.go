package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// bench is a table and a broker.
type bench struct {
	*tabletest.Fixture
	b     *serverstest.Broker
	write tabletest.Write
	db    outbox.Database
	topic string
}

func newBench(t testing.TB, partitions int32) *bench {
	t.Helper()
	f, b := tabletest.Open(t), serverstest.InProcess(t)
	write, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	return &bench{f, b, write, db, b.Topic(t, partitions)}
}

func (b *bench) config(mode outbox.Mode) relay.Config {
	return relay.Config{Database: b.db, Brokers: b.b.Addrs, Mode: mode, Keep: -1, Logger: slog.New(slog.DiscardHandler)}
}

// start starts a relay, which is stopped when the test ends.
func start(t testing.TB, cfg relay.Config) *relay.Relay {
	t.Helper()
	r, stop := run(t, cfg)
	t.Cleanup(stop)
	return r
}

// run starts a relay, which stop stops.
func run(t testing.TB, cfg relay.Config) (r *relay.Relay, stop func()) {
	t.Helper()
	r, err := relay.New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	}
}

func (b *bench) rows(where string) int {
	b.T.Helper()
	return tabletest.Value[int](b.Fixture, "select count(*) from outbox_event where "+where)
}

func (b *bench) insert(ids ...string) {
	b.T.Helper()
	var events []outbox.Event
	for _, id := range ids {
		events = append(events, outbox.Event{ID: id, Topic: b.topic, Key: []byte("k")})
	}
	must(b.T, b.write(b.T.Context(), tabletest.Commit, events...))
}

func (b *bench) topicHas() string {
	b.T.Helper()
	list, err := outboxtest.Records(b.b.Addrs, b.topic)
	must(b.T, err)
	var ids []string
	for _, msg := range list {
		ids = append(ids, outboxtest.IDOf(msg))
	}
	return strings.Join(ids, " ")
}

// leasing is a Database that calls a func before a relay leases buckets.
type leasing struct {
	outbox.Database
	before func()
}

func (l leasing) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return l.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, leasingTx{tx, l.before}) })
}

type leasingTx struct {
	outbox.Tx
	before func()
}

func (t leasingTx) Query(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	if strings.Contains(sql, "epoch = l.epoch + 1") {
		t.before()
	}
	return t.Tx.Query(ctx, sql, args, row)
}

// hooked is a Database of which statements can be seen.
type hooked struct {
	outbox.Database
	before func(sql string)
	once   bool
	seen   atomic.Bool
}

func (h *hooked) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return h.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, hookedTx{tx, h}) })
}

type hookedTx struct {
	outbox.Tx
	h *hooked
}

func (t hookedTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if ofOurs := strings.Contains(sql, "o.claim_epoch = (("); ofOurs && !t.h.seen.Swap(t.h.once) {
		t.h.before(sql)
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// A row whose relays die again and again is claimed alone, and blocked in the end.
func TestRowThatKillsItsRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	b.MustExec(`update outbox_event set status = 'PUBLISHING', claims = case event_id when '2' then 20 else 6 end, claim_epoch = 1, claimed_until = clock_timestamp() - interval '1 second'`)
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "one is blocked, the one before it is sent",
		func() bool { return b.rows("status = 'BLOCKED' and event_id = '2'") == 1 && b.rows("true") == 2 })
	if text := tabletest.Value[string](b.Fixture,
		"select last_error from outbox_event where event_id = '2'"); !strings.Contains(text, "20 times") {
		t.Error(text)
	}
	eventually(t, "it is seen", func() bool { return r.Status().Blocked == 1 })
	if n := b.rows("status = 'PENDING' and event_id = '3'"); n != 1 {
		t.Error("what is behind it does not wait")
	}
}

// A row whose relays died again and again is claimed alone, so that those around it are not taken for it.
func TestSuspectsAreClaimedAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3", "4", "5", "6")
	b.MustExec("update outbox_event set claims = 5 where event_id = '2'")
	b.MustExec("update outbox_event set claims = 19 where event_id = '4'")
	b.MustExec("update outbox_event set claims = 4 where event_id = '5'")
	var mu sync.Mutex
	var sizes []int
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = claiming{b.db, func(ids string) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, strings.Count(ids, ",")+1)
	}}
	start(t, cfg)
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	mu.Lock()
	defer mu.Unlock()
	if s := fmt.Sprint(sizes); s != "[1 1 1 1 2]" || b.topicHas() != "1 2 3 4 5 6" {
		t.Errorf("claims of %s rows; the topic has %s", s, b.topicHas())
	}
}

// claiming is a Database that tells which rows are claimed.
type claiming struct {
	outbox.Database
	claimed func(ids string)
}

func (c claiming) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return c.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, claimingTx{tx, c.claimed}) })
}

type claimingTx struct {
	outbox.Tx
	claimed func(ids string)
}

func (t claimingTx) Query(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	if strings.Contains(sql, "set status = 'PUBLISHING'") {
		t.claimed(args[0].(string))
	}
	return t.Tx.Query(ctx, sql, args, row)
}

// The session's or role's own time-out may be shorter than Kafka's answer takes.
func TestIdleTimeoutOfTheRole(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.insert("1")
			b.b.Fake.ControlKey(0, slowly(b.b, 700*time.Millisecond))
			_, db := tabletest.Drivers[0].Open(t, b.URL+"&idle_in_transaction_session_timeout=200&statement_timeout=5000", nil)
			cfg := b.config(mode)
			cfg.Database = db
			r := start(t, cfg)
			eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
			if s := r.Status(); s.Errors != 0 {
				t.Errorf("%v", s.Error)
			}
			if got := b.topicHas(); got != "1" {
				t.Error(got)
			}
		})
	}
}

func TestKeepAndSweep(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			cfg := b.config(mode)
			cfg.Keep = time.Hour
			start(t, cfg)
			b.insert("1", "2")
			eventually(t, "they are kept", func() bool {
				return b.rows("status = 'PUBLISHED' and published_at is not null and claim_epoch is null") == 2
			})
			b.MustExec("update outbox_event set published_at = published_at - interval '2 hours' where event_id = '1'")
			eventually(t, "the old one is swept", func() bool { return b.rows("true") == 1 })
			if b.rows("event_id = '2'") != 1 {
				t.Error("the wrong one was swept")
			}
		})
	}
}

// Rows that PUBLISHED, DEAD or BLOCKED rows stand before are not held up by those that are no hindrance.
func TestDeadRowsAreNoHindrance(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	b.MustExec("update outbox_event set status = 'DEAD' where event_id = '1'")
	b.MustExec("update outbox_event set status = 'BLOCKED' where event_id = '3'")
	start(t, b.config(outbox.SinglePhase))
	eventually(t, "the second is sent", func() bool { return b.rows("true") == 2 })
	if b.rows("event_id = '2'") != 0 {
		t.Error("the wrong one was sent")
	}
}

// Spans of batches are linked to the traces in which the events were written.
func TestSpans(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	must(t, b.write(trace.ContextWithSpanContext(t.Context(), sc), tabletest.Commit, outbox.Event{Topic: b.topic},
		outbox.Event{Topic: b.topic}))
	b.insert("no trace")
	spans := tracetest.NewSpanRecorder()
	cfg := b.config(outbox.SinglePhase)
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	start(t, cfg)
	eventually(t, "a linked span", func() bool {
		for _, s := range spans.Ended() {
			for _, l := range s.Links() {
				if l.SpanContext.TraceID() == sc.TraceID() && s.SpanKind() == trace.SpanKindProducer && s.Name() == "send "+
					b.topic {
					return true
				}
			}
		}
		return false
	})
	for _, s := range spans.Ended() {
		if s.Parent().IsValid() {
			t.Error("a span of a batch has a parent")
		}
		for _, a := range s.Attributes() {
			if a.Key == attribute.Key("messaging.destination.name") && a.Value.AsString() != b.topic {
				t.Errorf("%v", a)
			}
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2")
	b.MustExec("update outbox_event set created_at = clock_timestamp() - interval '1 hour'")
	b.b.Fake.ControlKey(0, slowly(b.b, 7*time.Second))
	r, err := relay.New(b.config(outbox.SinglePhase))
	must(t, err)
	if s := r.Status(); s.Running || s.Mode != outbox.SinglePhase || s.Name == "" {
		t.Errorf("%+v", s)
	}
	cfg := b.config(outbox.SinglePhase)
	cfg.PublishTimeout = 20 * time.Second
	r = start(t, cfg)
	eventually(t, "the backlog is seen", func() bool {
		s := r.Status()
		return s.Running && s.Backlog == 2 && s.OldestAge > 59*time.Minute && s.OldestAge < 70*time.Minute
	})
	eventually(t, "that it is gone is seen", func() bool {
		s := r.Status()
		return s.Backlog == 0 && s.OldestAge == 0 && s.Published == 2
	})
}

// Notifications wake a relay that hardly polls. It comes to no harm when the connection is lost.
func TestListener(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	cfg := b.config(outbox.SinglePhase)
	cfg.PollInterval, cfg.IdleInterval = time.Minute, time.Minute
	cfg.Listener = pgxoutbox.NewListener(b.Pool, "my channel")
	r := start(t, cfg)
	n := pgxoutbox.NewNotifier(b.Pool, "my channel", time.Millisecond)
	defer n.Close()
	listening := func() int {
		return tabletest.Value[int](b.Fixture, `select count(*) from pg_stat_activity where query = 'listen "my channel"'`)
	}
	for i := range 3 {
		eventually(t, "it listens", func() bool { return r.Status().Running && listening() == 1 })
		b.insert(fmt.Sprint(i))
		eventually(t, "it is sent", func() bool { n.Notify(); return b.rows("true") == 0 })
		b.MustExec(`select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen "my channel"'`)
	}
}
