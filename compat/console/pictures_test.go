package console_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
	"github.com/einmal-go/einmal/status"
)

// envPictures names the directory for the pictures of docs/console.md that shoot does not make: docs/console.
const envPictures = "EINMAL_PICTURES"

// troubled is a service that runs, on a bad day: its consumer has given messages up, and its relay meets a topic that is
// not there.
func troubled(t *testing.T) *site {
	t.Helper()
	pool, broker := serverstest.Pool(t), serverstest.InProcess(t)
	const topic, group = "orders.confirmed", "billing"
	admin, err := sarama.NewClusterAdmin(broker.Addrs, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false), admin.Close())
	if err != nil {
		t.Fatal(err)
	}
	err = schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, nil, schema.Dedup, schema.DeadLetter, schema.Outbox, schema.Console)
	if err != nil {
		t.Fatal(err)
	}
	quiet, store, table := slog.New(slog.DiscardHandler), pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil)
	charge := func(_ context.Context, _ pgx.Tx, msg *consumer.Message) error {
		switch n := msg.Offset % 10; {
		case n < 5:
			return nil
		case n == 9:
			return consumer.Permanent(errors.New("the order has no lines"))
		default:
			return fmt.Errorf("charge the card: %w", context.DeadlineExceeded)
		}
	}
	chain := middleware.Standard(store, &middleware.StandardConfig[pgx.Tx]{Attempts: 2, Logger: quiet, DeadLetters: table,
		Retry: &middleware.RetryConfig{Base: time.Millisecond, Max: time.Millisecond}})
	c, err := consumer.New(consumer.Config{Logger: quiet, Brokers: broker.Addrs, Group: group,
		Topics: map[string]consumer.Topic{topic: chain.Topic(charge)}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(relay.Config{Name: "billing-1", Logger: quiet, Database: pgxoutbox.NewDatabase(pool), Brokers: broker.Addrs})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	for i := range 60 {
		broker.Produce(t, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % 3), Key: sarama.StringEncoder(fmt.Sprintf("customer-%d", 4700+i%7)), //nolint:gosec // a small number
			Value: sarama.StringEncoder(fmt.Sprintf(`{"order":"A-%d","cents":1250}`, i)), Headers: []sarama.RecordHeader{
				{Key: []byte("event-id"), Value: fmt.Appendf(nil, "confirmed-A-%d", i)},
				{Key: []byte("traceparent"), Value: fmt.Appendf(nil, "00-%032x-%016x-01", 0xaf7651916cd43+i, i+1)}}})
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for i := range 12 {
			to := topic
			if i%2 == 0 {
				to = "payments.chargd" // somebody has mistyped it
			}
			event := outbox.Event{Topic: to, Key: fmt.Appendf(nil, "order-%d", i%6), Value: []byte(`{"paid":true}`)}
			if err := pgxoutbox.NewWriter(nil).Write(t.Context(), tx, event); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, func(cfg *console.Config) {
		cfg.Processes = []console.Process{{Name: "billing-1", Status: status.Handler(status.Sections{
			"consumer": func(context.Context) (any, error) { return c.Status(), nil },
			"relay":    func(context.Context) (any, error) { return r.Status(), nil },
		}, nil)}}
		cfg.Kafka, cfg.Logger, cfg.TraceURL = nil, quiet, "https://tracing.example/trace/{trace_id}"
		cfg.Timeout = 30 * time.Second // however busy the machine is
		cfg.Consumers = []console.Consumer{{Name: group, Levers: c}}
		cfg.DeadLetters = []console.DeadLetters{{Name: "dead letters", Table: table,
			Redrive: func(ctx context.Context, rc deadletter.RedriveConfig) (deadletter.Report, error) {
				return deadletter.Redrive(ctx, store, table, charge, &rc)
			}}}
		cfg.Outboxes = []console.Outbox{{Name: "outbox", Operator: outbox.NewOperator(pgxoutbox.NewDatabase(pool), nil)}}
		cfg.Authorize = func(*http.Request, console.Action) error { return nil }
	})
}

// What a real consumer has given up and a real relay cannot send is on its pages, the first thing seen is the most
// urgent one, and a letter leads to its trace. With EINMAL_PICTURES pictures are made of them.
func TestBadDay(t *testing.T) {
	t.Parallel()
	s, b := troubled(t), open(t)
	await := func(path string, texts ...string) {
		b.visit(s.at + path)
		b.eventually(path+" has what happened", func() bool {
			if b.has(texts...) {
				return true
			}
			b.visit(s.at + path) // it does not keep up by itself
			return b.has(texts...)
		})
	}
	shots := []struct {
		name, path string
		look       look
		texts      []string
	}{
		{"dead", "dead", look{"", false, 1180, 420}, []string{"billing", "gave_up", "permanent", "24", "6"}},
		{"letters", "letters?table=dead+letters", look{"", false, 1180, 900}, []string{"charge the card", "the order has no lines", "customer-470"}},
		{"letter", "letter?table=dead+letters&id=3", look{"", false, 1180, 900}, []string{"confirmed-A-", "What happened", "Redrives"}},
		{"letter-dark", "letter?table=dead+letters&id=3", look{"", true, 1180, 900}, []string{"confirmed-A-"}},
		{"letters-narrow", "letters?table=dead+letters", look{"", false, 360, 740}, []string{"charge the card"}},
		{"redrive", "", look{"", false, 1180, 620}, nil},
		{"outbox", "outbox", look{"", false, 1180, 620}, []string{"the topic does not exist", "payments.chargd", "order-4"}},
		{"outbox-dark", "outbox", look{"", true, 1180, 620}, []string{"payments.chargd"}},
		{"outbox-narrow", "outbox", look{"", false, 360, 740}, []string{"payments.chargd"}},
		{"event", "event?outbox=outbox&number=1", look{"", false, 1180, 700}, []string{"BLOCKED", "the topic does not exist"}},
	}
	for _, shot := range shots {
		b.as(shot.look)
		if shot.name == "redrive" {
			b.visit(s.at + "dead")
			b.follow("redrive")
			b.await("handled again", "Their keys:")
		} else {
			await(shot.path, shot.texts...)
		}
		if dir := os.Getenv(envPictures); dir != "" {
			png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, shot.name+".png"), png, 0o644); err != nil { //nolint:gosec // a picture for all
				t.Fatal(err)
			}
		}
	}
	b.visit(s.at + "letter?table=dead+letters&id=3")
	if link := value[string](b, `document.querySelector("dd a code")?.parentElement.href ?? ""`); len(link) != len("https://tracing.example/trace/")+32 {
		b.Errorf("its trace is at %q", link)
	}
	b.visit(s.at)
	b.eventually("what is held back is the first thing", func() bool {
		return strings.Contains(value[string](b, `document.querySelector(".problems li")?.innerText ?? ""`), "blocked")
	})
}
