package servertest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// outcomes are those that a Handler has told.
type outcomes struct {
	mu  sync.Mutex
	all []idempotency.Outcome
}

func (o *outcomes) add(_ *http.Request, outcome idempotency.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, outcome)
}

func (o *outcomes) take() []idempotency.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.all = nil }()
	return o.all
}

// direct answers on the caller's goroutine, so that an outcome has been told when a request is answered.
type direct struct {
	t       *testing.T
	handler http.Handler
	seen    *outcomes
}

func (d *direct) send(ctx context.Context, method, key, body string) {
	d.t.Helper()
	defer func() { _ = recover() }() // as a server does
	r, err := http.NewRequestWithContext(ctx, method, "/", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	d.handler.ServeHTTP(discard{}, r)
}

// post sends a request, and compares what became of it.
func (d *direct) post(key, body string, want idempotency.Outcome) {
	d.t.Helper()
	d.send(context.Background(), http.MethodPost, key, body)
	if got := d.seen.take(); !slices.Equal(got, []idempotency.Outcome{want}) {
		d.t.Errorf("%q %q: %q, want %q", key, body, got, want)
	}
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// Each request has one outcome, and each outcome is told.
func TestOnAnswer(t *testing.T) {
	t.Parallel()
	pool, network, seen := database(t), &cutter{}, &outcomes{}
	d := &direct{t: t, seen: seen}
	fn := func(ctx context.Context, _ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		switch string(body) {
		case "panic":
			panic("planted")
		case "fail":
			return errors.New("planted")
		case "not stored":
			return idempotency.ErrNotStored
		case "429":
			w.WriteHeader(http.StatusTooManyRequests)
		case "502":
			w.WriteHeader(http.StatusBadGateway)
		case "404":
			w.WriteHeader(http.StatusNotFound)
		case "again":
			d.send(ctx, http.MethodPost, "again", "again") // while this one is in progress
		}
		return nil
	}
	cfg := idempotency.HandlerConfig{
		Principal: func(r *http.Request) (string, error) { return strings.TrimPrefix(r.Method, http.MethodPatch), nil },
		OnAnswer:  seen.add, MaxBody: 20, Logger: slog.New(slog.DiscardHandler),
	}
	handler, err := idempotency.NewHandler(pgxidempotency.New(behind(t, pool, network.dial), nil), fn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.handler = handler

	d.post("1", "work", idempotency.OutcomeFirst)
	d.post("1", "work", idempotency.OutcomeReplayed)
	d.post("1", "work", idempotency.OutcomeReplayed)
	d.post("1", "other", idempotency.OutcomeOtherRequest)
	d.post("2", "404", idempotency.OutcomeFirst)
	d.post("2", "404", idempotency.OutcomeReplayed)
	d.post("3", "429", idempotency.OutcomeNotStored)
	d.post("3", "429", idempotency.OutcomeNotStored)
	d.post("4", "not stored", idempotency.OutcomeNotStored)
	d.post("5", "fail", idempotency.OutcomeFailed)
	d.post("5", "502", idempotency.OutcomeFailed)
	d.post("5", "panic", idempotency.OutcomeFailed)
	d.post("", "work", idempotency.OutcomeRefused)
	d.post("6", strings.Repeat("x", 21), idempotency.OutcomeRefused)
	network.armed.Store(true)
	d.post("7", "work", idempotency.OutcomeUnavailable)
	network.armed.Store(false)
	d.post("7", "work", idempotency.OutcomeReplayed)

	for _, tc := range []struct {
		what, method, body string
		key                string
		gone               bool
		want               []idempotency.Outcome
	}{
		{"a safe method", http.MethodGet, "work", "", false, []idempotency.Outcome{idempotency.OutcomeWithoutKey}},
		{"a safe method's refusal", http.MethodGet, "404", "", false, []idempotency.Outcome{idempotency.OutcomeWithoutKey}},
		{"a safe method's refusal for now", http.MethodGet, "429", "", false,
			[]idempotency.Outcome{idempotency.OutcomeWithoutKey}},
		{"a safe method that fails", http.MethodGet, "fail", "", false, []idempotency.Outcome{idempotency.OutcomeFailed}},
		{"nobody's request", http.MethodPatch, "work", "8", false, []idempotency.Outcome{idempotency.OutcomeRefused}},
		{"a client that is gone", http.MethodPost, "work", "9", true, []idempotency.Outcome{idempotency.OutcomeInterrupted}},
		{"two at once", http.MethodPost, "again", "again", false, []idempotency.Outcome{idempotency.OutcomeInProgress,
			idempotency.OutcomeFirst}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if tc.gone {
			cancel()
		}
		d.send(ctx, tc.method, tc.key, tc.body)
		cancel()
		if got := seen.take(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
