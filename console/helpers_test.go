package console

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/status"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// browser asks a console as a browser does.
type browser struct {
	*testing.T

	h http.Handler
}

// serving returns a console under a prefix, as a service mounts it.
func serving(t *testing.T, cfg Config) (*browser, *Console) {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/einmal/", http.StripPrefix("/ops/einmal", c))
	return &browser{t, mux}, c
}

func (b *browser) do(r *http.Request) *httptest.ResponseRecorder {
	b.Helper()
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Security-Policy"); got != contentPolicy {
		b.Errorf("%s %s has the policy %q", r.Method, r.URL, got)
	}
	return w
}

// get returns a page, whose status must be want.
func (b *browser) get(path string, want int) string {
	b.Helper()
	w := b.do(httptest.NewRequest(http.MethodGet, "/ops/einmal/"+path, http.NoBody))
	if w.Code != want {
		b.Errorf("GET %s: %d, want %d\n%s", path, w.Code, want, w.Body)
	}
	return w.Body.String()
}

// post sends the form of an action from the console's own page, unless change says otherwise.
func (b *browser) post(form url.Values, change func(*http.Request)) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "/ops/einmal/do/pull", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(r)
	}
	return b.do(r)
}

func (b *browser) has(page string, texts ...string) {
	b.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			b.Errorf("the page has no %q:\n%s", text, page)
		}
	}
}

func (b *browser) hasNot(page string, texts ...string) {
	b.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			b.Errorf("the page has %q:\n%s", text, page)
		}
	}
}

// told is a process that tells what is set.
type told struct {
	mu       sync.Mutex
	sections map[string]any
	err      error
	asked    int
}

func (p *told) set(name string, value any) *told {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sections == nil {
		p.sections = map[string]any{}
	}
	p.sections[name] = value
	return p
}

func (p *told) fails(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *told) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.err != nil {
		http.Error(w, p.err.Error(), http.StatusInternalServerError)
		return
	}
	sections := status.Sections{}
	for name, value := range p.sections {
		sections[name] = func(context.Context) (any, error) { return value, nil }
	}
	status.Handler(sections, nil).ServeHTTP(w, r)
}

// consumes is a consumer that is well, with partitions of the topic orders.
func consumes(partitions ...consumer.PartitionStatus) consumer.Status {
	for i := range partitions {
		p := &partitions[i]
		p.Topic, p.Oldest, p.Next = "orders", -1, -1
		if p.Failing != nil {
			p.Oldest, p.OldestSince, p.OldestAttempts = p.Failing.Offset, p.Failing.Since, p.Failing.Attempts
		}
	}
	return consumer.Status{Phase: consumer.Running, Group: "billing-service", Partitions: partitions}
}

// expire lets the sources be asked again.
func expire(c *Console) {
	for _, p := range c.processes {
		p.report.mu.Lock()
		p.report.last.At = p.report.last.At.Add(-2 * fresh)
		p.report.mu.Unlock()
	}
}

func (h hangs) ServeHTTP(http.ResponseWriter, *http.Request) { <-h.release }

// lines are those of a log, as JSON.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func (l *lines) list(t *testing.T) (list []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range strings.SplitSeq(strings.TrimSpace(l.buf.String()), "\n") {
		var line map[string]any
		if text != "" && json.Unmarshal([]byte(text), &line) != nil {
			t.Fatalf("no JSON: %s", text)
		}
		list = append(list, line)
	}
	return list
}

// hangs is a process that does not answer until it is released.
type hangs struct{ release chan struct{} }
