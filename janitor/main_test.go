package janitor_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// database is a schema of one test's own.
type database struct {
	*pgxpool.Pool
	t   testing.TB
	url string
}

// openEmpty has no tables.
func openEmpty(t testing.TB) *database {
	t.Helper()
	at := serverstest.DatabaseURL(t)
	pool, err := pgxpool.New(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &database{pool, t, at}
}

// open has the store's table.
func open(t testing.TB) *database {
	t.Helper()
	db := openEmpty(t)
	db.run(schema.Postgres.SQL(nil))
	return db
}

func (db *database) run(sql string, args ...any) {
	db.t.Helper()
	if _, err := db.Exec(db.t.Context(), sql, args...); err != nil {
		db.t.Fatalf("%.80s: %v", sql, err)
	}
}

// value returns the only value that a query selects.
func value[T any](db *database, sql string, args ...any) T {
	db.t.Helper()
	rows, _ := db.Query(db.t.Context(), sql, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		db.t.Fatalf("%.80s: %v", sql, err)
	}
	return v
}

// fill records n events of a consumer, of that age.
func (db *database) fill(consumer string, n int, age time.Duration) {
	db.t.Helper()
	db.run(`insert into processed_event (event_id, consumer_id, processed_at)
		select gen_random_uuid()::text, $1, clock_timestamp() - $2::bigint * interval '1 microsecond' - g * interval '1 microsecond'
		from generate_series(1, $3::int) g`, consumer, age.Microseconds(), n)
}

func (db *database) rows(consumer string) int {
	db.t.Helper()
	return value[int](db, "select count(*) from processed_event where consumer_id = $1", consumer)
}

// behind returns the URL of the database behind the pooler. Statements must name the schema.
func (db *database) behind(pooler string) string {
	db.t.Helper()
	direct, err := url.Parse(db.url)
	if err != nil {
		db.t.Fatal(err)
	}
	u, err := url.Parse(pooler)
	if err != nil {
		db.t.Fatal(err)
	}
	u.Path = direct.Path
	return u.String()
}

// driver opens a database for janitors.
type driver struct {
	name string
	open func(t testing.TB, url string) *sql.DB
}

func viaPgx(mode pgx.QueryExecMode) driver {
	return driver{"pgx, " + mode.String(), func(t testing.TB, url string) *sql.DB {
		t.Helper()
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = mode
		return stdlib.OpenDB(*cfg)
	}}
}

var (
	viaPgdriver = driver{"pgdriver", func(_ testing.TB, url string) *sql.DB {
		return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url)))
	}}
	cached  = viaPgx(pgx.QueryExecModeCacheStatement)
	drivers = []driver{
		cached, viaPgx(pgx.QueryExecModeCacheDescribe), viaPgx(pgx.QueryExecModeDescribeExec), viaPgx(pgx.QueryExecModeExec),
		viaPgx(pgx.QueryExecModeSimpleProtocol), viaPgdriver,
	}
)

// via opens a pool of a driver, closed when the test ends.
func (db *database) via(d driver) *sql.DB {
	db.t.Helper()
	pool := d.open(db.t, db.url)
	db.t.Cleanup(func() { _ = pool.Close() })
	return pool
}

const day = 24 * time.Hour

// processed is the store's table, kept for a day.
var processed = janitor.Table{Name: "processed_event", Column: "processed_at", Keep: day}

// newJanitor has one on the store's table, with short pauses.
func (db *database) newJanitor(change func(*janitor.Config)) *janitor.Janitor {
	db.t.Helper()
	return newJanitor(db.t, db.via(cached), schema.Postgres, change)
}

func newJanitor(t testing.TB, db *sql.DB, d schema.Dialect, change func(*janitor.Config)) *janitor.Janitor {
	t.Helper()
	cfg := janitor.Config{Tables: []janitor.Table{processed}, Pause: time.Millisecond, Interval: 10 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	j, err := janitor.New(db, d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// sweep sweeps one table, and fails the test if that fails.
func sweep(t testing.TB, j *janitor.Janitor) janitor.Report {
	t.Helper()
	reports, err := j.Sweep(t.Context())
	if err != nil || len(reports) != 1 {
		t.Fatalf("Sweep: %+v, %v", reports, err)
	}
	return reports[0]
}

// start runs f until the test ends it, or ends.
func start(t testing.TB, f func(ctx context.Context) error) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = f(ctx)
	}()
	end = func() error {
		cancel()
		select {
		case <-done:
			return err
		case <-time.After(time.Minute):
			return errors.New("it did not end within a minute")
		}
	}
	t.Cleanup(func() { _ = end() })
	return end
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
