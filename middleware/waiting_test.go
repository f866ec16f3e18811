package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// shared is a database that many messages wait for.
type shared struct {
	dead    atomic.Int64
	handled sync.Map // by event
	chain   consumer.Topic
}

// graves is a table of dead letters that counts them.
type graves[Tx any] struct{ n *atomic.Int64 }

func (g graves[Tx]) Write(context.Context, Tx, *deadletter.Record) error {
	g.n.Add(1)
	return nil
}

// sharedBy returns a chain of a handler that runs work, with so long for each attempt, on store.
func sharedBy[Tx any](store dedupstore.Store[Tx], limit time.Duration,
	work func(ctx context.Context, tx Tx) error) *shared {
	s := &shared{}
	log := slog.New(slog.DiscardHandler)
	s.chain = consumer.Topic{
		Middleware: []consumer.Middleware{
			middleware.DeadLetter[Tx](store, graves[Tx]{&s.dead}, &middleware.DeadLetterConfig{Logger: log}),
			middleware.Retry(3, &middleware.RetryConfig{Base: 10 * time.Millisecond, Max: 50 * time.Millisecond}),
			middleware.Recover(), middleware.Timeout(limit),
		},
		Handler: middleware.Dedup(store, func(ctx context.Context, tx Tx, _ *consumer.Message) error {
			err := work(ctx, tx)
			if err == nil {
				key, _ := dedupstore.KeyFrom(ctx)
				s.handled.Store(key.Event, true) // perhaps once more, if its time was over just then
			}
			return err
		}, nil),
	}
	return s
}

// deliver hands out the messages of so many partitions side by side, as their owner does, until each is done.
func (s *shared) deliver(t *testing.T, partitions, messages int) {
	t.Helper()
	c, err := consumer.New(consumer.Config{Brokers: []string{"localhost:9"}, Group: "g",
		Topics: map[string]consumer.Topic{"orders": s.chain}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for p := range partitions {
		all.Go(func() {
			for offset := range messages {
				d, err := c.Deliver(&consumer.Message{
					Topic: "orders", Partition: int32(p), Offset: int64(offset),
					Headers: []consumer.Header{{Key: "event-id", Value: fmt.Append(nil, p, "/", offset)}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				for again := true; again; {
					a := d.Attempt(t.Context())
					if again = a.Again; again {
						time.Sleep(a.Delay)
					} else if a.Err != nil {
						t.Errorf("partition %d, offset %d: %v", p, offset, a.Err)
					}
				}
			}
		})
	}
	all.Wait()
}

// healthy checks that each message took effect.
func (s *shared) healthy(t *testing.T, messages int) {
	t.Helper()
	handled := 0
	s.handled.Range(func(any, any) bool { handled++; return true })
	if dead := s.dead.Load(); dead != 0 || handled != messages {
		t.Errorf("%d of %d healthy messages are dead letters, %d took effect", dead, messages, handled)
	}
}

// sharedKinds are stores on PostgreSQL whose pools have so many connections.
var sharedKinds = map[string]func(t *testing.T, url string, conns int, limit time.Duration, work func(ctx context.Context, exec func(sql string) error) error) *shared{
	"pgx": func(t *testing.T, url string, conns int, limit time.Duration, work func(ctx context.Context, exec func(sql string) error) error) *shared {
		t.Helper()
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = int32(conns)
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return sharedBy(pgxstore.New(pool, nil), limit, func(ctx context.Context, tx pgx.Tx) error {
			return work(ctx, func(sql string) error { _, err := tx.Exec(ctx, sql); return err })
		})
	},
	"database/sql": func(t *testing.T, url string, conns int, limit time.Duration, work func(ctx context.Context, exec func(sql string) error) error) *shared {
		t.Helper()
		return sharedBy(sqlstore.New(sqlPool(t, url, conns), schema.Postgres, nil), limit,
			func(ctx context.Context, tx *sql.Tx) error {
				return work(ctx, func(sql string) error { _, err := tx.ExecContext(ctx, sql); return err })
			})
	},
	"bun": func(t *testing.T, url string, conns int, limit time.Duration, work func(ctx context.Context, exec func(sql string) error) error) *shared {
		t.Helper()
		return sharedBy(bunstore.New(bun.NewDB(sqlPool(t, url, conns), pgdialect.New()), nil), limit,
			func(ctx context.Context, tx bun.Tx) error {
				return work(ctx, func(sql string) error { _, err := tx.ExecContext(ctx, sql); return err })
			})
	},
}

func sqlPool(t *testing.T, url string, conns int) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(conns)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func sharedURL(t *testing.T) string {
	t.Helper()
	url := serverstest.DatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return url
}

// Eight partitions share a pool of three connections, and a handler takes most of its time: the others wait for longer
// than that, and none of them is given up.
func TestWaitingForAConnectionIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, open := range sharedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, sharedURL(t), 3, 400*time.Millisecond, func(_ context.Context, exec func(sql string) error) error {
				return exec("select pg_sleep(0.15)")
			})
			s.deliver(t, 8, 10)
			s.healthy(t, 80)
		})
	}
}

// Another transaction holds the record for longer than an attempt may take.
func TestWaitingForTheRecordIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, open := range sharedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := sharedURL(t)
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			if _, err := conn.Exec(t.Context(),
				"begin; insert into processed_event (event_id, consumer_id) values ('0/0', 'g/orders')"); err != nil {
				t.Fatal(err)
			}
			rolledBack := make(chan struct{})
			time.AfterFunc(2*time.Second, func() {
				defer close(rolledBack)
				if _, err := conn.Exec(context.WithoutCancel(t.Context()), "rollback"); err != nil {
					t.Error(err)
				}
			})
			s := open(t, url, 3, 250*time.Millisecond,
				func(_ context.Context, exec func(sql string) error) error { return exec("select 1") })
			s.deliver(t, 1, 1)
			s.healthy(t, 1)
			<-rolledBack // before the connection is closed
		})
	}
}

// SQLite has one writer: those who wait for it are not given up.
func TestWaitingForSQLitesWriterIsNotCounted(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(200)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), schema.SQLite.SQL(nil, schema.Dedup)); err != nil {
		t.Fatal(err)
	}
	s := sharedBy(sqlstore.New(db, schema.SQLite, nil), 250*time.Millisecond, func(context.Context, *sql.Tx) error {
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	s.deliver(t, 8, 3)
	s.healthy(t, 24)
}

// The database is silent for longer than a wait may take: nothing is given up for it.
func TestASilentDatabaseIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, open := range sharedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxied, silent := silentProxy(t, sharedURL(t))
			var begun atomic.Int64
			s := open(t, proxied, 5, 500*time.Millisecond, func(_ context.Context, exec func(sql string) error) error {
				if begun.Add(1) == 10 {
					silent.Store(true)
					time.AfterFunc(12*time.Second, func() { silent.Store(false) })
				}
				return exec("select pg_sleep(0.02)")
			})
			s.deliver(t, 4, 10)
			s.healthy(t, 40)
			if begun.Load() < 10 {
				t.Error("it was never silent")
			}
		})
	}
}

// silentProxy stands between a client and the database, and passes nothing on while it is silent.
func silentProxy(t *testing.T, to string) (through string, silent *atomic.Bool) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent = &atomic.Bool{}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); silent.Store(false); all.Wait() })
	target := u.Host
	pass := func(to, from net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			for silent.Load() {
				time.Sleep(5 * time.Millisecond)
			}
			if n > 0 {
				_, _ = to.Write(buf[:n])
			}
			if err != nil {
				_, _ = to.Close(), from.Close()
				return
			}
		}
	}
	all.Go(func() {
		for {
			client, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			server, dialErr := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
			if err := errors.Join(err, dialErr); err != nil {
				t.Error(err)
				return
			}
			all.Go(func() { pass(server, client) })
			all.Go(func() { pass(client, server) })
		}
	})
	u.Host = l.Addr().String()
	return u.String(), silent
}
