package pgxstore_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/schema"
)

func TestDuplicatesAreCounted(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, nil)
	for range 4 {
		if _, err := store.Once(t.Context(), key("repeated"), writes("repeated")); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](db, "select duplicates from processed_event where event_id = 'repeated' and consumer_id = $1",
		key("").Consumer); n != 3 {
		t.Errorf("%d duplicates were counted, want 3", n)
	}
}

func TestAnotherSchema(t *testing.T) {
	t.Parallel()
	db := openEmpty(t)
	name := value[string](db, "select current_schema()") + ` "Ä$1`
	db.exec("create schema " + pgx.Identifier{name}.Sanitize())
	t.Cleanup(func() {
		if _, err := db.Exec(context.Background(), "drop schema "+pgx.Identifier{name}.Sanitize()+" cascade"); err != nil {
			t.Error(err)
		}
	})
	db.exec(schema.Postgres.SQL(&schema.Config{Schema: name}, schema.Dedup))
	db.exec("create table effect (name text)")
	for _, mode := range modes {
		store := pgxstore.New(db.pool(inMode(mode)), &pgxstore.Config{Schema: name})
		if err := store.Check(t.Context()); err != nil {
			t.Errorf("%v: Check: %v", mode, err)
		}
		if ran, err := store.Once(t.Context(), key(mode.String()), writes("effect")); !ran || err != nil {
			t.Errorf("%v: Once() = %v, %v", mode, ran, err)
		}
	}
	if n := value[int](db, "select count(*) from "+pgx.Identifier{name, "processed_event"}.Sanitize()); n != len(modes) {
		t.Errorf("%d records in the other schema, want %d", n, len(modes))
	}
}

// Savepoints are the function's own, and so is an error that one of them confines.
func TestSavepoint(t *testing.T) {
	t.Parallel()
	db := open(t)
	ran, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("savepoint"), func(ctx context.Context, tx pgx.Tx) error {
		if err := write(ctx, tx, "kept"); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return errors.Join(write(ctx, tx, "dropped"), exec("select 1/0")(ctx, tx))
		})
		if err == nil {
			t.Error("the savepoint's error is lost")
		}
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return write(ctx, tx, "kept too") })
	})
	if !ran || err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	if got := value[string](db, "select string_agg(name, ', ' order by name) from effect"); got != "kept, kept too" {
		t.Errorf("effects: %s", got)
	}
}

// Whatever a function does, the connection goes back to the pool as it came, or not at all.
func TestConnectionIsLeftClean(t *testing.T) {
	t.Parallel()
	db := open(t)
	pool := db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	store := pgxstore.New(pool, nil)
	for name, c := range map[string]struct {
		fn   func(ctx context.Context, tx pgx.Tx) error
		kept bool // the session goes on
	}{
		"success":           {writes("fine"), true},
		"error":             {func(context.Context, pgx.Tx) error { return errors.New("no") }, true},
		"panic":             {func(context.Context, pgx.Tx) error { panic("no") }, true},
		"goexit":            {func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, true},
		"statement failed":  {exec("select 1/0"), true},
		"COMMIT":            {exec("commit"), false},
		"ROLLBACK":          {exec("rollback"), false},
		"COMMIT AND CHAIN":  {exec("commit and chain"), false},
		"savepoint is open": {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err }, true},
		"session is killed": {exec("select pg_terminate_backend(pg_backend_pid())"), false},
		"rows are open": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "select generate_series(1, 100000)") //nolint:sqlclosecheck // that is the mistake
			return err
		}, false},
		"batch is open": {func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("select 1")
			b.Queue("select 2")
			tx.SendBatch(ctx, b)
			return nil
		}, false},
	} {
		before := pid(t, pool)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _ = store.Once(t.Context(), key(name), c.fn)
		}()
		<-done
		after := pid(t, pool)
		if kept := before == after; kept != c.kept {
			t.Errorf("%s: the session was kept: %v, want %v", name, kept, c.kept)
		}
		if ran, err := store.Once(t.Context(), key(name+", afterwards"), writes("after")); !ran || err != nil {
			t.Errorf("%s: the next call: %v, %v", name, ran, err)
		}
	}
}

// pid returns the session of the pool's only connection, and fails if a transaction is open in it.
func pid(t *testing.T, pool *pgxpool.Pool) (pid int) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
		t.Errorf("the pool hands out a connection with the transaction status %c", status)
	}
	if err := conn.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestFunctionLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	db := open(t)
	ran, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("rows"), func(ctx context.Context, tx pgx.Tx) error {
		if err := write(ctx, tx, "rows"); err != nil {
			return err
		}
		_, err := tx.Query(ctx, "select generate_series(1, 10)") //nolint:sqlclosecheck // that is the mistake
		return err
	})
	if ran || err == nil || !strings.Contains(err.Error(), "close them") {
		t.Errorf("Once() = %v, %v", ran, err)
	}
	if n := db.Effects(); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// A constraint that is checked at COMMIT rolls back, which is no unknown outcome.
func TestDeferredConstraint(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("create table parent (id int primary key)")
	db.exec("create table child (id int references parent deferrable initially deferred)")
	ran, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("deferred"), exec("insert into child values (1)"))
	var pgErr *pgconn.PgError
	if ran || !errors.As(err, &pgErr) || pgErr.Code != "23503" || errors.Is(err, dedupstore.ErrOutcomeUnknown) {
		t.Errorf("Once() = %v, %v, want a foreign key violation and nothing unknown", ran, err)
	}
	if n := value[int](db, "select count(*) from processed_event"); n != 0 {
		t.Errorf("%d records", n)
	}
}

// The function's error comes back as it is, also where it carries more: callers look into it.
func TestErrorOfTheFunctionIsKept(t *testing.T) {
	t.Parallel()
	db := open(t)
	own := errors.New("own")
	if _, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("own"), func(context.Context, pgx.Tx) error { return own }); err != own { //nolint:errorlint // the very same
		t.Errorf("Once: %v", err)
	}
	_, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("own"), func(ctx context.Context, tx pgx.Tx) error {
		_ = tx.Rollback(ctx)
		return own
	})
	if !errors.Is(err, own) || !errors.Is(err, dedupstore.ErrTxEnded) {
		t.Errorf("Once: %v, want both errors", err)
	}
}

// A column of type uuid is fine where every id is one. The server's complaint about another id would repeat it.
func TestIDThatTheColumnRefuses(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("alter table processed_event alter event_id type uuid using event_id::uuid")
	for _, mode := range modes {
		store := pgxstore.New(db.pool(inMode(mode)), nil)
		if err := store.Check(t.Context()); err != nil {
			t.Errorf("%v: Check: %v", mode, err)
		}
		_, err := store.Once(t.Context(), key("secret"), writes("no"))
		if !errors.Is(err, dedupstore.ErrInvalidKey) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: Once: %v, want an ErrInvalidKey that does not repeat the id", mode, err)
		}
	}
	store, id := pgxstore.New(db.Pool, nil), "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	for _, wantRan := range []bool{true, false} {
		if ran, err := store.Once(t.Context(), key(id), writes(id)); ran != wantRan || err != nil {
			t.Errorf("Once() = %v, %v, want %v", ran, err, wantRan)
		}
	}
}

// Commit and Rollback are refused: they end nothing, and the record and the effect go together.
func TestCommitAndRollbackAreRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	} {
		_, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key(name), func(ctx context.Context, tx pgx.Tx) error {
			if err := write(ctx, tx, "before"); err != nil {
				return err
			}
			if err := end(ctx, tx); !errors.Is(err, dedupstore.ErrTxEnded) {
				t.Errorf("%s: %v, want ErrTxEnded", name, err)
			}
			return write(ctx, tx, "after") // in the same transaction
		})
		if !errors.Is(err, dedupstore.ErrTxEnded) {
			t.Errorf("%s: Once: %v, want ErrTxEnded", name, err)
		}
	}
	if effects, records := db.Effects(), value[int](db, "select count(*) from processed_event"); effects != 0 ||
		records != 0 {
		t.Errorf("%d effects and %d records, want none", effects, records)
	}
}
