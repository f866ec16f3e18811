package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// bench is a table and a broker.
type bench struct {
	*fixture
	b     *serverstest.Broker
	write write
	db    outbox.Database
	topic string
}

func newBench(t testing.TB, partitions int32) *bench {
	t.Helper()
	f, b := open(t), serverstest.InProcess(t)
	write, db := drivers[0].open(t, f.url, nil)
	return &bench{f, b, write, db, b.Topic(t, partitions)}
}

func (b *bench) config(mode outbox.Mode) outbox.Config {
	return outbox.Config{Database: b.db, Brokers: b.b.Addrs, Mode: mode, Keep: -1, Logger: slog.New(slog.DiscardHandler)}
}

// start starts a relay, which is stopped when the test ends.
func start(t testing.TB, cfg outbox.Config) *outbox.Relay {
	t.Helper()
	r, err := outbox.New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return r
}

func (b *bench) rows(where string) int {
	b.t.Helper()
	return value[int](b.fixture, "select count(*) from outbox_event where "+where)
}

func (b *bench) insert(ids ...string) {
	b.t.Helper()
	var events []outbox.Event
	for _, id := range ids {
		events = append(events, outbox.Event{ID: id, Topic: b.topic, Key: []byte("k")})
	}
	must(b.t, b.write(b.t.Context(), commit, events...))
}

func (b *bench) topicHas() string {
	b.t.Helper()
	list, err := outboxtest.Records(b.b.Addrs, b.topic)
	must(b.t, err)
	var ids []string
	for _, msg := range list {
		ids = append(ids, outboxtest.IDOf(msg))
	}
	return strings.Join(ids, " ")
}

// B24: what a dead predecessor has claimed goes out before what came after it.
func TestTakeBackComesFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2")
	// a relay that claimed them, and died: its lease has expired, the claim of the rows by the clock has not
	b.exec(`update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 1, claimed_until = clock_timestamp() + interval '1 hour'`)
	b.exec(`insert into outbox_lease (bucket, owner, epoch, leased_until) select distinct bucket, 'dead', 1, now() - interval '1 second' from outbox_event`)
	b.insert("3", "4")
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2 3 4" {
		t.Error(got)
	}
	if s := r.Status(); s.Returned != 2 {
		t.Errorf("Status tells that %d rows were taken back", s.Returned)
	}
}

// A bucket that is leased is left alone, until the lease has expired.
func TestLeaseKeepsOthersOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1")
	b.exec(`insert into outbox_lease (bucket, owner, epoch, leased_until) select bucket, 'other', 7, clock_timestamp() + interval '3 seconds' from outbox_event`)
	b.exec(`update outbox_event set status = 'PUBLISHING', claim_epoch = 7, claimed_until = clock_timestamp() + interval '3 seconds'`)
	b.insert("2")
	start(t, b.config(outbox.TwoPhase))
	eventually(t, "all are sent", func() bool {
		left, leased := b.rows("true"), value[bool](b.fixture, "select exists (select from outbox_lease where owner = 'other' and leased_until > clock_timestamp())")
		if leased && left < 2 {
			t.Fatal("a row of a leased bucket was sent")
		}
		return left == 0
	})
	if got := b.topicHas(); got != "1 2" {
		t.Error(got)
	}
}

// B10: a relay that was too slow marks nothing that is not its own any more, and tells.
func TestZombieMarksNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = &hooked{Database: b.db, before: func(sql string) {
		if strings.Contains(sql, "delete from") && strings.HasPrefix(sql, "with m") {
			// the lease has expired meanwhile, and a successor has claimed the rows
			b.exec("update outbox_lease set epoch = epoch + 1, owner = 'successor', leased_until = clock_timestamp() + interval '2 seconds'")
			b.exec("update outbox_event set claim_epoch = claim_epoch + 1, claims = claims + 1, claimed_until = clock_timestamp() + interval '2 seconds'")
		}
	}, once: true}
	r := start(t, cfg)
	eventually(t, "Status tells of the lost lease", func() bool { return r.Status().LeaseLost == 3 })
	if r.Status().Published != 0 {
		t.Error("it counts them as published")
	}
	eventually(t, "all are sent again", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2 3 1 2 3" {
		t.Error(got)
	}
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
	if strings.Contains(sql, "with m as") && !t.h.seen.Swap(t.h.once) {
		t.h.before(sql)
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// A row whose relays die again and again is claimed alone, and blocked in the end.
func TestRowThatKillsItsRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	b.exec(`update outbox_event set status = 'PUBLISHING', claims = case event_id when '2' then 20 else 6 end, claim_epoch = 1, claimed_until = clock_timestamp() - interval '1 second'`)
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "one is blocked, the one before it is sent", func() bool { return b.rows("status = 'BLOCKED' and event_id = '2'") == 1 && b.rows("true") == 2 })
	if text := value[string](b.fixture, "select last_error from outbox_event where event_id = '2'"); !strings.Contains(text, "20 times") {
		t.Error(text)
	}
	eventually(t, "it is seen", func() bool { return r.Status().Blocked == 1 })
	if n := b.rows("status = 'PENDING' and event_id = '3'"); n != 1 {
		t.Error("what is behind it does not wait")
	}
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
			_, db := drivers[0].open(t, b.url+"&idle_in_transaction_session_timeout=200&statement_timeout=5000", nil)
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
			b.exec("update outbox_event set published_at = published_at - interval '2 hours' where event_id = '1'")
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
	b.exec("update outbox_event set status = 'DEAD' where event_id = '1'")
	b.exec("update outbox_event set status = 'BLOCKED' where event_id = '3'")
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
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	must(t, b.write(trace.ContextWithSpanContext(t.Context(), sc), commit, outbox.Event{Topic: b.topic}, outbox.Event{Topic: b.topic}))
	b.insert("no trace")
	spans := tracetest.NewSpanRecorder()
	cfg := b.config(outbox.SinglePhase)
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	start(t, cfg)
	eventually(t, "a linked span", func() bool {
		for _, s := range spans.Ended() {
			for _, l := range s.Links() {
				if l.SpanContext.TraceID() == sc.TraceID() && s.SpanKind() == trace.SpanKindProducer && s.Name() == "send "+b.topic {
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
	b.exec("update outbox_event set created_at = clock_timestamp() - interval '1 hour'")
	b.b.Fake.ControlKey(0, slowly(b.b, 7*time.Second))
	r, err := outbox.New(b.config(outbox.SinglePhase))
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
		return value[int](b.fixture, `select count(*) from pg_stat_activity where query = 'listen "my channel"'`)
	}
	for i := range 3 {
		eventually(t, "it listens", func() bool { return r.Status().Running && listening() == 1 })
		b.insert(fmt.Sprint(i))
		eventually(t, "it is sent", func() bool { n.Notify(); return b.rows("true") == 0 })
		b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen "my channel"'`)
	}
}

// Configuration errors are told all at once, and say what to do.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(outbox.Config{
		Brokers: []string{"user:s3cret@host:1", "http://x"}, Mode: "three-phase", Partitioner: "crc", Workers: -1, BatchRows: -1, LeaseTTL: -1, PollInterval: time.Hour, IdleInterval: time.Minute,
		Sarama: func(c *sarama.Config) {
			c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForLocal, false, 5
			c.Metadata.AllowAutoTopicCreation = true
			c.Producer.Partitioner = sarama.NewRandomPartitioner
			c.Producer.Retry.Max = 7
			c.Producer.Flush.Messages = 7
			c.Producer.Timeout = time.Hour
			c.Version = sarama.V1_0_0_0
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Config.Database: is nil", "Config.Brokers[0]: holds a user", "Config.Brokers[1]: \"http://x\" is not an address", "Config.Mode", "Config.Partitioner",
		"Config.Workers", "Config.BatchRows", "Config.LeaseTTL", "Config.IdleInterval", "sets Producer.RequiredAcks", "sets Producer.Idempotent", "sets Net.MaxOpenRequests",
		"sets Metadata.AllowAutoTopicCreation", "sets Producer.Partitioner", "sets Producer.Retry", "sets Producer.Flush", "Producer.Timeout is 1h", "sets Version",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("it repeats the password")
	}
	if _, ok := errors.AsType[*outbox.ConfigError](err); !ok {
		t.Error("no ConfigError")
	}
	_, err = outbox.New(outbox.Config{Database: pgxoutbox.NewDatabase(nil), Brokers: []string{"localhost:9092"}, Mode: outbox.TwoPhase, LeaseTTL: 30 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "make it at least 40s") {
		t.Errorf("%v", err)
	}
}

func TestTablesMissing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.exec("drop table outbox_mode")
	_, db := drivers[0].open(t, f.url, nil)
	r, err := outbox.New(outbox.Config{Database: db, Brokers: []string{"localhost:1"}})
	must(t, err)
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "schema.Outbox") {
		t.Errorf("Run() = %v", err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, outbox.ErrRunTwice) {
		t.Errorf("Run() = %v", err)
	}
}

// A database that does not answer at the start is waited for, until ctx ends.
func TestDatabaseAwayAtTheStart(t *testing.T) {
	t.Parallel()
	r, err := outbox.New(outbox.Config{Database: refused{"postgres://nobody@127.0.0.1:1/none"}, Brokers: []string{"localhost:1"}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	eventually(t, "Status tells", func() bool { return r.Status().Error != nil })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// refused is a Database without a server.
type refused struct{ url string }

func (r refused) InTx(ctx context.Context, _ func(ctx context.Context, tx outbox.Tx) error) error {
	_, err := pgx.Connect(ctx, r.url)
	return err
}

// B3: a transaction that is open elsewhere in the cluster, and has written, hides nothing.
func TestOpenTransactionElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.exec("create table elsewhere (n int)")
	tx, err := b.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "insert into elsewhere values (1)")
	must(t, err)
	start(t, b.config(outbox.SinglePhase))
	b.insert("1")
	eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
}

// B5: many rows behind a blocked one hold up nobody else.
func TestHotKeyBehindABlockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("first")
	b.exec("update outbox_event set status = 'BLOCKED'")
	b.exec("insert into outbox_event (event_id, topic, partition_key) select 'hot', $1::text, 'k' from generate_series(1, 50000)", b.topic)
	cfg := b.config(outbox.SinglePhase)
	start(t, cfg)
	for i := range 64 {
		must(t, b.write(t.Context(), commit, outbox.Event{ID: fmt.Sprint(i), Topic: b.topic, Key: []byte(fmt.Sprint(i))}))
	}
	eventually(t, "the others are sent", func() bool { return b.rows("event_id not in ('hot', 'first')") == 0 })
	if b.rows("event_id = 'hot' and status = 'PENDING'") != 50000 {
		t.Error("something of the blocked key was sent")
	}
}

// B10: rows whose relay has died return when their claims have expired, also where nothing new comes to their buckets.
func TestStuckRowsReturn(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2")
	b.exec(`update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 1, claimed_until = clock_timestamp() + case event_id when '1' then interval '-1 second' else interval '1 hour' end`)
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "what has expired is sent", func() bool { return r.Status().Returned >= 1 && b.rows("event_id = '1'") == 0 })
	eventually(t, "so is the rest, taken back by the new owner", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2" {
		t.Error(got)
	}
}

// B16, B19: what the relay does often goes by the partial indexes, also with statistics of a moment at which the table was empty.
func TestPlansUseTheIndexes(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.exec("analyze outbox_event")
			b.exec("alter table outbox_event set (autovacuum_enabled = off)")
			b.exec("insert into outbox_event (event_id, topic, partition_key, status) select n::text, $1::text, (n % 1000)::text::bytea, 'PUBLISHED' from generate_series(1, 30000) n", b.topic)
			scans := func() int {
				return value[int](b.fixture, "select coalesce(sum(seq_scan), 0)::int from pg_stat_user_tables where relname = 'outbox_event' and schemaname = current_schema()")
			}
			b.exec("select pg_stat_force_next_flush()")
			start(t, b.config(mode))
			before := -1
			for i := range 20 {
				b.insert(fmt.Sprint("event ", i))
				eventually(t, "it is sent", func() bool {
					return value[int](b.fixture, "select count(*) from outbox_event where status = 'PENDING' and bucket is not null") == 0
				})
				if i == 3 {
					b.exec("select pg_stat_force_next_flush()")
					before = scans()
				}
			}
			b.exec("select pg_stat_force_next_flush()")
			if n := scans() - before; n > 5 { // this test's own look at the table may be some
				t.Errorf("%d scans of the whole table", n)
			}
		})
	}
}

// What Write takes as the largest event, the relay sends.
func TestLargestEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	largest := func(size int) outbox.Event {
		return outbox.Event{ID: strings.Repeat("i", 300), Topic: b.topic, Key: []byte("k"), Value: make([]byte, size), Headers: []outbox.Header{{Key: "h"}}}
	}
	size, over := 0, outbox.DefaultMaxBytes
	for over-size > 1 {
		middle := (size + over) / 2
		if _, _, err := outbox.NewWriter(nil).Statement(t.Context(), []outbox.Event{largest(middle)}, outbox.TextArrays); err == nil {
			size = middle
		} else {
			over = middle
		}
	}
	if size < outbox.DefaultMaxBytes-1000 {
		t.Errorf("the largest has %d bytes", size)
	}
	must(t, b.write(t.Context(), commit, largest(size)))
	start(t, b.config(outbox.SinglePhase))
	eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
}

// B12, B19: every transaction that waits, or looks for rows, has settings of its own.
func TestSettingsOfATransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			seen := make(chan string, 10)
			cfg := b.config(mode)
			cfg.PublishTimeout = 3 * time.Second
			cfg.Database = settingsOf{b.db, seen}
			start(t, cfg)
			b.insert("1")
			want := "jit off, seqscan off, lock 1s, idle 13s"
			if mode == outbox.TwoPhase {
				want = "jit off, seqscan off, lock 1s, idle 10s"
			}
			if got := <-seen; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// settingsOf looks at the settings where rows are deleted.
type settingsOf struct {
	outbox.Database
	seen chan string
}

func (s settingsOf) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return s.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, settingsTx{tx, s.seen}) })
}

type settingsTx struct {
	outbox.Tx
	seen chan string
}

func (t settingsTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if strings.Contains(sql, "delete from") {
		look := `select 'jit ' || current_setting('jit') || ', seqscan ' || current_setting('enable_seqscan') || ', lock ' || current_setting('lock_timeout') || ', idle ' || current_setting('idle_in_transaction_session_timeout')`
		var text string
		if err := t.Query(ctx, look, nil, func(scan func(...any) error) error { return scan(&text) }); err != nil {
			return 0, err
		}
		select {
		case t.seen <- text:
		default:
		}
	}
	return t.Tx.Exec(ctx, sql, args...)
}
