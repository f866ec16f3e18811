package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/schema"
	"github.com/einmal-go/einmal/status"
)

// consoleBench measures what a console costs the service in which it is, while people look at it: a consumer works off a
// backlog all the time, and the console is there in every second window of time.
func consoleBench(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("console", flag.ContinueOnError)
	var s consoleService
	fs.IntVar(&s.letters, "letters", 10_000_000, "dead letters in the table that the console shows")
	fs.StringVar(&s.in, "letters-in", "", "the `schema` of a table that is there already, instead of making one")
	fs.IntVar(&s.messages, "messages", 2_500_000, "messages of the backlog: more than are handled in all windows")
	fs.DurationVar(&s.window, "window", 5*time.Second, "how long a side is measured in a round")
	rounds := fs.Int("rounds", 15, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	b, err := openDedup(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	s.dedupBench = b
	fmt.Printf("console: Retry, Recover, Dedup on pgxstore, one insert, 16 workers by key, with a console in the process: Run, and four pages that are asked for each 5 s\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\nwindows   %v, %d dead letters\n",
		b.kafka.Origin, b.database.Origin, machine(), s.window, s.letters)
	if s.in == "" {
		dead, err := b.database.NewSchema(ctx, "bench")
		if err != nil {
			return err
		}
		defer dead.Drop(context.WithoutCancel(ctx)) //nolint:errcheck // the schema of a benchmark
		if s.in, err = s.fill(ctx, dead.URL); err != nil {
			return err
		}
	}
	results, err := s.measure(ctx, *rounds)
	if err != nil {
		return err
	}
	report(os.Stdout, "4 partitions, msg/s", results)
	fmt.Println("  to the first side of the same round:")
	for i, r := range results[1:] {
		s.compare(r.name+", msg/s", r.rates, results[0].rates)
		s.compare(r.name+", CPU time of the process for a message", s.cpu[i+1], s.cpu[0])
	}
	for _, path := range looked {
		slices.Sort(s.took[path])
		all := s.took[path]
		fmt.Printf("  page %-36q %d times, median %v, longest %v\n", path, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

// consoleService is a service with a console.
type consoleService struct {
	*dedupBench

	letters, messages int
	in                string // the schema with the dead letters
	window            time.Duration

	mu   sync.Mutex
	took map[string][]time.Duration // by page
	cpu  [4][]float64               // by side, of each window: seconds of this process for a message
}

// compare reports the ratios of what was measured in the same round.
func (s *consoleService) compare(what string, with, without []float64) {
	var ratios []float64
	for i := range with {
		ratios = append(ratios, with[i]/without[i])
	}
	slices.Sort(ratios)
	n := len(ratios)
	fmt.Printf("    %s: median %.3f, the middle half from %.3f to %.3f\n", what, ratios[n/2], ratios[n/4], ratios[n-1-n/4])
}

// looked are the pages that somebody has open.
var looked = []string{"", "partitions", "dead", "letters?table=dead+letters"}

// fill makes the table of dead letters, and returns the name of its schema.
func (s *consoleService) fill(ctx context.Context, url string) (in string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, schema.Postgres.SQL(nil, schema.DeadLetter)); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, `insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, key, value, size, kind, error_type, error, died_at)
		select 'billing/orders-' || n % 5, gen_random_uuid()::text, 'orders-' || n % 5, n % 12, n, convert_to('customer-' || n * 7919 % 500000, 'UTF8'), convert_to(repeat('v', 200), 'UTF8'), 200,
			case when n % 10 < 7 then 'gave_up' else 'permanent' end, case n % 3 when 0 then 'timeout' else '*errors.errorString' end,
			'the provider of payments did not answer within 5 s, request ' || n, now() - interval '30 days' + n * interval '259 milliseconds' from generate_series(1, $1::bigint) n`, s.letters)
	if err == nil {
		_, err = conn.Exec(ctx, "vacuum analyze dead_message")
	}
	if err != nil {
		return "", err
	}
	return in, conn.QueryRow(ctx, "select current_schema()").Scan(&in)
}

// measure has a consumer work off a backlog, and counts what it handles in each window.
func (s *consoleService) measure(ctx context.Context, rounds int) (results []result, err error) {
	s.took = map[string][]time.Duration{} // of the first window
	own, err := s.database.NewSchema(ctx, "bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.Drop(context.WithoutCancel(ctx))) }()
	pool, err := openPool(ctx, own.URL, nil)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := makeTables(ctx, pool); err != nil {
		return nil, err
	}
	err = withTopic(s.kafka.Addrs, 4, s.messages, orderValue, func(topic string) error {
		m := newMeter(s.messages)
		cfg := s.config(topic, pool, m, consumer.KeyOrder, 16)
		c, err := consumer.New(cfg)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for m.ended.Load() < int64(s.messages/100) && ctx.Err() == nil { // it has begun
			time.Sleep(10 * time.Millisecond)
		}
		page, end, err := s.page(c, cfg.Group, pool)
		if err != nil {
			return err
		}
		defer end()
		without := func(side int) func(ctx context.Context) (float64, error) {
			return func(ctx context.Context) (float64, error) { return s.count(ctx, m, side) }
		}
		with := func(side int, looked []string) func(ctx context.Context) (float64, error) {
			return func(ctx context.Context) (rate float64, err error) {
				err = s.shown(ctx, page, looked, func() error {
					rate, err = s.count(ctx, m, side)
					return err
				})
				return rate, err
			}
		}
		if _, err := with(0, looked)(ctx); err != nil { // connections and statements
			return err
		}
		s.cpu, s.took = [4][]float64{}, map[string][]time.Duration{}
		results, err = interleave(ctx, rounds, []side{{"without a console", without(0)}, {"without, again", without(1)},
			{"one that runs", with(2, nil)}, {"one looked at", with(3, looked)}})
		stop()
		return errors.Join(err, <-ended)
	})
	return results, err
}

// count counts for the length of a window of a side.
func (s *consoleService) count(ctx context.Context, m *meter, side int) (float64, error) {
	before, begun, used := m.ended.Load(), time.Now(), cpuTime()
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-m.done:
		return 0, errors.New("the backlog has ended: raise -messages")
	case <-time.After(s.window):
		n := float64(m.ended.Load() - before)
		s.cpu[side] = append(s.cpu[side], (cpuTime()-used).Seconds()/n)
		return n / time.Since(begun).Seconds(), nil
	}
}

// page is the console of the service.
func (s *consoleService) page(c *consumer.Consumer, group string, pool *pgxpool.Pool) (page *console.Console, end func(), err error) {
	kafka, err := consumer.NewCluster(s.kafka.Addrs, nil)
	if err != nil {
		return nil, nil, err
	}
	page, err = console.New(console.Config{
		Kafka: kafka, Groups: []string{group}, Logger: quiet,
		Processes: []console.Process{{Name: "this process", Status: status.Handler(status.Sections{
			"consumer": func(context.Context) (any, error) { return c.Status(), nil },
		}, nil)}},
		DeadLetters: []console.DeadLetters{{Name: "dead letters", Table: pgxdeadletter.New(pool, &pgxdeadletter.Config{Schema: s.in})}},
		Consumers:   []console.Consumer{{Name: group, Levers: c}},
	})
	return page, func() { _ = kafka.Close() }, err
}

// shown has the console look and be looked at while f runs.
func (s *consoleService) shown(ctx context.Context, page *console.Console, looked []string, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { _ = page.Run(ctx) })
	server := httptest.NewServer(page)
	defer server.Close()
	failed := make(chan error, len(looked))
	for _, path := range looked {
		all.Go(func() { failed <- s.look(ctx, server.URL+"/"+path, path) })
	}
	err := f()
	stop()
	for range looked {
		err = errors.Join(err, <-failed)
	}
	return err
}

// look asks for a page each 5 s, as the page's own script does.
func (s *consoleService) look(ctx context.Context, url, path string) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		begun := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			err = errors.Join(err, res.Body.Close())
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the window has ended
		case err != nil:
			return err
		case res.StatusCode != http.StatusOK:
			return fmt.Errorf("page %q: %s", path, res.Status)
		}
		s.mu.Lock()
		s.took[path] = append(s.took[path], time.Since(begun))
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
