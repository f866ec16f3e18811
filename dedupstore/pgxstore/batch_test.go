package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

// Functions that queue their statements keep the contract, alone and in groups.
func TestBatchStore(t *testing.T) {
	t.Parallel()
	suite := func(name string, group int, mode pgx.QueryExecMode, layout pgtest.Layout) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[*pgx.Batch] {
				return batchHarness(use(t, pgtest.Open(t, layout)), mode, group)
			})
		})
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec} { // they differ on the wire
		suite(mode.String(), 50, mode, pgtest.Plain)
	}
	suite("without groups", 0, pgx.QueryExecModeCacheStatement, pgtest.Plain)
	suite("DoNothing", 50, pgx.QueryExecModeCacheStatement, pgtest.ByRange)
}

// errQueued is what the suite's functions see of a statement that is sent later.
var errQueued = errors.New("the statement is queued")

func batchHarness(db *database, mode pgx.QueryExecMode, group int) storetest.Harness[*pgx.Batch] {
	store := func(cfg pgxstore.Config) dedupstore.Store[*pgx.Batch] {
		cfg.Group = group
		return pgxstore.NewBatch(db.pool(inMode(mode)), db.config(cfg))
	}
	insert := "insert into " + db.EffectTable() + " (name) values ($1)"
	h := storetest.Harness[*pgx.Batch]{
		Store: store(pgxstore.Config{}),
		Write: func(_ context.Context, batch *pgx.Batch, effect string) error {
			batch.Queue(insert, effect)
			return nil
		},
		Effects: db.EffectsOf,
		Other:   store(pgxstore.Config{}),
		Spoil: map[string]func(context.Context, *pgx.Batch) error{
			"statement fails": queue("select 1/0"),
			"connection lost": queue(killSession),
		},
		End: map[string]func(context.Context, *pgx.Batch) error{
			"COMMIT text":      queue("commit"),
			"ROLLBACK text":    queue(" rollback"),
			"COMMIT AND CHAIN": queue("Commit and chain"),
			"BEGIN text":       queue("begin"),
		},
		Cut: func(_ testing.TB, at storetest.Moment) dedupstore.Store[*pgx.Batch] {
			pool, dialer := db.faulty(inMode(mode))
			dialer.Break(faultconn.Moment(at))
			return pgxstore.NewBatch(pool, db.config(pgxstore.Config{CommitTimeout: time.Second, IdleTimeout: time.Second}))
		},
		Impatient: store(pgxstore.Config{IdleTimeout: 300 * time.Millisecond}),
		Brief:     store(pgxstore.Config{LockTimeout: 100 * time.Millisecond}),
	}
	if group == 0 {
		h.Waiting = db.Waiting
	}
	return h
}

func queue(sql string) func(context.Context, *pgx.Batch) error {
	return func(_ context.Context, batch *pgx.Batch) error {
		batch.Queue(sql)
		return errQueued
	}
}

// batches runs n calls of a store with one connection at once, so that they share transactions, and returns their
// errors.
func batches(t *testing.T, db *database, n int, fn func(i int, batch *pgx.Batch) error) []error {
	t.Helper()
	store := pgxstore.NewBatch(db.Pool, &pgxstore.Config{Group: 50})
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			_, errs[i] = store.Once(t.Context(), key(eventOf(i)), func(_ context.Context, batch *pgx.Batch) error {
				batch.Queue("insert into effect (name) values ($1)", eventOf(i))
				return fn(i, batch)
			})
		})
	}
	calls.Wait()
	return errs
}

func eventOf(i int) string { return fmt.Sprint("event-", i) }

// A statement that fails, or a callback, is an error of the message that queued it, and of no other.
func TestBatchBlames(t *testing.T) {
	t.Parallel()
	errCallback := errors.New("of the callback")
	for name, test := range map[string]struct {
		ill  func(batch *pgx.Batch) error
		want func(error) bool
	}{
		"a statement fails":      {queueing("select 1/0"), state("22012")},
		"a constraint is hurt":   {queueing("insert into effect (name) values (null)"), state("23502")},
		"a text is no statement": {queueing("selekt"), state("42601")},
		"an argument cannot be sent": {
			func(batch *pgx.Batch) error { batch.Queue("select $1::int", make(chan int)); return nil },
			func(err error) bool { return strings.Contains(err.Error(), "encode") },
		},
		"a callback fails": {
			func(batch *pgx.Batch) error {
				batch.Queue("update effect set name = name where false").Exec(func(tag pgconn.CommandTag) error {
					if tag.RowsAffected() == 0 {
						return errCallback
					}
					return nil
				})
				return nil
			},
			func(err error) bool { return errors.Is(err, errCallback) },
		},
		"a row is not there": {
			func(batch *pgx.Batch) error {
				batch.Queue("select name from effect where false").QueryRow(func(row pgx.Row) error { var s string; return row.Scan(&s) })
				return nil
			},
			func(err error) bool { return errors.Is(err, pgx.ErrNoRows) },
		},
		"the function": {func(*pgx.Batch) error { return errFunction },
			func(err error) bool { return errors.Is(err, errFunction) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.exec("alter table effect alter column name set not null")
			errs := batches(t, db, 200, func(i int, batch *pgx.Batch) error {
				if i%40 == 7 {
					return test.ill(batch)
				}
				if i%40 == 8 {
					batch.Queue("select 1").QueryRow(func(row pgx.Row) error { var n int; return row.Scan(&n) })
				}
				return nil
			})
			for i, err := range errs {
				if ill := i%40 == 7; ill != (err != nil) || ill && !test.want(err) {
					t.Errorf("event %d: %v", i, err)
				}
			}
			if n := value[int](db, "select count(*) from processed_event p join effect e on e.name = p.event_id"); n != 195 {
				t.Errorf("%d events took effect", n)
			}
			if n := value[int](db, "select count(*) from effect"); n != 195 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

func queueing(sql string) func(*pgx.Batch) error {
	return func(batch *pgx.Batch) error {
		batch.Queue(sql)
		return nil
	}
}

func state(code string) func(error) bool {
	return func(err error) bool {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		return ok && pgErr.Code == code
	}
}

// A callback that panics, or ends its goroutine, does so on that of its call.
func TestBatchCallbackEscapes(t *testing.T) {
	t.Parallel()
	for name, escape := range map[string]func(){"panic": func() { panic("the callback") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			store := pgxstore.NewBatch(db.Pool, &pgxstore.Config{Group: 50})
			var calls sync.WaitGroup
			var panicked, returned atomic.Int64
			for i := range 100 {
				calls.Go(func() {
					defer func() {
						if recover() != nil {
							panicked.Add(1)
						}
					}()
					_, err := store.Once(t.Context(), key(eventOf(i)), func(_ context.Context, batch *pgx.Batch) error {
						batch.Queue("insert into effect (name) values ($1)", eventOf(i)).Exec(func(pgconn.CommandTag) error {
							if i == 50 {
								escape()
							}
							return nil
						})
						return nil
					})
					if err != nil {
						t.Error(err)
					}
					returned.Add(1)
				})
			}
			calls.Wait()
			if got, want := panicked.Load() == 1, name == "panic"; got != want || returned.Load() != 99 {
				t.Errorf("%d calls panicked and %d returned", panicked.Load(), returned.Load())
			}
			if n := value[int](db, "select count(*) from effect e join processed_event p on p.event_id = e.name"); n != 99 {
				t.Errorf("%d events took effect", n)
			}
		})
	}
}

// A statement that waits for a lock ends with its own message's deadline, and the others take effect.
func TestBatchDeadline(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("create table counter (id int primary key)")
	db.exec("insert into counter values (1)")
	holder, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	if _, err := holder.Exec(t.Context(), "select from counter for update"); err != nil {
		t.Fatal(err)
	}
	store := pgxstore.NewBatch(db.Pool, &pgxstore.Config{Group: 50})
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if i == 10 {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			for {
				_, err := store.Once(ctx, key(eventOf(i)), func(_ context.Context, batch *pgx.Batch) error {
					batch.Queue("insert into effect (name) values ($1)", eventOf(i))
					if i == 10 {
						batch.Queue("select from counter for update")
					}
					return nil
				})
				if i == 10 && !errors.Is(err, context.DeadlineExceeded) || i != 10 && ctx.Err() != nil {
					t.Errorf("event %d: %v", i, err)
				}
				if err == nil || ctx.Err() != nil {
					return
				}
			}
		})
	}
	calls.Wait()
	if n := value[int](db, "select count(*) from effect"); n != 19 {
		t.Errorf("%d effects", n)
	}
}

// The simple protocol is refused, with what to do.
func TestBatchRefusesSimpleProtocol(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.NewBatch(db.pool(inMode(pgx.QueryExecModeSimpleProtocol)), nil)
	_, err := store.Once(t.Context(), key("event"), func(context.Context, *pgx.Batch) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") {
		t.Errorf("Once() = %v", err)
	}
	if err := store.Check(t.Context()); err == nil {
		t.Error("Check finds nothing")
	}
}
