package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// What the trace of an order comes to whose payment is refused for a while, whose answer is lost then, and which is
// delivered again in the end.
const oneOrder = `
POST /orders 201
  process ORDERS attempt=1 retry error
    record
    handler
    POST 503 error
    POST 503 error
    POST 503 error
    POST 503 error
    POST 503 error
    rollback
  process ORDERS attempt=2 success
    record
    handler
    POST error
      POST /charges 201
    POST 201
      POST /charges 201
    commit
    process PAYMENTS attempt=1 success
      record
      handler
      commit
  process ORDERS attempt=1 duplicate
    record
`

func TestOneTraceFromOrderToReceipt(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	otel.SetTracerProvider(tracers) // of this test's process alone: the stories have processes of their own
	broker := serverstest.InProcess(t)
	s := shop{
		T: t, brokers: strings.Join(broker.Addrs, ","), orders: broker.Topic(t, 1), payments: broker.Topic(t, 1),
		spans: spans, trace: trace.TraceID{0x0a, 0xf7, 1},
	}
	s.open()

	s.order()
	s.await("the receipt", func(tree string) bool { return strings.Contains(tree, "process PAYMENTS attempt=1 success") })
	s.deliverAgain(broker)
	s.await("the duplicate", func(tree string) bool { return strings.Contains(tree, "duplicate\n    record") })

	if got := "\n" + s.tree(); got != oneOrder {
		t.Errorf("the trace is:\n%s\nwant:\n%s", got, oneOrder)
	}
	// A relay sends the events of many traces at once: its spans are linked to each.
	for topic, event := range map[string]string{s.orders: "POST /orders", s.payments: "process ORDERS attempt=2 success"} {
		s.await("the relay's span", func(string) bool { return s.linked("send "+topic, event) })
	}
}

// shop is all services in one process, with one order.
type shop struct {
	*testing.T

	brokers, orders, payments string
	url                       string // of the order service
	spans                     *tracetest.InMemoryExporter
	trace                     trace.TraceID
}

// open starts the services. When the test ends, each drains, and says nothing.
func (s *shop) open() {
	ctx, terminate := context.WithCancel(context.Background())
	ended, running := make(chan error), 0
	start := func(name string, args ...string) {
		running++
		go func() { ended <- commands[name](ctx, args, io.Discard) }()
	}
	s.Cleanup(func() {
		terminate()
		for range running {
			if err := <-ended; err != nil {
				s.Error(err)
			}
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	orders := serverstest.DatabaseURL(s)
	ordersAddr, ordersSocket := openPort(s)
	providerAddr, providerSocket := openPort(s)
	s.url = "http://" + ordersAddr + "/orders"
	start("provider", "-listen", providerSocket, "-database", serverstest.DatabaseURL(s))
	start("orders", "-listen", ordersSocket, "-database", orders, "-topic", s.orders)
	start("relay", "-brokers", s.brokers, "-database", orders)
	start("charges", "-brokers", s.brokers, "-database", serverstest.DatabaseURL(s), "-topic", s.orders, "-group",
		serverstest.Group(s),
		"-payments", s.payments, "-provider", troubled(s, providerAddr))
	start("receipts", "-brokers", s.brokers, "-database", serverstest.DatabaseURL(s), "-topic", s.payments, "-group",
		serverstest.Group(s))
}

// openPort returns a port, and what makes a service take it over.
func openPort(t testing.TB) (addr, flag string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), fmt.Sprintf("fd:%d", fd)
}

// troubled is a way to the provider that refuses the first five calls, and loses the answer to the sixth.
func troubled(t testing.TB, addr string) (address string) {
	t.Helper()
	way := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	var calls atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := calls.Add(1); {
		case n <= 5:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n == 6:
			way.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			way.ServeHTTP(w, r)
		}
	}))
	server.Config.SetKeepAlivesEnabled(false) // net/http by itself would repeat what was lost on a connection that it had used before
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// order places an order, within a trace of the customer's.
func (s *shop) order() {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url,
		strings.NewReader(`{"reference": "mine", "cents": 700}`))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", `"mine"`)
	req.Header.Set("Traceparent", fmt.Sprintf("00-%s-b7ad6b7169203331-01", s.trace))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		s.Fatal(answer.Status)
	}
}

// deliverAgain sends a copy of the order's event, as a relay that dies at a bad moment does.
func (s *shop) deliverAgain(b *serverstest.Broker) {
	consumer, err := sarama.NewConsumer(b.Addrs, nil)
	if err != nil {
		s.Fatal(err)
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(s.orders, 0, sarama.OffsetOldest)
	if err != nil {
		s.Fatal(err)
	}
	defer partition.Close()
	event := <-partition.Messages()
	again := &sarama.ProducerMessage{Topic: s.orders, Key: sarama.ByteEncoder(event.Key),
		Value: sarama.ByteEncoder(event.Value)}
	for _, h := range event.Headers {
		again.Headers = append(again.Headers, *h)
	}
	b.Produce(s, again)
}

// await waits until the trace is as done says.
func (s *shop) await(what string, done func(tree string) bool) {
	for deadline := time.Now().Add(time.Minute); !done(s.tree()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("no sign of %s; the trace is:\n%s", what, s.tree())
		}
	}
}

// tree shows the spans of the trace, each below its parent, in the order of their beginnings.
func (s *shop) tree() string {
	children := map[trace.SpanID][]tracetest.SpanStub{}
	known := map[trace.SpanID]bool{}
	for _, span := range s.spans.GetSpans() {
		if span.SpanContext.TraceID() == s.trace {
			children[span.Parent.SpanID()] = append(children[span.Parent.SpanID()], span)
			known[span.SpanContext.SpanID()] = true
		}
	}
	var b strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		list := children[parent]
		slices.SortStableFunc(list, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
		for _, span := range list {
			b.WriteString(indent + s.line(span) + "\n")
			write(span.SpanContext.SpanID(), indent+"  ")
		}
	}
	for parent := range children {
		if !known[parent] { // the customer's, or one that has not ended
			write(parent, "")
		}
	}
	return b.String()
}

// line is a span in words.
func (s *shop) line(span tracetest.SpanStub) string {
	words := []string{strings.NewReplacer(s.orders, "ORDERS", s.payments, "PAYMENTS").Replace(span.Name)}
	is := map[string]string{}
	for _, a := range span.Attributes {
		is[string(a.Key)] = a.Value.String()
	}
	if n := is["einmal.attempt"]; n != "" {
		words = append(words, "attempt="+n)
	}
	if word := cmp.Or(is["einmal.outcome"], is["http.response.status_code"]); word != "" {
		words = append(words, word)
	}
	if span.Status.Code.String() == "Error" {
		words = append(words, "error")
	}
	return strings.Join(words, " ")
}

// linked reports whether a span of that name is linked to the one that line describes so.
func (s *shop) linked(name, line string) bool {
	var target trace.SpanID
	for _, span := range s.spans.GetSpans() {
		if span.SpanContext.TraceID() == s.trace && s.line(span) == line || strings.HasPrefix(s.line(span), line+" ") {
			target = span.SpanContext.SpanID()
		}
	}
	return slices.ContainsFunc(s.spans.GetSpans(), func(span tracetest.SpanStub) bool {
		return span.Name == name && slices.ContainsFunc(span.Links,
			func(l sdktrace.Link) bool { return l.SpanContext.SpanID() == target })
	})
}
