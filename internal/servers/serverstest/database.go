package serverstest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers"
)

// sharedDatabase is the one PostgreSQL of a test binary, started when the first test asks for it.
type sharedDatabase struct {
	once sync.Once
	db   *servers.Database
	err  error
}

var shared sharedDatabase

// searchTimeout is enough to fetch an image or binaries over a slow line.
const searchTimeout = 3 * time.Minute

func (s *sharedDatabase) get() (*servers.Database, error) {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), searchTimeout)
		defer cancel()
		if s.db, s.err = servers.Postgres(ctx); s.err == nil {
			announce("database", s.db.Origin)
		}
	})
	return s.db, s.err
}

// close stops the server if there is one. No test may run any more.
func (s *sharedDatabase) close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// DatabaseURL answers with the URL of a fresh, empty schema, to which its search_path is set. The schema is dropped
// when the test ends, and sessions that still hold locks in it are ended then.
func DatabaseURL(t testing.TB) string {
	t.Helper()
	db, err := shared.get()
	if err != nil {
		t.Fatal(err)
	}
	return newSchema(t, db)
}

func newSchema(t testing.TB, db *servers.Database) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	schema, err := db.NewSchema(ctx, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := schema.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return schema.URL
}

// Pool answers with a pool of connections to a fresh schema, see DatabaseURL. It is closed when the test ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool fails the test instead of hanging when a connection was not given back.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Errorf("%d connections were not given back to the pool: close rows and end transactions",
			pool.Stat().AcquiredConns())
	}
}
