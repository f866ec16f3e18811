package rolestest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/rolestest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

const (
	topic    = "orders"
	group    = "billing"
	password = "right"
)

// acl is a right on a topic or a group.
func acl(resource kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation,
		Allow: true}
}

// guarded is a cluster that knows a consumer and a relay, with the rights of the page.
func guarded(t *testing.T) *serverstest.Broker {
	t.Helper()
	return serverstest.InProcess(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.SeedTopics(2, topic),
		kfake.Superuser("PLAIN", "admin", password),
		kfake.User("PLAIN", "consumer", password,
			acl(kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationRead),
			acl(kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationDescribe),
			acl(kmsg.ACLResourceTypeGroup, group, kmsg.ACLOperationRead)),
		kfake.User("PLAIN", "relay", password,
			acl(kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationWrite),
			acl(kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationDescribe)))
}

// as has a client be one of the users.
func as(user string) func(*sarama.Config) {
	return func(c *sarama.Config) {
		c.Net.SASL.Enable, c.Net.SASL.Mechanism, c.Net.SASL.User, c.Net.SASL.Password = true, sarama.SASLTypePlaintext, user,
			password
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running runs f until the test ends.
func running(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func write(t *testing.T, pool *pgxpool.Pool, ids ...string) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, id := range ids {
			if err := pgxoutbox.NewWriter(nil).Write(t.Context(), tx, outbox.Event{ID: id, Topic: topic, Key: []byte("k"),
				Value: []byte(id)}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestFromWriterToConsumer has each part work as its role and its user of Kafka.
func TestFromWriterToConsumer(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			admin, b := tables(t), guarded(t)
			write(t, rolestest.New(t, admin, "writer").Pool(t), "1", "2", "bad", "3")
			r, err := relay.New(relay.Config{
				Database: pgxoutbox.NewDatabase(rolestest.New(t, admin, "relay").Pool(t)), Brokers: b.Addrs, Mode: mode,
				Logger: quiet(), Sarama: as("relay"),
			})
			must(t, err)
			running(t, r.Run)
			pool := rolestest.New(t, admin, "consumer", effects).Pool(t)
			store := pgxstore.New(pool, nil)
			c, err := consumer.New(consumer.Config{
				Brokers: b.Addrs, Group: group, Logger: quiet(), Sarama: as("consumer"),
				Topics: map[string]consumer.Topic{topic: {
					Middleware: []consumer.Middleware{
						middleware.DeadLetter(store, pgxdeadletter.New(pool, nil), nil),
						middleware.CrashLoop(pgxdeadletter.New(pool, nil).Starts(), nil),
						middleware.Retry(2, &middleware.RetryConfig{Base: time.Millisecond}),
					},
					Handler: middleware.Dedup(store, func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
						if msg.EventID == "bad" {
							return errors.New("it is bad")
						}
						_, err := tx.Exec(ctx, "insert into effect values ($1)", msg.EventID)
						return err
					}, nil),
				}},
			})
			must(t, err)
			running(t, c.Run)
			eventually(t, "three effects and a dead letter", func() bool {
				return count(t, admin, "select count(*) from effect") == 3 &&
					count(t, admin, "select count(*) from dead_message") == 1
			})
			eventually(t, "nothing waits in the outbox", func() bool {
				return count(t, admin, "select count(*) from outbox_event where status <> 'PUBLISHED'") == 0
			})
		})
	}
}

// TestRequests answers requests with keys, and replays them.
func TestRequests(t *testing.T) {
	t.Parallel()
	admin := tables(t)
	pool := rolestest.New(t, admin, "requests", effects).Pool(t)
	h, err := idempotency.NewHandler(pgxidempotency.New(pool, nil),
		func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			_, err := tx.Exec(ctx, "insert into effect values ('paid')")
			_, _ = io.WriteString(w, "paid")
			return err
		}, idempotency.HandlerConfig{SingleTenant: true, MaxKeys: 10, Logger: quiet()})
	must(t, err)
	for i := range 3 {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pay", strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", "k1")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, req)
		if answer.Code != http.StatusOK || answer.Body.String() != "paid" ||
			(answer.Header().Get("Idempotent-Replayed") == "true") != (i > 0) {
			t.Errorf("%d: %d %s %v", i, answer.Code, answer.Body, answer.Header())
		}
	}
	if n := count(t, admin, "select count(*) from effect"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// old fills all tables with rows that are older than they are kept.
func old(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	execute(t, admin, `insert into processed_event (event_id, consumer_id, processed_at) values ('e', 'c', now() - interval '9 days') on conflict do nothing;
insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, died_at, key) values ('c', 'e', 'orders', 0, 7, 'gave_up', now() - interval '9 days', 'e');
insert into started_message (consumer_id, event_id, started_at) values ('c', 'e', now() - interval '9 days') on conflict do nothing;
insert into outbox_event (event_id, topic, status, created_at, partition_key) values ('e', 'orders', 'BLOCKED', now() - interval '9 days', 'k');
insert into idempotency_key (scope, key, fingerprint, status_code, expires_at, created_at) values ('u', 'k', '', 200, now() - interval '9 days', now() - interval '10 days') on conflict do nothing`)
}

// TestJanitor sweeps all tables.
func TestJanitor(t *testing.T) {
	t.Parallel()
	admin := tables(t)
	old(t, admin)
	db := stdlib.OpenDB(*rolestest.New(t, admin, "janitor").Pool(t).Config().ConnConfig)
	t.Cleanup(func() { _ = db.Close() })
	columns := map[string]string{
		"processed_event": "processed_at", "dead_message": "died_at", "started_message": "started_at",
		"outbox_event": "created_at", "idempotency_key": "expires_at",
	}
	cfg := janitor.Config{Logger: quiet()}
	for table, column := range columns {
		cfg.Tables = append(cfg.Tables, janitor.Table{Name: table, Column: column, Keep: 24 * time.Hour,
			Dedup: []any{janitor.Window(time.Hour)}})
	}
	j, err := janitor.New(db, schema.Postgres, cfg)
	must(t, err)
	if _, err := j.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table := range columns {
		if n := count(t, admin, fmt.Sprintf("select count(*) from %s", table)); n != 0 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
}
