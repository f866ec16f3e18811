package observetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/redact/redacttest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/status"
)

// payload is what is in the messages, and must be seen nowhere. The largest is of 10 MB.
const payload = "s3cret-payload"

func largePayload() string {
	return strings.Repeat(payload+` <script>alert("`+payload+`")</script> \" '`+"\x1b[31m\u009b2J\u202e", 150_000)
}

// logConfigs are the ways in which services log.
var logConfigs = map[string]struct {
	handler func(io.Writer) slog.Handler
	links   func(w *world, metrics consumer.Middleware, log *slog.Logger) []consumer.Middleware
}{
	"the runner's lines, as text": {
		func(to io.Writer) slog.Handler { return slog.NewTextHandler(to, nil) },
		func(_ *world, metrics consumer.Middleware, _ *slog.Logger) []consumer.Middleware {
			return []consumer.Middleware{metrics}
		},
	},
	"Logging, in JSON at debug, with ids": {
		func(to io.Writer) slog.Handler {
			return slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug})
		},
		func(_ *world, metrics consumer.Middleware, log *slog.Logger) []consumer.Middleware {
			return []consumer.Middleware{metrics,
				middleware.Logging(log, &middleware.LoggingConfig{PerSecond: -1, EventID: true})}
		},
	},
	"Logging and spans with the errors' own texts": {
		func(to io.Writer) slog.Handler { return slog.NewJSONHandler(to, nil) },
		func(w *world, metrics consumer.Middleware, log *slog.Logger) []consumer.Middleware {
			return []consumer.Middleware{
				middleware.Tracing(&middleware.TracingConfig{TracerProvider: w.tracers, EventID: true, ErrorText: withoutPayload}),
				metrics,
				middleware.Logging(log, &middleware.LoggingConfig{PerSecond: -1, ErrorText: withoutPayload}),
			}
		},
	},
}

// withoutPayload is what a careful user makes of an error: it knows its payload, and not all secrets.
func withoutPayload(err error) string { return strings.ReplaceAll(err.Error(), payload, "") }

// TestPlantedSecrets plants secrets in all spellings, and payloads that move terminals and pages, in everything that
// strangers control, and looks for them in all that people see.
func TestPlantedSecrets(t *testing.T) {
	t.Parallel()
	cli := filepath.Join(t.TempDir(), "einmal")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", cli,
		"../../cmd/einmal").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range logConfigs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &planted{world: newWorld(t), cli: cli, seen: map[string]string{}}
			log := slog.New(c.handler(p.logs))
			p.consumeAll(log, c.links(p.world, middleware.Metrics(&middleware.MetricsConfig{MeterProvider: p.meters}), log))
			p.relayAll(log)
			p.requestAll(log)
			p.see()
			p.judge()
		})
	}
}

// planted is a world, and what people see of it.
type planted struct {
	*world

	cli  string
	seen map[string]string
}

// provider answers with the secret whose number the path has, wherever an answer has room for one.
func (p *planted) provider() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &i)
		spelling := redacttest.Spellings[i]
		w.Header().Set("X-Error", strings.ReplaceAll(spelling, "\n", " "))
		w.Header().Set("Location", "https://elsewhere.example/?"+url.QueryEscape(spelling))
		w.WriteHeader([]int{http.StatusFound, http.StatusTeapot, http.StatusInternalServerError}[i%3])
		_, _ = io.WriteString(w, redacttest.Nasty+spelling)
	}))
	p.Cleanup(server.Close)
	return server.URL
}

// consumeAll handles a message for each spelling, and one of 10 MB, that all fail in one of four ways, with errors that
// repeat everything.
func (p *planted) consumeAll(log *slog.Logger, links []consumer.Middleware) {
	p.Helper()
	provider := p.provider()
	client := &http.Client{Transport: idempotency.NewTransport(nil, &idempotency.TransportConfig{Attempts: 1})}
	handler := func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		text := fmt.Sprintf("event %s, key %s, headers %q, value %s", msg.EventID, msg.Key, msg.Headers, msg.Value)
		i := int(msg.Offset)
		switch {
		case i >= len(redacttest.Spellings): // the large one
			return consumer.Permanent(errors.New(text))
		case i%4 == 0:
			panic(text)
		case i%4 == 1:
			_, err := tx.Exec(ctx, "select $1::text::int", redacttest.Spellings[i]+text)
			return consumer.Permanent(err)
		case i%4 == 2:
			return consumer.Permanent(callProvider(ctx, client, fmt.Sprintf("%s/%d", provider, i), i))
		default:
			return consumer.Permanent(fmt.Errorf("%s: %s: %w", redacttest.Spellings[i], text, errNoStock))
		}
	}
	store := pgxstore.New(p.pool, nil)
	cfg := p.config(nil)
	cfg.Logger, cfg.Middleware = log, links
	cfg.Topics = map[string]consumer.Topic{p.topic: {
		Middleware: []consumer.Middleware{
			middleware.DeadLetter(store, pgxdeadletter.New(p.pool, nil), &middleware.DeadLetterConfig{Logger: log}),
			middleware.Retry(2, &middleware.RetryConfig{Base: time.Millisecond, Max: 2 * time.Millisecond}),
			middleware.Recover(),
		},
		Handler: middleware.Dedup(store, handler, nil),
	}}
	c, stop := p.consume(cfg)
	var msgs []*sarama.ProducerMessage
	for i, spelling := range redacttest.Spellings {
		value := fmt.Sprintf("%s %s %s", payload, redacttest.Nasty, spelling)
		id := fmt.Sprint(i, " ", spelling)
		if i%5 == 0 {
			id += redacttest.Nasty
		}
		msgs = append(msgs, p.record(id, payload+spelling, value, "token", spelling, spelling, payload, redacttest.Nasty,
			redacttest.Nasty))
	}
	p.produce(msgs...)
	p.produceLarge(p.record("large", payload, largePayload(), "h", largePayload()[:100_000]))
	p.eventually("all are dead letters", func() bool {
		var n int
		p.must(p.pool.QueryRow(p.Context(), "select count(*) from dead_message").Scan(&n))
		return n == len(redacttest.Spellings)+1
	})
	p.serve("consumer", func(context.Context) (any, error) { return c.Status(), nil })
	p.seen["pages"] = p.pages(c)
	stop()
	p.seen["dead letters' texts"] = p.column("select concat_ws(' ', error, error_type, kind) from dead_message order by id")
}

// pages are those of a console that shows c.
func (p *planted) pages(c *consumer.Consumer) string {
	shown, err := console.New(console.Config{Title: redacttest.Nasty, Processes: []console.Process{{
		Name: p.topic + redacttest.Nasty, Status: status.Handler(status.Sections{
			"consumer": func(context.Context) (any, error) { return c.Status(), nil },
		}, nil),
	}}})
	p.must(err)
	var text strings.Builder
	for _, path := range []string{"/", "/partitions", "/process?name=" + url.QueryEscape(p.topic+redacttest.Nasty)} {
		w := httptest.NewRecorder()
		shown.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if w.Code != http.StatusOK {
			p.Errorf("GET %s: %d", path, w.Code)
		}
		text.WriteString(w.Body.String())
	}
	return text.String()
}

func callProvider(ctx context.Context, client *http.Client, at string, i int) error {
	ctx = idempotency.WithKey(ctx, idempotency.Key("a", fmt.Sprint(i)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"?token=hunter2-9f8e7d", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.SetBasicAuth("app", "hunter2-9f8e7d")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return errors.Join(err, fmt.Errorf("the provider answers %s: %s: %s", res.Status, res.Header, body))
}

// produceLarge produces one that is larger than clients send by default.
func (p *planted) produceLarge(msg *sarama.ProducerMessage) {
	p.Helper()
	c := sarama.NewConfig()
	c.Producer.Return.Successes, c.Producer.MaxMessageBytes = true, 64<<20
	admin, err := sarama.NewClusterAdmin(p.b.Addrs, c)
	p.must(err)
	defer func() { _ = admin.Close() }()
	limit := "67108864"
	p.must(admin.AlterConfig(sarama.TopicResource, p.topic, map[string]*string{"max.message.bytes": &limit}, false))
	producer, err := sarama.NewSyncProducer(p.b.Addrs, c)
	p.must(err)
	defer func() { _ = producer.Close() }()
	_, _, err = producer.SendMessage(msg)
	p.must(err)
}

// relayAll has rows that can never be sent, whose topics, ids, keys and headers have secrets.
func (p *planted) relayAll(log *slog.Logger) {
	p.Helper()
	for i, spelling := range redacttest.Spellings {
		p.exec("insert into outbox_event (event_id, topic, partition_key, payload) values ($1, $2, $3, $4)",
			fmt.Sprint(i, " ", spelling), "no such topic "+spelling, []byte(payload+spelling), []byte(payload))
	}
	r, stop := p.relay(func(cfg *relay.Config) { cfg.Logger, cfg.Database = log, pgxoutbox.NewDatabase(p.pool) })
	p.eventually("all are blocked", func() bool { return r.Status().Blocked == int64(len(redacttest.Spellings)) })
	p.serve("outbox", func(context.Context) (any, error) { return r.Status(), nil })
	stop()
	p.seen["texts of the outbox"] = p.column("select coalesce(last_error, '') from outbox_event order by id")
}

// requestAll sends requests with keys, whose handler fails with everything that is in them.
func (p *planted) requestAll(log *slog.Logger) {
	p.Helper()
	handler, err := idempotency.NewHandler(pgxidempotency.New(p.pool, nil),
		func(ctx context.Context, tx pgx.Tx, _ http.ResponseWriter, r *http.Request) error {
			body, err := io.ReadAll(r.Body)
			if err == nil && r.Method == http.MethodPut {
				_, err = tx.Exec(ctx, "select $1::text::int", string(body))
			}
			return fmt.Errorf("%s %s %v: %s: %w", r.Method, r.URL, r.Header, body, errors.Join(err, errNoStock))
		}, idempotency.HandlerConfig{Principal: func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
			Logger: log})
	p.must(err)
	var answers strings.Builder
	for i, spelling := range redacttest.Spellings {
		method := []string{http.MethodPost, http.MethodPut}[i%2]
		req := httptest.NewRequestWithContext(p.Context(), method, "/pay/"+url.PathEscape(spelling)+"?"+
			spelling[:0]+url.QueryEscape(spelling), strings.NewReader(payload+redacttest.Nasty+spelling))
		req.Header.Set("X-User", spelling)
		req.Header.Set("X-Nasty", redacttest.Nasty)
		req.Header.Set("Authorization", "Bearer "+spelling)
		req.Header.Set("Idempotency-Key", fmt.Sprintf("%q", fmt.Sprint("hunter2-9f8e7d-", i)))
		if i%3 == 0 {
			req.Header.Set("Idempotency-Key", spelling) // most are no keys
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		fmt.Fprintf(&answers, "%d %s\n", answer.Code, answer.Body)
	}
	p.seen["answers to requests"] = answers.String()
}

// serve has a section seen as JSON, by the command and as it is served. Beside it stand some that fail.
func (p *planted) serve(name string, tell status.Section) {
	p.Helper()
	sections := status.Sections{name: tell, "dead": func(ctx context.Context) (any, error) {
		return deadletter.Summarize(ctx, pgxdeadletter.New(p.pool, nil))
	}}
	for i, spelling := range redacttest.Spellings {
		sections[fmt.Sprint("own ", i)] = func(context.Context) (any, error) {
			return nil,
				errors.New(spelling + redacttest.Nasty)
		}
	}
	server := httptest.NewServer(status.Handler(sections, nil))
	defer server.Close()
	answer, err := http.Get(server.URL)
	p.must(err)
	text, err := io.ReadAll(answer.Body)
	p.must(errors.Join(err, answer.Body.Close()))
	p.seen["Status of "+name] = string(text)
	p.einmal("status", server.URL)
	p.einmal("status", "-json", server.URL)
}

// hostile is a status server of a stranger's: with a section for each spelling, or with one in its reason phrase.
func (p *planted) hostile() {
	p.Helper()
	sections := map[string]any{}
	for i, s := range redacttest.Spellings {
		text := s + redacttest.Nasty
		sections[fmt.Sprint("own ", i)] = map[string]any{"value": map[string]any{"text": text}, "problem": text}
		sections[fmt.Sprint("error ", i)] = map[string]any{"error": text}
		sections[fmt.Sprint("consumer ", i)] = map[string]any{"value": map[string]any{
			"kind": "consumer", "phase": text, "not_ready": text,
			"partitions": []any{map[string]any{"topic": text, "fetch_error": text, "paused": true, "paused_by": text,
				"failing": map[string]any{"error_type": text}}},
		}}
		sections[fmt.Sprint("outbox ", i)] = map[string]any{"value": map[string]any{"kind": "outbox", "name": text,
			"mode": text, "last_error": text, "trouble": text}}
		sections[fmt.Sprint("dead ", i)] = map[string]any{"value": map[string]any{"kind": "dead_letters",
			"kinds": map[string]int{text: 1}}}
	}
	doc, err := json.Marshal(map[string]any{"format": status.Format, "healthy": false, "sections": sections})
	p.must(err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(doc) }))
	defer server.Close()
	p.einmal("status", server.URL)
	p.einmal("status", "-json", server.URL)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	p.must(err)
	defer listener.Close()
	for _, s := range redacttest.Spellings[:10] {
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 500 %s\x1b[31m\u009b2J\u202e\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
					s)
				_ = conn.Close()
			}
		}()
		p.einmal("status", "http://app:hunter2-9f8e7d@"+listener.Addr().String()+"/?token=hunter2-9f8e7d")
	}
}

// see collects what is seen when all is over.
func (p *planted) see() {
	p.Helper()
	p.seen["log"] = p.logs.String()
	p.seen["spans"] = fmt.Sprintf("%+v", p.spans.GetSpans())
	p.seen["metrics"] = fmt.Sprintf("%+v", p.scrape())
	p.hostile()
	// Somebody has edited secrets into the texts of the tables.
	p.exec("update dead_message set error = $1, error_type = $1, redrive_error = $1 where id % 2 = 0",
		redacttest.Spellings[3]+redacttest.Nasty[:6]+"\u009b\u202e")
	p.exec("update outbox_event set last_error = $1 where id % 2 = 0", redacttest.Spellings[3]+redacttest.Nasty[:6]+
		"\u009b\u202e")
	p.einmal("dead", "list")
	p.einmal("dead", "list", "-json")
	p.einmal("dead", "show", "1", "2", "3")
	p.einmal("dead", "discard", "-all", "-dry-run")
	p.einmal("dead", "redrive", "-all", "-dry-run")
	p.einmal("outbox", "list")
	p.einmal("outbox", "list", "-json")
	p.einmal("outbox", "show", "1", "2", "3")
	p.einmal("outbox", "discard", "-state", "BLOCKED", "-dry-run")
	brokers := strings.Join(p.b.Addrs, ",")
	for _, form := range []string{"-json=false", "-json"} {
		p.einmal("audit", form, "-brokers", brokers, "-topic", p.topic, "-group", p.group)
		p.einmal("replay", "check", form, "-brokers", brokers, "-topic", p.topic, "-consumer", p.group+"/"+p.topic, "-since",
			"1h")
		p.einmal("schema", "check", form)
	}
	p.consoleOf(brokers)
	p.einmal("status", "-timeout", "postgres://app:hunter2-9f8e7d@db/x", "http://localhost:1")
	p.einmal("dead", "list", "-url", "postgres://app:hunter2-9f8e7d@localhost:1/x")
	p.einmal("dead", "list", "-url", "postgres://app:hunter2-9f8e7d@local host/x")
	p.einmal("password=hunter2-9f8e7d")
}

// einmal runs the operators' command.
func (p *planted) einmal(args ...string) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), p.cli, args...)
	cmd.Env = append(cmd.Environ(), "EINMAL_DATABASE_URL="+p.url)
	out, _ := cmd.CombinedOutput() // its exit code is another test's
	if len(out) == 0 {
		p.Errorf("einmal %s says nothing", args)
	}
	p.seen["einmal "+strings.Join(args, " ")] += string(out)
}

func (p *planted) column(query string) string {
	p.Helper()
	rows, err := p.pool.Query(p.Context(), query)
	p.must(err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.must(err)
	return strings.Join(texts, "\n")
}

// judge looks for what must not be seen.
func (p *planted) judge() {
	p.Helper()
	if len(p.seen) < 25 || len(redacttest.Spellings) < 60 {
		p.Errorf("only %d outputs", len(p.seen))
	}
	for where, text := range p.seen {
		where = strings.ReplaceAll(where, "hunter2-9f8e7d", "")
		if around := redacttest.In(text); around != "" {
			p.Errorf("%s: a secret is seen: ...%q...", where, around)
		}
		if at := strings.Index(text, payload); at >= 0 {
			p.Errorf("%s: a payload is seen: ...%q...", where, text[max(0, at-200):min(len(text), at+100)])
		}
		if strings.HasPrefix(where, "einmal ") || where == "log" || where == "the console's table" {
			if at := strings.IndexFunc(text, func(r rune) bool {
				return r != '\n' && r != '\t' &&
					!unicode.IsPrint(r)
			}); at >= 0 {
				p.Errorf("%s: it moves the terminal: ...%q...", where, text[max(0, at-100):min(len(text), at+50)])
			}
		}
		if where == "pages" && strings.Count(text, "<script") != strings.Count(text, "<script src=") {
			p.Errorf("a page runs a stranger's script")
		}
		if longest := 256 << 10; len(text) > longest && !strings.HasPrefix(where, "einmal status") && where != "log" &&
			where != "spans" && where != "the console's texts of errors" {
			p.Errorf("%s has %d bytes", where, len(text))
		}
		for line := range strings.Lines(text) {
			if where == "log" && len(line) > 20<<10 {
				p.Errorf("a line of %d bytes", len(line))
			}
		}
	}
}
