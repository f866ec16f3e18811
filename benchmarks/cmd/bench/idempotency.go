package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/schema"
)

// httpBench is requests with a key by HTTP on the loopback device.
type httpBench struct {
	url     string // of the database
	clients int
	length  time.Duration
	pool    *pgxpool.Pool
	keys    atomic.Int64
}

// idempotencyBench measures requests that are handled once, and their repetitions, beside the same handler in a plain
// transaction, and pgbench with the same statements.
func idempotencyBench(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("idempotency", flag.ContinueOnError)
	seconds := fs.Int("seconds", 3, "of a side in a round")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	clients := fs.Int("clients", 16, "requests at once")
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
	b := &httpBench{url: s.URL, clients: *clients, length: time.Duration(*seconds) * time.Second}
	fmt.Printf("idempotency: a request of 50 bytes, one insert, an answer of 60 bytes; %d clients\ndatabase  %s\nmachine   %s\n", *clients, database.Origin, machine())
	if err := b.open(ctx); err != nil {
		return err
	}
	defer b.pool.Close()
	if err := b.compare(ctx, *rounds); err != nil {
		return err
	}
	if err := b.bytes(ctx); err != nil {
		return err
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

func (b *httpBench) open(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(b.clients) + 1 //nolint:gosec // a small number
	if b.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	for _, text := range []string{schema.Postgres.SQL(nil, schema.Idempotency), effectTable} {
		if _, err := b.pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// place is the handler.
func place(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	if _, err := io.ReadAll(r.Body); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, effect, 1, 2); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/12345678")
	w.WriteHeader(http.StatusCreated)
	_, err := io.WriteString(w, `{"id":12345678,"status":"placed","cents":4999,"items":[1,2]}`)
	return err
}

// plain is the same handler in a transaction, and no more.
func (b *httpBench) plain() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer bytes.Buffer
		err := pgx.BeginFunc(r.Context(), b.pool, func(tx pgx.Tx) error {
			return place(r.Context(), tx, &buffered{w, &answer}, r)
		})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer.Bytes())
	})
}

// buffered keeps the answer until COMMIT.
type buffered struct {
	http.ResponseWriter
	body *bytes.Buffer
}

func (w *buffered) WriteHeader(int)             {}
func (w *buffered) Write(b []byte) (int, error) { return w.body.Write(b) }

func (b *httpBench) compare(ctx context.Context, rounds int) error {
	handler, err := idempotency.NewHandler(pgxidempotency.New(b.pool, nil), place,
		idempotency.HandlerConfig{SingleTenant: true, Logger: quiet})
	if err != nil {
		return err
	}
	served := func(h http.Handler, key func() string) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.served(ctx, h, key) }
	}
	sides := []side{
		{"without", served(b.plain(), b.fresh)},
		{"first", served(handler, b.fresh)},
		{"replay", served(handler, b.repeated)},
		{"first, no network", func(ctx context.Context) (float64, error) { return b.drive(ctx, direct(handler, b.fresh)) }},
	}
	if program := pgbench(); program != "" {
		sides = append(sides, side{"pgbench", func(ctx context.Context) (float64, error) {
			return runPgbench(ctx, program, b.url, keyScript, b.clients, b.length)
		}})
	} else {
		fmt.Println("pgbench was not found: it is not compared with")
	}
	results, err := interleave(ctx, rounds, sides)
	if err != nil {
		return err
	}
	report(os.Stdout, "requests/s", results)
	return nil
}

func (b *httpBench) fresh() string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", b.keys.Add(1))
}

// repeated are 1,000 keys: all but the first of each are replays.
func (b *httpBench) repeated() string {
	return fmt.Sprintf("11111111-0000-4000-8000-%012d", b.keys.Add(1)%1000)
}

func request(ctx context.Context, url, key string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader(`{"customer":4711,"items":[{"sku":"a-1","count":2}]}`))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	return r, nil
}

// served drives the handler behind a server on the loopback device.
func (b *httpBench) served(ctx context.Context, h http.Handler, key func() string) (float64, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	transport := &http.Transport{MaxIdleConnsPerHost: b.clients}
	defer transport.CloseIdleConnections()
	return b.drive(ctx, func(ctx context.Context) error {
		r, err := request(ctx, "http://"+listener.Addr().String()+"/orders", key())
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		return created(resp.StatusCode)
	})
}

func created(status int) error {
	if status != http.StatusCreated && status != http.StatusConflict { // two that draw the same key at once
		return fmt.Errorf("answered %d", status)
	}
	return nil
}

// direct calls the handler without a network.
func direct(h http.Handler, key func() string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := request(ctx, "/orders", key())
		if err != nil {
			return err
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return created(w.Code)
	}
}

// drive calls one from all clients for the length of a side.
func (b *httpBench) drive(ctx context.Context, one func(context.Context) error) (float64, error) {
	for range 2 * b.clients { // connections and statements
		if err := one(ctx); err != nil {
			return 0, err
		}
	}
	var calls atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, b.clients)
	began := time.Now()
	for i := range b.clients {
		all.Go(func() {
			for time.Since(began) < b.length && errs[i] == nil {
				errs[i] = one(ctx)
				calls.Add(1)
			}
		})
	}
	all.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

// keyScript is the transaction of pgxidempotency, in pgbench's language.
const keyScript = `\set n random(1, 9223372036854775806)
BEGIN ISOLATION LEVEL READ COMMITTED;
select set_config('einmal.lock_timeout', current_setting('lock_timeout'), true), set_config('idle_in_transaction_session_timeout', '60000', true);
select case when exists (select from idempotency_key where scope = '' and key = :n::text and expires_at > clock_timestamp()) then null
else pg_try_advisory_xact_lock(:n # ('idempotency_key'::regclass::oid::bigint << 32)) end;
select fingerprint, status_code, response_headers, response_body,
(select count(*) from (select 1 from idempotency_key where scope = '' and key = :n::text and current_setting('synchronous_standby_names') <> '' for key share) as durable)
from idempotency_key where scope = '' and key = :n::text and expires_at > clock_timestamp();
savepoint einmal_request;
INSERT INTO charge (order_id, cents) VALUES (1, 2);
insert into idempotency_key as k (scope, key, fingerprint, status_code, response_headers, response_body, expires_at)
values ('', :n::text, sha256(:n::text::bytea), 201, '\x436f6e74656e742d547970653a206170706c69636174696f6e2f6a736f6e0d0a4c6f636174696f6e3a202f6f72646572732f31323334353637380d0a', sha256('a') || sha256('b'), clock_timestamp() + 86400000000 * interval '1 microsecond')
on conflict (scope, key) do update set fingerprint = excluded.fingerprint, status_code = excluded.status_code,
response_headers = excluded.response_headers, response_body = excluded.response_body, created_at = clock_timestamp(), expires_at = excluded.expires_at
where k.expires_at <= clock_timestamp() returning true;
COMMIT;
`

// bytes reports what a request takes: in the table and its indexes, and of the write-ahead log, beside the insert of
// the handler.
func (b *httpBench) bytes(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, "truncate idempotency_key"); err != nil {
		return err
	}
	handler, err := idempotency.NewHandler(pgxidempotency.New(b.pool, nil), place,
		idempotency.HandlerConfig{SingleTenant: true, Logger: quiet})
	if err != nil {
		return err
	}
	const requests = 10_000
	wal := func(one func(context.Context) error) (int64, error) {
		const position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
		var before, after int64
		for range 1000 { // the pages' first changes, and the replays' first requests
			if err := one(ctx); err != nil {
				return 0, err
			}
		}
		if err := b.pool.QueryRow(ctx, position).Scan(&before); err != nil {
			return 0, err
		}
		for range requests {
			if err := one(ctx); err != nil {
				return 0, err
			}
		}
		err := b.pool.QueryRow(ctx, position).Scan(&after)
		return (after - before) / requests, err
	}
	first, err := wal(direct(handler, b.fresh))
	if err != nil {
		return err
	}
	var table, indexes int64
	if err := b.pool.QueryRow(ctx,
		"select pg_table_size('idempotency_key'), pg_indexes_size('idempotency_key')").Scan(&table, &indexes); err != nil {
		return err
	}
	replay, err := wal(direct(handler, b.repeated))
	if err != nil {
		return err
	}
	plain, err := wal(direct(b.plain(), b.fresh))
	if err != nil {
		return err
	}
	fmt.Printf("\nbytes a request, mean of %d: table %d, indexes %d; WAL: first %d (of which the handler's own transaction %d), replay %d\n",
		requests, table/(requests+1000), indexes/(requests+1000), first, plain, replay)
	return nil
}
