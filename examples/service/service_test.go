package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// running is a service that runs in the test's process.
type running struct {
	t      testing.TB
	s      *service
	broker *serverstest.Broker
	client *http.Client
	spans  *spans

	terminate context.CancelFunc
	ended     chan error
}

// start runs a service on topics and a database of its own.
func start(t *testing.T, b *serverstest.Broker) *running {
	t.Helper()
	r := &running{
		t: t, broker: b, spans: newSpans(t), ended: make(chan error, 1),
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	r.s = testService(t, b.Addrs, map[string]string{
		"KAFKA_GROUP": serverstest.Group(t), "ORDERS_TOPIC": b.Topic(t, 2), "PAYMENTS_TOPIC": b.Topic(t, 2),
		"OTEL_EXPORTER_OTLP_ENDPOINT": r.spans.url, "DRAIN_TIMEOUT": "1m", "REQUEST_TIMEOUT": "1m",
	})
	var ctx context.Context
	ctx, r.terminate = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { r.ended <- r.s.run(ctx) }()
	t.Cleanup(r.terminate)
	r.eventually("ready", func() bool { status, _ := r.get("/readyz"); return status == http.StatusOK })
	return r
}

// end waits for the end of the service, and closes it.
func (r *running) end() {
	r.t.Helper()
	err := <-r.ended
	if err != nil {
		r.t.Errorf("the service ended with %v", err)
	}
	if err := r.s.close(err); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

func (r *running) eventually(what string, is func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// get asks as the platform does; without an answer the status is 0.
func (r *running) get(path string) (status int, body string) {
	return r.do(http.MethodGet, "http://"+r.s.ops.Addr().String()+path, "", "")
}

// place asks as a customer does.
func (r *running) place(key string) (status int, body string) {
	body = `{"reference": "` + key + `", "cents": 700}`
	return r.do(http.MethodPost, "http://"+r.s.http.Addr().String()+"/orders", key, body)
}

func (r *running) do(method, url, key, body string) (status int, answer string) {
	ctx := context.WithoutCancel(r.t.Context())
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := r.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// sent is how many events the topic has.
func (r *running) sent(topic string) int64 {
	return r.broker.End(r.t, topic, 0) + r.broker.End(r.t, topic, 1)
}

// TestService sends each request twice, and stops.
func TestService(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		r := start(t, b)
		for i := range 3 {
			key := fmt.Sprintf("key-%d", i)
			status, first := r.place(key)
			if status != http.StatusCreated {
				t.Fatalf("%d %s", status, first)
			}
			if status, again := r.place(key); status != http.StatusCreated || again != first {
				t.Errorf("%d %s, the first answer was %s", status, again, first)
			}
		}
		r.eventually("three charges, and their events", func() bool {
			return len(rows(t, r.s.db.pool, "select order_id from charge")) == 3 && r.sent(r.s.cfg.paymentsTopic) == 3
		})
		r.eventually("metrics of all parts", func() bool {
			_, metrics := r.get("/metrics")
			for _, want := range []string{
				"einmal_attempts_total", "einmal_consumer_ready", "einmal_outbox_healthy",
				"einmal_idempotency_requests_total", "http_server_request_duration_seconds", "go_goroutines",
				`einmal_idempotency_outcome="replayed"`,
			} {
				if !strings.Contains(metrics, want) {
					t.Logf("there is no %s yet", want)
					return false
				}
			}
			return true
		})
		status, text := r.get("/status")
		if status != http.StatusOK || !strings.Contains(text, `"consumer"`) || !strings.Contains(text, `"outbox"`) {
			t.Errorf("/status: %d %s", status, text)
		}
		if status, answer := r.place("last"); status != http.StatusCreated { // its span waits for the next export
			t.Fatalf("%d %s", status, answer)
		}
		r.terminate()
		r.end()
		if got := r.sent(r.s.cfg.ordersTopic); got != 4 {
			t.Errorf("%d events of orders were sent, want 4", got)
		}
		if got := r.spans.named("POST /orders"); got != 7 {
			t.Errorf("%d spans of requests were exported, want 7", got)
		}
		if got := r.spans.named("process " + r.s.cfg.ordersTopic); got < 3 {
			t.Errorf("%d spans of messages were exported, want 3 or more", got)
		}
	})
}

// TestStop has a message in work when the service is told to stop: it takes no more requests, is not ready and alive,
// the message takes effect, and its event is sent, because the relay stops after the consumer, and the pool is closed
// after both.
func TestStop(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		r := start(t, b)
		release := r.hold("charge")
		if status, answer := r.place("k"); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
		r.eventually("the message in work", func() bool {
			for _, p := range r.s.consumer.Status().Partitions {
				if p.Running > 0 {
					return true
				}
			}
			return false
		})
		r.terminate()
		r.eventually("no more requests", func() bool {
			conn, err := net.Dial("tcp", r.s.http.Addr().String())
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
		status, why := r.get("/readyz")
		if status != http.StatusServiceUnavailable || !strings.Contains(why, "stopping") {
			t.Errorf("/readyz: %d %s", status, why)
		}
		if status, _ := r.get("/livez"); status != http.StatusOK {
			t.Errorf("/livez: %d", status)
		}
		release()
		r.end()
		if got := r.sent(r.s.cfg.paymentsTopic); got != 1 {
			t.Errorf("%d events of payments were sent, want 1", got)
		}
		if err := r.s.db.pool.Ping(context.WithoutCancel(t.Context())); err == nil {
			t.Error("the pool is not closed")
		}
	})
}

// TestNotReady has no Kafka: the service answers and lives, and is not ready.
func TestNotReady(t *testing.T) {
	t.Parallel()
	s := idleService(t)
	probes := httptest.NewServer(s.probes(t.Context()))
	defer probes.Close()
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK,
	} {
		response, err := probes.Client().Get(probes.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	s.joined.Store(true) // Kafka's troubles are not those of requests from then on, and the answer tells of them
	response, err := probes.Client().Get(probes.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	why, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || string(why) != "ready; consumer: created\n" {
		t.Errorf("/readyz: %d %q, %v", response.StatusCode, why, err)
	}
}

// hold locks a table until release is called.
func (r *running) hold(table string) (release func()) {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	conn, err := pgx.Connect(ctx, r.s.cfg.databaseURL)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "begin; lock table "+table+" in exclusive mode"); err != nil {
		r.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = conn.Close(ctx) })
	r.t.Cleanup(release)
	return release
}

// spans is a collector that takes spans by OTLP, and counts them by name.
type spans struct {
	url string

	mu    sync.Mutex
	count map[string]int
}

func newSpans(t testing.TB) *spans {
	c := &spans{count: map[string]int{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var batch collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &batch) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range batch.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.count[span.GetName()]++
			}
		}
	}
}

func (c *spans) named(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[name]
}
