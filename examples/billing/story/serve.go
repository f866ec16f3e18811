package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/status"
)

// answerTimeout is how long a process may take to say how it is: one that is being replaced says nothing.
const answerTimeout = time.Second

// serve shows the story at Options.Serve while it goes on: the console of all processes, /metrics, /readyz, /livez.
func (s *Story) serve(ctx context.Context) (stop func(), err error) {
	if s.Serve == "" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Serve)
	if err != nil {
		return nil, fmt.Errorf("serve at %s: %w: give another address by -listen", s.Serve, err)
	}
	kafka, err := consumer.NewCluster(strings.Split(s.Brokers, ","), nil)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	page, err := console.New(console.Config{Title: "examples/billing", Processes: s.told(), Kafka: kafka,
		ShowValues: func(*http.Request) bool { return true }})
	if err != nil {
		return nil, errors.Join(err, l.Close(), kafka.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if not := s.notReady(r.Context()); len(not) > 0 {
			http.Error(w, strings.Join(not, "\n"), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.gatherers(),
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: answerTimeout}
	go func() { _ = server.Serve(l) }()
	watching, end := context.WithCancel(ctx)
	go func() { _ = page.Run(watching) }()
	fmt.Fprintf(s.Out, "the story goes on until Ctrl-C; look at http://%s\n", l.Addr())
	return func() {
		end()
		_ = errors.Join(server.Close(), kafka.Close())
	}, nil
}

// told are the processes of the story, and the story itself.
func (s *Story) told() []console.Process {
	list := []console.Process{{Name: "the story", Status: status.Handler(status.Sections{"ledgers": s.ledgers}, nil)}}
	for _, r := range s.cast {
		at := "http://" + s.ops[r.name].addr
		list = append(list, console.Process{Name: r.name, URL: at + "/status", Console: at + "/"})
	}
	return list
}

// ledgersStatus is what the ledgers held at one moment.
type ledgersStatus struct {
	Made    int64          `json:"requests_made"`
	Killed  int64          `json:"processes_killed"`
	Ledgers []ledgerStatus `json:"ledgers"`
}

type ledgerStatus struct {
	Name     string `json:"name"`
	Rows     int    `json:"rows"`
	Requests int    `json:"requests"`
	Doubled  int    `json:"doubled"`
}

// Problem says which ledger has something twice.
func (l ledgersStatus) Problem() string {
	for _, one := range l.Ledgers {
		if one.Doubled != 0 {
			return fmt.Sprintf("%s: %d are doubled", one.Name, one.Doubled)
		}
	}
	return ""
}

// ledgers is the story's own status. The requests are counted after the ledgers, so that none can be ahead of them.
func (s *Story) ledgers(ctx context.Context) (any, error) {
	looks, err := s.lookAtLedgers(ctx)
	if err != nil {
		return nil, errors.New("the ledgers are not there now")
	}
	list := ledgersStatus{Made: s.customers.made.Load(), Killed: s.dead.Load()}
	for i, look := range looks {
		list.Ledgers = append(list.Ledgers, ledgerStatus{ledgers[i].title, look.rows, look.requests,
			look.rows - look.requests})
	}
	return list, nil
}

// look is what a ledger held.
type look struct{ rows, requests int }

// lookAtLedgers reads all ledgers by one statement, and so in one snapshot: the services' databases are schemas of one.
// Read one after the other, a later ledger would be ahead of an earlier one.
func (s *Story) lookAtLedgers(ctx context.Context) ([]look, error) {
	looks := make([]look, len(ledgers))
	var columns []string
	var into []any
	for i, l := range ledgers {
		var schema string
		err := with(ctx, s.Databases.of(l.service),
			func(pool *pgxpool.Pool) error { return pool.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema) })
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

// notReady asks each process, and says which are not ready.
func (s *Story) notReady(ctx context.Context) (not []string) {
	answers := make([]string, len(s.cast))
	var all sync.WaitGroup
	for i, r := range s.cast {
		all.Go(func() {
			err := get(ctx, s.ops[r.name].addr, "/readyz", func(answer *http.Response) error {
				why, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
				if answer.StatusCode != http.StatusOK {
					answers[i] = r.name + ": " + strings.TrimSpace(string(why))
				}
				return err
			})
			if err != nil {
				answers[i] = r.name + ": no answer: it is being replaced"
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(answers, func(why string) bool { return why == "" })
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
		list = append(list, prometheus.GathererFunc(func() ([]*dto.MetricFamily,
			error) {
			return gather(r.name, s.ops[r.name].addr)
		}))
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
