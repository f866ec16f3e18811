package console_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/console/pgxaudit"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

// works is a service whose console may act: on a consumer that runs, on dead letters and on an outbox.
type works struct {
	*site

	pool   *pgxpool.Pool
	broker *serverstest.Broker
	topic  string
	locked atomic.Pointer[string] // the action that nobody may do
	tried  atomic.Int64           // attempts at the message that fails
}

func working(t *testing.T, letters, events int) *works {
	t.Helper()
	w := &works{pool: serverstest.Pool(t)}
	broker := serverstest.InProcess(t)
	w.broker, w.topic = broker, broker.Topic(t, 2)
	group := serverstest.Group(t)
	err := schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := w.pool.Exec(ctx, sql)
		return err
	}, nil, schema.Dedup, schema.DeadLetter, schema.Outbox, schema.Console)
	if err != nil {
		t.Fatal(err)
	}
	w.exec(t, `insert into dead_message (consumer_id, event_id, group_id, topic, partition, kafka_offset, key, value, kind, error_type, error)
		select 'billing', 'e-' || n, 'billing', 'orders.confirmed', 0, n, convert_to('k-' || n % 7, 'UTF8'), '{}'::bytea, 'gave_up', 'timeout', 'it took <too> long' from generate_series(1, $1) n`, letters)
	w.exec(t, `insert into outbox_event (event_id, topic, partition_key, payload, status, last_error) select 'o-' || n, 'payments', convert_to('k-' || n % 3, 'UTF8'), '{}', 'BLOCKED', 'the topic does not exist' from generate_series(1, $1) n`, events)

	table := pgxdeadletter.New(w.pool, nil)
	quiet := slog.New(slog.DiscardHandler)
	w.exec(t, "create table replayed (event text not null)")
	c, err := consumer.New(consumer.Config{Logger: quiet, Brokers: broker.Addrs, Group: group,
		Topics: map[string]consumer.Topic{w.topic: {
			Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
				if string(msg.Key) == "bad" {
					w.tried.Add(1)
					return consumer.RetryAfter(time.Hour, errors.New("it is bad"))
				}
				return nil
			}),
		}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w.site = serve(t, func(cfg *console.Config) {
		cfg.Processes, cfg.Logger = cfg.Processes[:1], quiet
		cfg.Timeout = 30 * time.Second // however busy the machine is
		cfg.Consumers = []console.Consumer{{Name: group, Levers: c, Replay: w.replay(broker.Addrs, group)}}
		cfg.DeadLetters = []console.DeadLetters{{Name: "dead letters", Table: table,
			Redrive: func(ctx context.Context, rc deadletter.RedriveConfig) (deadletter.Report, error) {
				handled := func(context.Context, pgx.Tx, *consumer.Message) error { return nil }
				return deadletter.Redrive(ctx, pgxstore.New(w.pool, nil), table, handled, &rc)
			}}}
		cfg.Outboxes = []console.Outbox{{Name: "outbox", Operator: outbox.NewOperator(pgxoutbox.NewDatabase(w.pool), nil)}}
		cfg.Audit = pgxaudit.New(w.pool, nil)
		cfg.User = func(*http.Request) string { return "anna" }
		cfg.Authorize = func(_ *http.Request, a console.Action) error {
			if locked := w.locked.Load(); locked != nil && *locked == string(a.Verb) {
				return errors.New("it is locked tonight")
			}
			return nil
		}
	})
	broker.Produce(t, &sarama.ProducerMessage{Topic: w.topic, Partition: 1, Key: sarama.StringEncoder("bad"),
		Value: sarama.StringEncoder("{}")})
	for deadline := time.Now().Add(time.Minute); w.tried.Load() == 0 &&
		time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
	return w
}

// replay replays messages by a handler that writes a row of each that has an id.
func (w *works) replay(brokers []string, group string) func(context.Context, consumer.ReplayConfig) (*consumer.ReplayReport, error) {
	handled := func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		_, err := tx.Exec(ctx, "insert into replayed values ($1)", msg.EventID)
		return err
	}
	cfg := consumer.Config{Logger: slog.New(slog.DiscardHandler), Brokers: brokers, Group: group,
		Topics: map[string]consumer.Topic{w.topic: {Handler: middleware.Dedup(pgxstore.New(w.pool, nil), handled, nil)}}}
	return func(ctx context.Context, rc consumer.ReplayConfig) (*consumer.ReplayReport, error) {
		rc.Keep = consumer.KeptForever
		return consumer.Replay(ctx, cfg, rc)
	}
}

func (w *works) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// count asks the database.
func (w *works) count(t *testing.T, from string) (n int) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(), "select count(*) from "+from).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// do fills in why, and sends the form that asks.
func (b *tab) do(why string) {
	b.Helper()
	b.run(typeInto("#reason", why))
	b.leave(func() { b.click(`form.act button[type="submit"]`) })
}

// leave does what leads to another page, and waits for it.
func (b *tab) leave(how func()) {
	b.Helper()
	value[bool](b, "window.before = true")
	how()
	b.eventually("another page", func() bool {
		return value[bool](b, `window.before === undefined && document.readyState === "complete"`)
	})
}

// follow clicks on a link or button by its text.
func (b *tab) follow(text string) {
	b.Helper()
	b.leave(func() { b.click(fmt.Sprintf(`//main//*[(self::a or self::button) and contains(., %q)]`, text)) })
}

// Each page that can act, and each form that asks, passes the automatic check, and fits on a narrow screen.
func TestPagesThatAct(t *testing.T) {
	t.Parallel()
	axe, w := axe(t), working(t, 30, 4)
	list := []string{
		"dead", "letters?table=dead+letters", "letter?table=dead+letters&id=1", "outbox",
		"events?outbox=outbox&state=BLOCKED", "event?outbox=outbox&number=1", "levers", "jobs",
		"do/dead.discard?table=dead+letters&id=1", "do/dead.redrive?table=dead+letters&consumer=billing",
		"do/outbox.retry?outbox=outbox&number=1", "do/outbox.edit?outbox=outbox&number=1",
		"do/pause?topic=" + w.topic, "do/try?partition=1&offset=0&topic=" + w.topic,
	}
	for _, l := range []look{looks[0], looks[3]} {
		b := open(t)
		b.as(l)
		for _, path := range list {
			b.visit(w.at + path)
			if value[bool](b, `document.querySelector("h1").innerText === "Not Found"`) {
				b.Errorf("%s is not found", path)
			}
			b.check(l.name+" "+path, axe)
			if wide := value[int64](b, "document.documentElement.scrollWidth"); wide > l.width {
				b.Errorf("%s %s is %d pixels wide", l.name, path, wide)
			}
		}
	}
}

// Dead letters: one is discarded, all of a group are redriven by a job, whose page outlives a reload, is seen in
// another browser, and stopped there.
func TestDeadLettersInTheBrowser(t *testing.T) {
	t.Parallel()
	w := working(t, 60, 0)
	b := open(t)
	b.visit(w.at + "letters?table=dead+letters")
	b.await("it took <too> long")
	b.click(`input[name="id"][value="57"]`)
	b.follow("Discard the chosen ones")
	b.await("deleted for good")
	b.do("it is a test")
	b.await("It is done")
	if n := w.count(t, "dead_message"); n != 59 {
		b.Errorf("%d are left", n)
	}

	b.visit(w.at + "letters?table=dead+letters&key=k-3")
	b.await("k-3")
	b.click(`input[name="id"][value="3"]`)
	b.follow("Redrive the chosen ones")
	b.await("None overtakes an earlier dead letter of its key") // it is the first of its key
	b.do("it was repaired")
	b.await("It is done")
	b.eventually("the chosen one is redriven", func() bool { return w.count(t, "dead_message") == 58 })

	b.visit(w.at + "dead")
	b.await("billing", "58")
	b.follow("redrive")
	b.await("handled again")
	value[bool](b, `(document.querySelector("[name=per_second]").value = "4", true)`)
	b.do("the provider is back")
	b.await("It is at work", "the provider is back")
	b.leave(func() { value[bool](b, "location.reload() ?? true") })
	b.await("It is at work", "anna")

	other := open(t)
	other.visit(w.at + "jobs")
	other.await("Redrive dead letters")
	other.follow("Redrive dead letters")
	other.await("It is at work")
	other.follow("Stop it")
	other.do("not now")
	b.await("It was stopped") // by itself: the page keeps up
	if n := w.count(t, "dead_message"); n == 0 || n >= 58 {
		b.Errorf("%d are left", n)
	}
	if n := w.count(t, "console_action where done_by = 'anna' and ended_at is not null and reason in ('it is a test', 'the provider is back', 'not now')"); n != 3 {
		b.Errorf("the audit table has %d rows of the three", n)
	}
}

// The outbox: a blocked event is edited and sent again, others are discarded.
func TestOutboxInTheBrowser(t *testing.T) {
	t.Parallel()
	w, b := working(t, 0, 6), open(t)
	b.visit(w.at + "outbox")
	b.await("the topic does not exist", "k-1")
	b.visit(w.at + "event?outbox=outbox&number=1")
	b.visit(w.at + "do/outbox.edit?outbox=outbox&number=1")
	value[bool](b, `(document.querySelector("[name=topic]").value = "payments.charged", true)`)
	b.do("it was misspelt")
	b.await("It is done")
	if n := w.count(t, "outbox_event where topic = 'payments.charged' and status = 'PENDING'"); n != 1 {
		b.Errorf("%d events are as they were edited", n)
	}
	b.visit(w.at + "events?outbox=outbox&state=BLOCKED")
	b.click(`input[name="number"][value="2"]`)
	b.follow("Discard the chosen ones")
	b.do("it is not needed")
	b.eventually("it is discarded", func() bool { return w.count(t, "outbox_event where status = 'DEAD'") == 1 })
	b.visit(w.at + "events?outbox=outbox&state=BLOCKED")
	b.follow("Send all of these again")
	b.do("the topic is there")
	b.eventually("all wait", func() bool { return w.count(t, "outbox_event where status = 'PENDING'") == 5 })
}

// The levers: a topic is paused and resumed, and a message that waits for its next attempt is tried now.
func TestLeversInTheBrowser(t *testing.T) {
	t.Parallel()
	w, b := working(t, 0, 0), open(t)
	b.visit(w.at + "levers")
	b.await("Messages that fail now", w.topic+"[1]@0")
	b.follow("try now")
	before := w.tried.Load()
	b.do("the provider is back")
	b.eventually("it is tried", func() bool { return w.tried.Load() > before })
	b.visit(w.at + "levers")
	b.follow("pause all of it")
	b.do("the provider asks for it")
	b.await("is paused", "anna", "the provider asks for it")
	b.follow("Resume it")
	b.do("it is over")
	b.await(w.topic)
	if text := b.text("main"); strings.Contains(text, "is paused") {
		b.Errorf("it is paused still:\n%s", text)
	}
}

// A replay: its form is the dry run, which says what would be read and reads nothing; its job has progress that outlives
// a reload, and an end with what took effect. Another one is stopped before its end. A window that is none, or has
// nothing, or is not allowed is refused.
func TestReplayInTheBrowser(t *testing.T) {
	t.Parallel()
	w, b := working(t, 0, 0), open(t)
	const messages = 40
	for i := range messages {
		w.broker.Produce(t, &sarama.ProducerMessage{Topic: w.topic, Partition: 0, Key: sarama.StringEncoder("good"),
			Value:   sarama.StringEncoder("{}"),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Appendf(nil, "e-%d", i)}}})
	}
	ask := func(fields map[string]string) {
		b.Helper()
		b.visit(w.at + "levers")
		for name, text := range fields {
			if name == "all" {
				b.click("[name=all]")
				continue
			}
			b.run(typeInto("[name="+name+"]", text))
		}
		b.follow("Say what it would read")
	}
	ask(nil)
	b.await("Name a window")
	ask(map[string]string{"from": "1h", "to": "2h"})
	b.await("The window ends before it begins")
	ask(map[string]string{"from": "2001-01-01", "to": "2001-01-02"})
	b.await("There is nothing to replay")

	ask(map[string]string{"from": "1h"})
	b.await("At most 41 messages in 2 partitions", "Partition 0: offsets 0 to 39", "Partition 1: offsets 0 to 0")
	if n := w.count(t, "replayed"); n != 0 {
		b.Fatalf("the dry run has handled %d messages", n)
	}
	locked := "replay"
	w.locked.Store(&locked)
	b.do("nobody may")
	b.await("You may not do this", "it is locked tonight")
	w.locked.Store(nil)

	ask(map[string]string{"from": "1h"})
	value[bool](b, `(document.querySelector("[name=per_second]").value = "4", true)`)
	b.do("the database was restored")
	b.await("It is at work", "the database was restored", "anna")
	const percent = `document.querySelector("progress")?.value ?? -1`
	b.eventually("its progress is seen", func() bool { p := value[float64](b, percent); return p > 0 && p < 100 })
	b.leave(func() { value[bool](b, "location.reload() ?? true") })
	b.await("It is at work")
	if p := value[float64](b, percent); p <= 0 {
		b.Errorf("behind a reload its progress is %v", p)
	}
	b.await("It is done", "40 took effect now, 0 had taken effect before", "1 have no event's id")
	if n := w.count(t, "replayed"); n != messages {
		b.Errorf("%d messages took effect", n)
	}

	ask(map[string]string{"all": "1"})
	b.await("At most 41 messages")
	value[bool](b, `(document.querySelector("[name=per_second]").value = "1", true)`)
	b.do("once more")
	b.await("It is at work")
	b.follow("Stop it")
	b.do("it is not needed")
	b.await("It was stopped")
	if text := b.text("main"); strings.Contains(text, "41 of 41") {
		b.Errorf("it came to its end:\n%s", text)
	}
	if n := w.count(t, "replayed"); n != messages {
		b.Errorf("%d messages took effect, of which some twice", n)
	}
	if n := w.count(t, "console_action where action = 'replay' and ended_at is not null and (error = '') = (reason = 'the database was restored')"); n != 2 {
		b.Errorf("the audit table has %d rows of the two", n)
	}
}

// What may not be done is not shown; where it is forbidden between the form and its sending, it is not done. A form
// without a reason is not sent.
func TestRefusalsInTheBrowser(t *testing.T) {
	t.Parallel()
	w, b := working(t, 3, 3), open(t)
	b.visit(w.at + "levers")
	b.follow("pause all of it")
	b.do("so that it can be resumed")
	b.await("is paused")
	for _, c := range []struct{ verb, path, link, unchanged string }{
		{"dead.discard", "dead", "discard", "dead_message"},
		{"dead.redrive", "dead", "redrive", "dead_message"},
		{"outbox.discard", "events?outbox=outbox&state=BLOCKED", "Discard all of these",
			"outbox_event where status = 'BLOCKED'"},
		{"outbox.retry", "events?outbox=outbox&state=BLOCKED", "Send all of these again",
			"outbox_event where status = 'BLOCKED'"},
		{"pause", "levers", "pause all of it", ""},
		{"try", "levers", "try now", ""},
		{"resume", "levers", "Resume it", ""},
		{"outbox.edit", "event?outbox=outbox&number=1", "Edit its topic or headers",
			"outbox_event where status = 'BLOCKED'"},
	} {
		w.refuses(b, c.verb, c.path, c.link)
		if c.unchanged != "" {
			if n := w.count(t, c.unchanged); n != 3 {
				b.Errorf("%s: %d are left", c.verb, n)
			}
		}
	}
	if n := w.count(t, "console_action"); n != 1 {
		b.Errorf("the audit table has %d rows, want that of the pause alone", n)
	}
	w.locked.Store(nil)
	b.visit(w.at + "dead")
	b.follow("redrive")
	value[bool](b, `(document.querySelector("[name=per_second]").value = "0.1", true)`)
	b.do("slowly")
	b.await("It is at work")
	w.refuses(b, "job.stop", value[string](b, `location.href.split("/").pop()`), "Stop it")
	b.await("It is at work")
}

// refuses asks for an action from its page, which is forbidden before its form is sent: it is refused, and not shown any
// more.
func (w *works) refuses(b *tab, verb, path, link string) {
	b.Helper()
	w.locked.Store(nil)
	b.visit(w.at + path)
	b.follow(link)
	b.click(`form.act button[type="submit"]`) // the browser asks for the reason
	if !value[bool](b, `document.querySelector("#reason:invalid") !== null`) {
		b.Errorf("%s is sent without a reason", verb)
	}
	w.locked.Store(&verb)
	b.do("because")
	b.await("You may not do this", "it is locked tonight")
	b.visit(w.at + path)
	if value[bool](b, fmt.Sprintf(`[...document.querySelectorAll("main a, main button")].some((e) => e.innerText === %q)`, link)) {
		b.Errorf("%s is shown to who may not", verb)
	}
}
