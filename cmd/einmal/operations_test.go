package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/status"
)

// badNight is a service in which all of docs/operations.md has gone wrong.
type badNight struct {
	topic, group, page string
	vars               map[string]string
}

func newBadNight(t *testing.T) *badNight {
	t.Helper()
	pool, b := serverstest.Pool(t), serverstest.InProcess(t)
	url := pool.Config().ConnString()
	einmal(t, url, "schema", "apply", "dedup", "deadletter", "outbox").want(t, exitOK)
	n := &badNight{topic: b.Topic(t, 2), group: serverstest.Group(t)}
	n.vars = map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
	for i, key := range []string{"good", "dead", "good", "good"} {
		b.Produce(t, nightly(n.topic, 0, fmt.Sprint("e", i), key))
	}
	b.Produce(t, nightly(n.topic, 1, "s1", "stuck"), nightly(n.topic, 1, "s2", "good"))

	store := pgxstore.New(pool, nil)
	c, err := consumer.New(consumer.Config{
		Brokers: b.Addrs, Group: n.group, Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{n.topic: {
			Middleware: []consumer.Middleware{middleware.DeadLetter(store, pgxdeadletter.New(pool, nil), nil)},
			Handler: middleware.Dedup(store, func(_ context.Context, _ pgx.Tx, msg *consumer.Message) error {
				switch string(msg.Key) {
				case "dead":
					return consumer.Permanent(errors.New("no such article"))
				case "stuck":
					return consumer.RetryAfter(50*time.Millisecond, errors.New("no stock"))
				}
				return nil
			}, nil),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := relay.New(relay.Config{Brokers: b.Addrs, Database: pgxoutbox.NewDatabase(pool),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, url, `insert into outbox_event (event_id, topic) values ('sent', '`+n.topic+`'), ('blocked', 'no such topic')`)
	running(t, c.Run)
	running(t, sender.Run)
	server := httptest.NewServer(status.Handler(status.Sections{
		"consumer": func(context.Context) (any, error) { return c.Status(), nil },
		"outbox":   func(context.Context) (any, error) { return sender.Status(), nil },
	}, nil))
	t.Cleanup(server.Close)
	n.page = server.URL
	eventually(t, "it has gone wrong", func() bool {
		var dead int
		_ = pool.QueryRow(t.Context(), "select count(*) from dead_message").Scan(&dead)
		r := withEnv(t, n.vars, "group", n.group)
		return dead == 1 && sender.Status().Blocked == 1 && strings.Contains(r.out, "@0 open") &&
			strings.Contains(r.out, "failed") && caughtUp.MatchString(r.out)
	})
	exec(t, url, `delete from processed_event where event_id = 'e3'`) // the restore
	return n
}

func nightly(topic string, partition int32, id, key string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Partition: partition, Timestamp: time.Now(), Key: sarama.StringEncoder(key),
		Value:   sarama.StringEncoder("{}"),
		Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}},
	}
}

// running runs something until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// caughtUp is the first partition when all of it is committed: its four messages, and that of the outbox if it came
// there.
var caughtUp = regexp.MustCompile(`  ([45]) +([45])    0`)

var (
	operationsCode = regexp.MustCompile("(?s)```sh\n(.*?)```")
	operationsRow  = regexp.MustCompile("(?m)^\\| ((?:`[^`]+`(?: or )?)+) \\|")
	backquoted     = regexp.MustCompile("`([^`]+)`")
)

// TestOperations runs the commands of docs/operations.md, and looks for what its tables explain in their output.
func TestOperations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newBadNight(t)
	actual := strings.NewReplacer("billing-service", n.group, "orders.confirmed", n.topic, "http://billing:8080/status",
		n.page)
	sections := strings.Split(string(text), "\n## ")[1:]
	if len(sections) != 5 {
		t.Errorf("%d questions", len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		var said strings.Builder
		commands := 0
		for _, block := range operationsCode.FindAllStringSubmatch(section, -1) {
			for line := range strings.Lines(block[1]) {
				commands++
				words := strings.Fields(actual.Replace(line))
				r := withEnv(t, n.vars, words[1:]...)
				if found := r.code == exitNo && (words[1] == "audit" || words[1] == "status"); r.code != exitOK && !found {
					t.Errorf("%s: %s: exit code %d\n%s%s", title, line, r.code, r.out, r.errors)
				}
				said.WriteString(r.out + r.errors)
			}
		}
		rows := operationsRow.FindAllStringSubmatch(section, -1)
		if commands < 2 || len(rows) < 3 {
			t.Errorf("%s has %d commands and %d rows", title, commands, len(rows))
		}
		for _, row := range rows {
			found := false
			for _, alternative := range backquoted.FindAllStringSubmatch(row[1], -1) {
				found = found || strings.Contains(said.String(), alternative[1]) || alternative[1] == "no members" // a running group has some
			}
			if !found {
				t.Errorf("%s: no output has %s:\n%s", title, row[1], said.String())
			}
		}
	}
}
