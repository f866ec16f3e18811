package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
	"github.com/einmal-go/einmal/status"
)

// serve serves a handler on a port of its own.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s.URL
}

// sections of a service that says it is well.
func well() status.Sections {
	return status.Sections{
		"orders": func(context.Context) (any, error) {
			return consumer.Status{Phase: consumer.Running, Partitions: []consumer.PartitionStatus{
				{Topic: "orders", Partition: 0, Lag: 12, Next: 40, Oldest: 40, OldestSince: time.Now().Add(-time.Hour), Held: 2,
					Running: 1, Parked: 1},
				{Topic: "orders", Partition: 1, Lag: -1, Next: -1, Oldest: -1},
				{Topic: "orders.retry.1h", OldestSince: time.Now().Add(-time.Hour), OldestDue: time.Now().Add(time.Hour), Held: 1,
					Parked: 1},
				{Topic: "orders.retry.5h", OldestSince: time.Now().Add(-5 * time.Hour),
					OldestDue: time.Now().Add(-10 * time.Minute), Held: 1, Parked: 1},
			}}, nil
		},
		"relay": func(context.Context) (any, error) {
			return relay.Status{Name: "a", Mode: outbox.SinglePhase, Running: true, Seen: time.Now(), Fresh: true, Backlog: 3,
				OldestAge: time.Minute, Published: 100}, nil
		},
		"dead": func(context.Context) (any, error) {
			return &deadletter.Summary{Total: 3, Kinds: map[deadletter.Kind]int64{deadletter.KindGaveUp: 2,
				deadletter.KindPermanent: 1}}, nil
		},
		"build": func(context.Context) (any, error) { return map[string]string{"version": "v1\x1b[31m"}, nil },
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	url := serve(t, status.Handler(well(), nil))
	r := einmal(t, "", "status", url)
	r.want(t, exitOK, "healthy, as of 20", "orders: consumer, running, ready, partitions 4", "@40 1h0m",
		"relay: outbox, relay a, single-phase, running", "backlog 3, oldest 1m0s, blocked 0",
		"dead: dead letters 3: gave_up 2, permanent 1", `build: {"version":"v1`)
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("it lets the service control the terminal: %q", r.out)
	}
	for line := range strings.Lines(r.out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "orders" && f[1] == "1" &&
			(f[2] != "-" || f[6] != "-" || f[7] != "-") {
			t.Errorf("what is not known is shown as %q", line)
		}
	}
	for flag, says := range map[string]string{
		"-max-lag=11":      "orders: orders[0] has a lag of 12, more than 11",
		"-max-open=30m":    "orders: orders[0]@40 is open for 1h0m",
		"-max-open=9m":     "orders: orders.retry.5h[0]@0 is open for 10m0",
		"-max-backlog=30s": "relay: an event waits for 1m0s, longer than 30s",
		"-max-dead=2":      "dead: there are 3 dead letters, more than 2",
	} {
		einmal(t, "", "status", flag, url).want(t, exitNo, "not healthy", "problems:", says)
	}
	if r := einmal(t, "", "status", "-max-open=9m", url); strings.Contains(r.out, "retry.1h[0]@0 is open") {
		t.Errorf("a message that is not due is called open: %s", r.out)
	}
	einmal(t, "", "status", "-max-lag=12", "-max-open=2h", "-max-backlog=2m", "-max-dead=3", url).want(t, exitOK)
}

func TestStatusJSON(t *testing.T) {
	t.Parallel()
	sections := well()
	url := serve(t, status.Handler(sections, nil))
	var answer struct {
		Healthy  bool
		Problems []string
		Report   status.Report
	}
	r := einmal(t, "", "status", "-json", url)
	r.want(t, exitOK, `"problems": []`)
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || !answer.Healthy || len(answer.Report.Sections) != 4 ||
		answer.Report.Sections["build"].Value == nil {
		t.Errorf("%v: %s", err, r.out)
	}
	r = einmal(t, "", "status", "-json", "-max-dead=0", url)
	r.want(t, exitNo)
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || answer.Healthy || len(answer.Problems) != 1 {
		t.Errorf("%v: %s", err, r.out)
	}
}

// A service that is not well, or of which a part does not tell, is not healthy.
func TestStatusOfTrouble(t *testing.T) {
	t.Parallel()
	for says, section := range map[string]status.Section{
		"x: starting": func(context.Context) (any, error) {
			return consumer.Status{Phase: consumer.Starting, NotReady: "starting"}, nil
		},
		"x: Kafka is away": func(context.Context) (any, error) { return relay.Status{Running: true, Paused: true}, nil },
		"x: the table was last read 40s ago": func(context.Context) (any, error) {
			return relay.Status{Running: true, Seen: time.Now().Add(-40 * time.Second),
				Trouble: "the table was last read 40s ago: refused", Backlog: 12_345, Estimated: true}, nil
		},
		"x: no status: the database is away": func(context.Context) (any, error) {
			return nil,
				errors.New("the database is away")
		},
	} {
		sections := well()
		sections["x"] = section
		einmal(t, "", "status", serve(t, status.Handler(sections, nil))).want(t, exitNo, "not healthy", says, "relay: outbox")
		if strings.Contains(says, "table") {
			einmal(t, "", "status", serve(t, status.Handler(sections, nil))).want(t, exitNo, "runs, and does not do its work",
				"backlog about 12345", "in flight 0 (as of 20")
		}
	}
}

// What is not a status says what to look at, and repeats no password.
func TestStatusOfSomethingElse(t *testing.T) {
	t.Parallel()
	answer := func(code int, kind, body string) string {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
	}
	hangs := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for url, c := range map[string]struct {
		code int
		says string
	}{
		answer(200, "text/html", "<html>"):                            {exitNo, `answers with "text/html", which is no JSON`},
		answer(200, "application/json", `{"partitions":1}`):           {exitNo, "no status of einmal"},
		answer(200, "application/json", `[1]`):                        {exitNo, "no status of einmal"},
		answer(200, "application/json", `{"format":9,"sections":{}}`): {exitNo, "format 9, and this binary reads 1"},
		answer(200, "application/json", `{"format":1,"sections":{}}`): {exitNo, "says that it is not healthy"},
		answer(200, "application/json", `[2]`) + "/?token=hunter2":    {exitNo, "no status of einmal"},
		answer(200, "text/plain", "healthy") + "/?token=hunter2":      {exitNo, "which is no JSON"},
		answer(404, "text/plain", "not found"):                        {exitNo, "answers 404 Not Found: is it the path"},
		answer(401, "text/plain", "who are you"):                      {exitNo, "give a user and a password"},
		hangs + " -timeout 200ms":                                     {exitNo, "has not answered within 200ms"},
		"http://" + closed.Addr().String():                            {exitNo, "does not answer"},
		"localhost:8080/status":                                       {exitUsage, "want http://"},
		"ftp://localhost/status":                                      {exitUsage, "want http://"},
		"http://ho st/":                                               {exitUsage, "the"},
		"":                                                            {exitUsage, "name the URL"},
		"-env-token NOBODY http://localhost":                          {exitUsage, "has no NOBODY"},
	} {
		r := einmal(t, "", append([]string{"status"},
			strings.Fields(strings.Replace(url, "http://", "http://me:hunter2@", 1))...)...)
		r.want(t, c.code, c.says)
		if strings.Contains(r.out+r.errors, "hunter2") {
			t.Errorf("%s: it shows the password: %s%s", url, r.out, r.errors)
		}
	}
}

func TestStatusToken(t *testing.T) {
	t.Parallel()
	h := status.Handler(well(), nil)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer postgres://x" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
	einmal(t, "postgres://x", "status", url).want(t, exitNo, "403 Forbidden")
	einmal(t, "postgres://x", "status", "-env-token", envURL, url).want(t, exitOK)
}

// A service as it is: a consumer with a message that fails, a relay that does not run, a table of dead letters, and no
// trace of what is in the messages.
func TestStatusOfAService(t *testing.T) {
	t.Parallel()
	database := serverstest.DatabaseURL(t)
	graveyard(t, database, schema.Postgres)
	db, err := (&urlFlags{url: database}).open(t.Context(), &environment{getenv: func(string) string { return "" }},
		schema.Postgres, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 2)
	for i := range 3 {
		b.Produce(t, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("planted"),
			Value:   sarama.StringEncoder("planted"),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(fmt.Sprint("planted", i))}}})
	}
	c, err := consumer.New(consumer.Config{Brokers: b.Addrs, Group: serverstest.Group(t),
		Logger: slog.New(slog.DiscardHandler), Topics: map[string]consumer.Topic{topic: {
			Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
				if msg.Offset == 1 {
					return fmt.Errorf("cannot charge %s", msg.Value)
				}
				return nil
			}),
		}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx) // what became of it is another test's
	}()
	defer func() {
		stop()
		<-done
	}()
	url := serve(t, status.Handler(status.Sections{
		"consumer": func(context.Context) (any, error) { return c.Status(), nil },
		"dead": func(ctx context.Context) (any, error) {
			return deadletter.Summarize(ctx, sqldeadletter.New(db, schema.Postgres, nil))
		},
	}, nil))
	failing := func() bool {
		for _, p := range c.Status().Partitions {
			if p.Failing != nil && p.Lag == 2 {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(time.Minute); !failing(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no message fails: %+v", c.Status())
		}
	}
	r := einmal(t, "", "status", url)
	r.want(t, exitOK, "consumer: consumer, running, ready, partitions 2", "@1 failed",
		"dead letters 3: gave_up 2, no_event_id 1")
	all := bytes.Join([][]byte{[]byte(r.out), []byte(r.errors), []byte(einmal(t, "", "status", "-json", url).out)}, nil)
	if bytes.Contains(all, []byte("planted")) || bytes.Contains(all, []byte("cannot charge")) {
		t.Errorf("it tells of the messages: %s", all)
	}
}
