package observetest

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/names"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// secrets are planted where a service has some.
var secrets = map[string]string{
	"payload": "s3cret-payload", "key": "s3cret-key", "header": "s3cret-header", "password": "s3cret-password",
	"error": "s3cret-error",
}

// fullRun consumes (a success, a duplicate, retries, a panic, an undecodable message, dead letters), relays, and
// sweeps, with secrets in everything that a message is made of, in the texts of errors and in the database's password.
func fullRun(w *world) {
	w.Helper()
	w.withPassword(secrets["password"])
	cfg := w.config(consumer.JSONTx(func(ctx context.Context, tx pgx.Tx, event struct{ Do, Text string }) error {
		msg, _ := consumer.MessageFrom(ctx)
		switch {
		case event.Do == "fail once" && msg.Attempt > 1, event.Do == "work":
			return write(ctx, tx, msg)
		case event.Do == "panic":
			panic(secrets["error"])
		case event.Do == "sql":
			_, err := tx.Exec(ctx, "select $1::text::int", event.Text)
			return err
		case event.Do == "permanent":
			return consumer.Permanent(errors.New(secrets["error"]))
		default:
			return errors.New(secrets["error"])
		}
	}))
	_, stop := w.consume(cfg)
	event := func(do string) string { return fmt.Sprintf(`{"Do":%q,"Text":%q}`, do, secrets["payload"]) }
	for i, value := range []string{
		event("work"), event("work"), event("fail once"), event("panic"), event("sql"), event("permanent"), event("fail"),
		secrets["payload"],
	} {
		id := fmt.Sprint(max(1, i))
		w.produce(w.record(id, secrets["key"], value, "token", secrets["header"]))
	}
	w.eventually("five messages are dead letters", func() bool { return w.scrape().sum("einmal_dead_letters_total") == 5 })
	w.handled(2)

	r, _ := w.relay(func(*relay.Config) {})
	w.write(
		outbox.Event{ID: "1", Topic: w.topic, Key: []byte(secrets["key"]), Value: []byte(event("work")),
			Headers: []outbox.Header{{Key: "token", Value: []byte(secrets["header"])}}},
	)
	w.exec("insert into outbox_event (event_id, topic, partition_key, payload) values ('2', 'no such topic', $1, $2)",
		[]byte(secrets["key"]), []byte(secrets["payload"]))
	w.eventually("one is sent, one is blocked", func() bool { s := r.Status(); return s.Published == 1 && s.Blocked == 1 })
	_, err := w.janitor(janitor.Table{Name: "processed_event", Column: "processed_at", Keep: 24 * time.Hour},
		janitor.Table{Name: "not_there", Column: "at", Keep: time.Hour}).Sweep(w.Context())
	if err == nil {
		w.Fatal("a table that is not there was swept")
	}
	pay := w.served()
	for range 2 {
		if status := pay(secrets["key"], secrets["payload"]); status != http.StatusOK {
			w.Fatalf("answered %d", status)
		}
	}
	stop() // so that all of a run is seen in lines, spans and metrics
}

// withPassword makes the pool that of a role of its own.
func (w *world) withPassword(password string) {
	w.Helper()
	role := "observed_" + strings.ReplaceAll(w.group, "-", "_")
	role = role[:min(len(role), 60)]
	ident := pgx.Identifier{role}.Sanitize()
	w.exec("create role " + ident + " login superuser password '" + password + "'")
	admin := w.pool
	u, err := url.Parse(w.url)
	w.must(err)
	u.User = url.UserPassword(role, password)
	w.url = u.String()
	w.pool, err = pgxpool.New(context.Background(), w.url)
	w.must(err)
	mine := w.pool
	w.Cleanup(func() {
		mine.Close()
		if _, err := admin.Exec(context.Background(), "reassign owned by "+ident+" to current_user; drop owned by "+ident+
			"; drop role "+ident); err != nil {
			w.Error(err)
		}
	})
}

// TestNoSecretShows looks for the secrets, in some forms, in all that logs at debug, spans and metrics have of a full
// run.
func TestNoSecretShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fullRun(w)
	metrics := w.scrape()
	seen := map[string]string{
		"logs":    w.logs.String(),
		"spans":   fmt.Sprintf("%+v", w.spans.GetSpans()),
		"metrics": fmt.Sprintf("%+v", metrics),
	}
	for where, text := range seen {
		if len(text) < 1000 {
			t.Errorf("%s are only %q", where, text)
		}
		for what, secret := range secrets {
			for _, form := range []string{secret, hex.EncodeToString([]byte(secret)),
				base64.StdEncoding.EncodeToString([]byte(secret))[:12], fmt.Sprintf("%d", []byte(secret))} {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("the %s is in the %s: ...%s...", what, where, text[max(0, at-300):min(len(text), at+100)])
				}
			}
		}
	}
}

// plain are attributes of log lines that are no names of spans or metrics: what a line is about beside the message.
var plain = []string{
	"time", "level", "msg", "error", "partitions", "generation", "cause", "relay", "rows", "id", "first_id", "again_in",
	"deleted", "batches", "duration",
	"created", "dropped", "attempts", "waited", "skipped", "repeated", "committed", "budget", "limit", "messages",
	"theirs", "offered", "transactions",
	"retry_at", "outage_seconds", "failures", "like", "brokers", "rebalance", "topics", "version", "coordinator",
	"again_in_seconds", "duration_seconds", "budget_seconds", "limit_seconds", "waited_seconds", "keep_seconds",
	"open_seconds", "after_seconds",
}

// TestNamesAgree: what spans, metrics and log lines call by a dotted name is in package names, and one name is one
// type.
func TestNamesAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fullRun(w)
	failWithoutLogging(w)
	types := map[string]string{}
	check := func(where, key, typ string) {
		t.Helper()
		if !slices.Contains(names.Attributes(), key) {
			t.Errorf("%s have %s, which is not in package names", where, key)
		}
		if known, ok := types[key]; ok && known != typ {
			t.Errorf("%s is %s in the %s, and %s elsewhere", key, typ, where, known)
		}
		types[key] = typ
	}
	for line := range strings.SplitSeq(strings.TrimSpace(w.logs.String()), "\n") {
		var attrs map[string]any
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			t.Fatal(err)
		}
		for key, value := range attrs {
			if !slices.Contains(plain, key) {
				check("log lines", key, jsonType(value))
			}
		}
	}
	for _, span := range w.spans.GetSpans() {
		for _, kv := range span.Attributes {
			check("spans", string(kv.Key), jsonType(kv.Value.AsInterface()))
		}
	}
	for name, m := range w.instruments() {
		for key := range m.keys {
			if !slices.Contains(names.Attributes(), key) {
				t.Errorf("%s has %s, which is not in package names", name, key)
			}
		}
	}
	for _, shared := range []string{"messaging.destination.name", "einmal.outcome", "error.type"} {
		if types[shared] == "" {
			t.Errorf("nothing has %s", shared)
		}
	}
}

// failWithoutLogging has the runner write its own lines about a failed attempt.
func failWithoutLogging(w *world) {
	w.Helper()
	cfg := w.config(func(context.Context, pgx.Tx, *consumer.Message) error {
		return consumer.RetryAfter(time.Millisecond, errNoStock)
	})
	cfg.Group, cfg.Middleware = serverstest.Group(w), nil
	c, err := consumer.New(cfg)
	w.must(err)
	stop := w.run(c.Run)
	w.eventually("the runner tells of a failure",
		func() bool { return strings.Contains(w.logs.String(), "another attempt follows") })
	stop()
}

func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a bool"
	case int64, float64, int:
		return "a number"
	default:
		return fmt.Sprintf("a %T", v)
	}
}

// TestOutcomesAgree: log lines, spans and metrics count the same attempts under the same names.
func TestOutcomesAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fullRun(w)
	logged, spanned := map[string]int{}, map[string]int{}
	for line := range strings.SplitSeq(strings.TrimSpace(w.logs.String()), "\n") {
		var attrs map[string]any
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			t.Fatal(err)
		}
		if outcome, ok := attrs[string(names.Outcome)].(string); ok {
			logged[outcome]++
		}
	}
	for _, span := range w.spans.GetSpans() {
		for _, kv := range span.Attributes {
			if kv.Key == names.Outcome {
				spanned[kv.Value.AsString()]++
			}
		}
	}
	metrics := w.scrape()
	if len(logged) < 4 {
		t.Errorf("only %v", logged)
	}
	for outcome, n := range logged {
		if counted := metrics.sum("einmal_attempts_total",
			fmt.Sprintf("einmal_outcome=%q", outcome)); spanned[outcome] != n || counted != float64(n) {
			t.Errorf("%s: %d log lines, %d spans, counted %v", outcome, n, spanned[outcome], counted)
		}
	}
}

// TestOneLineForAFailure: with Logging in the chain the runner writes none of its own about a failed attempt.
func TestOneLineForAFailure(t *testing.T) {
	t.Parallel()
	for _, withLogging := range []bool{true, false} {
		t.Run(fmt.Sprint("logging ", withLogging), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg := w.config(func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				if msg.Attempt == 1 {
					return errNoStock
				}
				return write(ctx, tx, msg)
			})
			if !withLogging {
				cfg.Middleware = cfg.Middleware[:2]
			}
			w.consume(cfg)
			w.produce(w.record("1", "a", "1"))
			w.handled(1)
			lines := 0
			for line := range strings.SplitSeq(w.logs.String(), "\n") {
				if strings.Contains(line, `"messaging.kafka.offset":0`) && strings.Contains(line, `"einmal.attempt":1`) {
					lines++
				}
			}
			if lines != 1 {
				t.Errorf("%d lines about the first attempt, want 1:\n%s", lines, w.logs)
			}
		})
	}
}
