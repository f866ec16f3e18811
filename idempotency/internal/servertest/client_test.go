package servertest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// lossy cuts the connection before each third request reaches its handler, and before each third answer reaches the
// client.
func lossy(next http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := n.Add(1) % 3
		if turn == 0 {
			panic(http.ErrAbortHandler)
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		if turn == 1 {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}

// The two ends of a call: a Transport that repeats it and a Handler that knows it, over a network that loses requests
// and answers. Each call takes effect once and gets the answer of its effect, though each is made by two clients at
// once.
func TestTransportAndHandler(t *testing.T) {
	t.Parallel()
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil),
		func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
			name, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			var xid string
			if err := tx.QueryRow(ctx, "insert into effect values ($1) returning xmin::text",
				string(name)).Scan(&xid); err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			_, err = io.WriteString(w, xid)
			return err
		}, idempotency.HandlerConfig{SingleTenant: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	url := listen(t, lossy(handler))
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: idempotency.NewTransport(base, &idempotency.TransportConfig{
		Attempts: 1000, Budget: 2 * time.Minute, AttemptTimeout: time.Minute, MinBackoff: time.Millisecond,
		MaxBackoff: 10 * time.Millisecond,
	})}
	call := func(name string) (string, error) {
		ctx := idempotency.WithKey(t.Context(), idempotency.Key("effect", name))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(name))
		if err != nil {
			return "", err
		}
		res, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusCreated {
			return "", fmt.Errorf("%s: answer %s", name, res.Status)
		}
		return string(answer), err
	}
	type result struct {
		name, answer string
		err          error
	}
	const calls = 20
	results := make(chan result)
	for i := range 2 * calls {
		go func() {
			name := fmt.Sprint("call-", i/2)
			answer, err := call(name)
			results <- result{name, answer, err}
		}()
	}
	answers := map[string]string{}
	for range 2 * calls {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		if first, ok := answers[r.name]; ok && first != r.answer {
			t.Errorf("%s has two answers, %s and %s", r.name, first, r.answer)
		}
		answers[r.name] = r.answer
	}
	for name, xid := range answers {
		var n int
		if err := pool.QueryRow(t.Context(),
			"select count(*) filter (where xmin::text = $2) from effect where name = $1 having count(*) = 1", name,
			xid).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s: its one effect is not the one of its answer: %d, %v", name, n, err)
		}
	}
	if len(answers) != calls {
		t.Errorf("%d calls were answered, want %d", len(answers), calls)
	}
}
