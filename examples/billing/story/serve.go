package story

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/einmal-go/einmal/examples/billing/board"
)

// answerTimeout is how long a process may take to say how it is: one that is being replaced says nothing.
const answerTimeout = time.Second

// serve shows the story at Options.Serve while it goes on: a page of all processes, /metrics, /readyz, /livez.
func (s *Story) serve(ctx context.Context) (stop func(), err error) {
	if s.Serve == "" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Serve)
	if err != nil {
		return nil, fmt.Errorf("serve at %s: %w: give another address by -listen", s.Serve, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		_ = board.Page{Title: "examples/billing", Now: time.Now(), Boards: append([]board.Board{s.board(r.Context())}, s.boards(r.Context())...)}.Write(w)
	})
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		var not []string
		for _, b := range s.boards(r.Context()) {
			if b.NotReady != "" {
				not = append(not, b.Process+": "+b.NotReady)
			}
		}
		if not != nil {
			http.Error(w, strings.Join(not, "\n"), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.gatherers(), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: answerTimeout}
	go func() { _ = server.Serve(l) }()
	fmt.Fprintf(s.Out, "the story goes on until Ctrl-C; look at http://%s\n", l.Addr())
	return func() { _ = server.Close() }, nil
}

// board is the story's own: what the ledgers held at one moment. The requests are counted after that, so that no ledger can be ahead of them.
func (s *Story) board(ctx context.Context) board.Board {
	t := board.Table{Head: []string{"ledger", "rows", "requests", "doubled"}}
	looks, err := s.lookAtLedgers(ctx)
	t.Title = fmt.Sprintf("%d requests made, %d processes killed; the ledgers of one moment before", s.customers.made.Load(), s.dead.Load())
	if err != nil {
		t.Title += ": not there now"
	}
	for i, look := range looks {
		t.Rows = append(t.Rows, []string{ledgers[i].title, strconv.Itoa(look.rows), strconv.Itoa(look.requests), strconv.Itoa(look.rows - look.requests)})
	}
	return board.Board{Process: "the story", Tables: []board.Table{t}}
}

// look is what a ledger held.
type look struct{ rows, requests int }

// lookAtLedgers reads all ledgers by one statement, and so in one snapshot: the services' databases are schemas of one. Read one after the
// other, a later ledger would be ahead of an earlier one.
func (s *Story) lookAtLedgers(ctx context.Context) ([]look, error) {
	looks := make([]look, len(ledgers))
	var columns []string
	var into []any
	for i, l := range ledgers {
		var schema string
		err := with(ctx, s.Databases.of(l.service), func(pool *pgxpool.Pool) error { return pool.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema) })
		if err != nil {
			return nil, err
		}
		table := pgx.Identifier{schema, l.table}.Sanitize()
		columns = append(columns, `(SELECT count(*) FROM `+table+`)`, `(SELECT count(DISTINCT reference) FROM `+table+`)`)
		into = append(into, &looks[i].rows, &looks[i].requests)
	}
	if err := s.pool.QueryRow(ctx, `SELECT `+strings.Join(columns, ", ")).Scan(into...); err != nil {
		return nil, err
	}
	return looks, nil
}

// boards asks each process how it is.
func (s *Story) boards(ctx context.Context) []board.Board {
	list := make([]board.Board, len(s.cast))
	done := make(chan struct{})
	for i, r := range s.cast {
		go func() {
			defer func() { done <- struct{}{} }()
			var err error
			if list[i], err = ask(ctx, s.ops[r.name].addr); err != nil {
				list[i].NotReady = "no answer: it is being replaced"
			}
			list[i].Process, list[i].Link = r.name, "http://"+s.ops[r.name].addr
		}()
	}
	for range s.cast {
		<-done
	}
	return list
}

func ask(ctx context.Context, addr string) (b board.Board, err error) {
	err = get(ctx, addr, "/board", func(answer *http.Response) error { return json.NewDecoder(answer.Body).Decode(&b) })
	return b, err
}

func get(ctx context.Context, addr, path string, f func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return f(answer)
}

// gatherers collect the metrics of all processes. Prometheus would ask each of them.
func (s *Story) gatherers() prometheus.Gatherers {
	var list prometheus.Gatherers
	for _, r := range s.cast {
		list = append(list, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return gather(r.name, s.ops[r.name].addr) }))
	}
	return list
}

// gather returns what a process measures, with its name as a label.
func gather(process, addr string) (list []*dto.MetricFamily, err error) {
	err = get(context.Background(), addr, "/metrics", func(answer *http.Response) error {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(answer.Body)
		label, name := "process", process
		for _, f := range families {
			for _, m := range f.GetMetric() {
				m.Label = append(m.Label, &dto.LabelPair{Name: &label, Value: &name})
			}
			list = append(list, f)
		}
		return err
	})
	if err != nil {
		return nil, nil //nolint:nilerr // it is being replaced; the others' are shown
	}
	return list, nil
}
