package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/schema"
)

// stores measures the stores alone, without Kafka: record and one insert, beside pgbench with the same statements and
// clients.
func stores(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("stores", flag.ContinueOnError)
	seconds := fs.Int("seconds", 3, "of a side in a round")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	if err := fs.Parse(args); err != nil {
		return err
	}
	database, err := servers.Postgres(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	s, err := database.NewSchema(ctx, "bench")
	if err != nil {
		return err
	}
	defer s.Drop(context.WithoutCancel(ctx)) //nolint:errcheck // the schema of a benchmark
	b := &storeBench{url: s.URL, length: time.Duration(*seconds) * time.Second}
	fmt.Printf("stores: the record and one insert, without Kafka; beside pgbench with the same statements\ndatabase  %s\nmachine   %s\n", database.Origin, machine())
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for _, workers := range []int{1, 16} {
		if err := b.compare(ctx, workers, *rounds); err != nil {
			return err
		}
	}
	if err := b.wal(ctx); err != nil {
		return err
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

type storeBench struct {
	url    string
	length time.Duration
	pool   *pgxpool.Pool
	events atomic.Int64
}

func (b *storeBench) prepare(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return makeTables(ctx, pool)
}

// once is a call of a store for one event, with one insert.
type once func(ctx context.Context, event string) error

// compare lets all sides take turns with so many workers.
func (b *storeBench) compare(ctx context.Context, workers, rounds int) error {
	cfg, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(workers) + 1 //nolint:gosec // a small number
	if b.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	defer b.pool.Close()
	stdDB := stdlib.OpenDB(*cfg.ConnConfig)
	defer stdDB.Close()
	bunDB := bun.NewDB(sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(b.url))), pgdialect.New())
	defer bunDB.Close()
	for _, db := range []*sql.DB{stdDB, bunDB.DB} {
		db.SetMaxOpenConns(workers + 1)
		db.SetMaxIdleConns(workers + 1)
	}
	first := func(o once) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.drive(ctx, workers, o, b.fresh) }
	}
	again := func(o once) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.drive(ctx, workers, o, b.repeated) }
	}
	sides := []side{
		{"pgxstore", first(pgxOnce(b.pool, nil))},
		{"sqlstore, pgx", first(sqlOnce(stdDB))},
		{"bunstore, pgdriver", first(bunOnce(bunDB))},
		{"pgxstore, duplicates", again(pgxOnce(b.pool, nil))},
		{"DoNothing, duplicates", again(pgxOnce(b.pool, &pgxstore.Config{DoNothing: true}))},
	}
	if program := pgbench(); program != "" {
		sides = append(sides, side{"pgbench", func(ctx context.Context) (float64, error) {
			return runPgbench(ctx, program, b.url, script, workers, b.length)
		}})
	} else {
		fmt.Println("pgbench was not found: it is not compared with")
	}
	results, err := interleave(ctx, rounds, sides)
	if err != nil {
		return err
	}
	report(os.Stdout, fmt.Sprintf("%d worker(s), events/s", workers), results)
	return nil
}

func (b *storeBench) fresh() string { return fmt.Sprint("event-", b.events.Add(1)) }

// repeated are 1,000 events: all but the first of each are duplicates.
func (b *storeBench) repeated() string { return fmt.Sprint("again-", b.events.Add(1)%1000) }

// drive calls o from so many workers for the length of a side.
func (b *storeBench) drive(ctx context.Context, workers int, o once, event func() string) (float64, error) {
	for range 2 * workers { // connections and statements
		if err := o(ctx, event()); err != nil {
			return 0, err
		}
	}
	var calls atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, workers)
	began := time.Now()
	for i := range workers {
		all.Go(func() {
			for time.Since(began) < b.length && errs[i] == nil {
				errs[i] = o(ctx, event())
				calls.Add(1)
			}
		})
	}
	all.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

func storeKey(event string) dedupstore.Key { return dedupstore.Key{Consumer: "bench", Event: event} }

func pgxOnce(pool *pgxpool.Pool, cfg *pgxstore.Config) once {
	store := pgxstore.New(pool, cfg)
	return func(ctx context.Context, event string) error {
		_, err := store.Once(ctx, storeKey(event), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, effect, 1, 2)
			return err
		})
		return err
	}
}

func sqlOnce(db *sql.DB) once {
	store := sqlstore.New(db, schema.Postgres, nil)
	return func(ctx context.Context, event string) error {
		_, err := store.Once(ctx, storeKey(event), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, effect, 1, 2)
			return err
		})
		return err
	}
}

func bunOnce(db *bun.DB) once {
	store := bunstore.New(db, nil)
	return func(ctx context.Context, event string) error {
		_, err := store.Once(ctx, storeKey(event), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, strings.NewReplacer("$1", "?", "$2", "?").Replace(effect), 1, 2)
			return err
		})
		return err
	}
}

// script is the transaction of pgxstore, in pgbench's language.
const script = `\set n random(1, 9223372036854775806)
BEGIN ISOLATION LEVEL READ COMMITTED;
INSERT INTO processed_event AS p (event_id, consumer_id) VALUES ('event-' || :n, case when set_config('einmal.lock_timeout', current_setting('lock_timeout'), true) is null then null
when set_config('lock_timeout', '5000', true) is null then null when set_config('idle_in_transaction_session_timeout', '60000', true) is null then null else 'pgbench' end)
ON CONFLICT (event_id, consumer_id) DO UPDATE SET duplicates = p.duplicates + 1 RETURNING (xmax = 0), set_config('lock_timeout', current_setting('einmal.lock_timeout'), true);
INSERT INTO charge (order_id, cents) VALUES (1, 2);
COMMIT;
`

// pgbench finds the program, of the newest version.
func pgbench() string {
	if program, err := exec.LookPath("pgbench"); err == nil {
		return program
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// runPgbench returns the transactions of a script a second.
func runPgbench(ctx context.Context, program, dsn, script string, clients int, length time.Duration) (float64, error) {
	file, err := os.CreateTemp("", "pgbench")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(script); err != nil {
		return 0, err
	}
	if err := file.Close(); err != nil {
		return 0, err
	}
	target, path, err := withoutSearchPath(dsn)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)), //nolint:gosec // the user's own program
		"-T", strconv.Itoa(int(length.Seconds())), "-f", file.Name(), target)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c search_path="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	_, after, ok := strings.Cut(string(out), "tps = ")
	if !ok {
		return 0, fmt.Errorf("pgbench did not tell its rate: %s", out)
	}
	return strconv.ParseFloat(strings.Fields(after)[0], 64)
}

// withoutSearchPath takes the search_path out of the URL: libpq knows no such parameter.
func withoutSearchPath(dsn string) (rest, path string, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", "", err
	}
	q := u.Query()
	path = q.Get("search_path")
	q.Del("search_path")
	u.RawQuery = q.Encode()
	return u.String(), path, nil
}

// wal reports how much of the write-ahead log an event and a duplicate take, with their share of full pages: the mean
// of 5,000.
func (b *storeBench) wal(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, b.url)
	if err != nil {
		return err
	}
	defer pool.Close()
	plain, nothing := pgxOnce(pool, nil), pgxOnce(pool, &pgxstore.Config{DoNothing: true})
	fmt.Println("\nWAL, bytes each")
	for _, c := range []struct {
		name  string
		once  once
		event func() string
	}{{"event and insert", plain, b.fresh}, {"duplicate", plain, b.repeated},
		{"duplicate, DoNothing", nothing, b.repeated}} {
		const calls = 5000
		var before, after int64
		const position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
		if err := pool.QueryRow(ctx, position).Scan(&before); err != nil {
			return err
		}
		for range calls {
			if err := c.once(ctx, c.event()); err != nil {
				return err
			}
		}
		if err := pool.QueryRow(ctx, position).Scan(&after); err != nil {
			return err
		}
		fmt.Printf("  %-20s%11d\n", c.name, (after-before)/calls)
	}
	return nil
}
