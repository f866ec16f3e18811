package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// Many calls at once share few transactions, and each takes effect once.
func TestGroupsShareTransactions(t *testing.T) {
	t.Parallel()
	db := open(t)
	pool := db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = 2 }) // one transaction at a time
	store := pgxstore.New(pool, &pgxstore.Config{Group: 50})
	const events, deliveries = 400, 2
	var ran, begun atomic.Int64
	var calls sync.WaitGroup
	first := make(chan struct{})
	calls.Go(func() { // holds the only transaction until the others wait
		_, err := store.Once(t.Context(), key("first"), func(context.Context, pgx.Tx) error {
			close(first)
			for begun.Load() < events*deliveries {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-first
	for i := range events * deliveries {
		calls.Go(func() {
			begun.Add(1)
			name := fmt.Sprint("event-", i%events)
			// Functions without a statement use up none of a group's time, however busy the machine is.
			ok, err := store.Once(t.Context(), key(name), func(context.Context, pgx.Tx) error { return nil })
			if err != nil {
				t.Errorf("Once() = %v", err)
			}
			if ok {
				ran.Add(1)
			}
		})
	}
	calls.Wait()
	if n := ran.Load(); n != events {
		t.Errorf("%d calls ran, want %d", n, events)
	}
	if n := value[int](db, "select count(*) from processed_event"); n != events+1 {
		t.Errorf("%d records", n)
	}
	if n := value[int](db, "select count(distinct xmin::text) from processed_event"); n > events/4 {
		t.Errorf("%d transactions for %d events: they do not share them", n, events)
	}
}

// Whatever is wrong with a function is its own call's error, and the others take effect.
func TestGroupsWithFailures(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, &pgxstore.Config{Group: 50})
	var calls sync.WaitGroup
	for i := range 300 {
		calls.Go(func() {
			name := fmt.Sprint("event-", i)
			ran, err := store.Once(t.Context(), key(name), func(ctx context.Context, tx pgx.Tx) error {
				if err := write(ctx, tx, name); err != nil {
					return err
				}
				switch i % 30 {
				case 1:
					return errFunction
				case 2:
					_, err := tx.Exec(ctx, "select 1/0")
					return err
				case 3:
					_, _ = tx.Exec(ctx, "select 1/0") // the mistake
				case 4:
					return tx.Commit(ctx)
				}
				return nil
			})
			if ill := i%30 >= 1 && i%30 <= 4; ill == ran || ill == (err == nil) {
				t.Errorf("event %d: Once() = %v, %v", i, ran, err)
			}
			if i%30 == 1 && !errors.Is(err, errFunction) {
				t.Errorf("event %d: %v is not the function's error", i, err)
			}
		})
	}
	calls.Wait()
	if n := value[int](db, "select count(*) from effect"); n != 300-40 {
		t.Errorf("%d effects, want %d", n, 300-40)
	}
	if n := value[int](db, "select count(*) from processed_event"); n != 300-40 {
		t.Errorf("%d records, want %d", n, 300-40)
	}
}

var errFunction = errors.New("of the function")

// A function that ends the transaction leaves no record behind whose function has not run.
func TestGroupsWithACommit(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"text":        exec("commit"),
		"on the Conn": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "commit"); return err },
		"with BEGIN": func(ctx context.Context, tx pgx.Tx) error {
			_,
				err := tx.Conn().Exec(ctx, "commit; begin")
			return err
		},
		"ROLLBACK": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Conn().Exec(ctx, "rollback"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			store := pgxstore.New(db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = 2 }), &pgxstore.Config{Group: 50})
			var calls sync.WaitGroup
			for i := range 60 {
				calls.Go(func() {
					name := fmt.Sprint("event-", i)
					for attempt := range 3 {
						_, err := store.Once(t.Context(), key(name), func(ctx context.Context, tx pgx.Tx) error {
							if attempt > 0 {
								return write(ctx, tx, name)
							}
							if i%20 == 10 {
								return end(ctx, tx)
							}
							return write(ctx, tx, name)
						})
						if err == nil {
							return
						}
						if !errors.Is(err, dedupstore.ErrTxEnded) {
							t.Errorf("%s: %v", name, err)
						}
					}
				})
			}
			calls.Wait()
			// The records of the three that ended their transaction may stay, without an effect: the store cannot know what they
			// did.
			if n := value[int](db, "select count(*) from processed_event p where not exists (select from effect e where e.name = p.event_id)"); n > 3 {
				t.Errorf("%d records without an effect", n)
			}
			if n := value[int](db, "select count(*) from (select name from effect group by name having count(*) > 1) d"); n > 0 {
				t.Errorf("%d effects twice", n)
			}
		})
	}
}

// A key that a column refuses is refused, and nobody else with it.
func TestGroupsWithARefusedKey(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("alter table processed_event add check (event_id <> 'refused')")
	store := pgxstore.New(db.Pool, &pgxstore.Config{Group: 50})
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			name := fmt.Sprint("event-", i)
			if i == 50 {
				name = "refused"
			}
			ran, err := store.Once(t.Context(), key(name), writes(name))
			if i == 50 && !errors.Is(err, dedupstore.ErrInvalidKey) || i != 50 && (!ran || err != nil) {
				t.Errorf("event %d: Once() = %v, %v", i, ran, err)
			}
		})
	}
	calls.Wait()
	if n := db.Effects(); n != 99 {
		t.Errorf("%d effects", n)
	}
}

// Ids whose column spells them in another way are told apart all the same.
func TestGroupsOfUUIDs(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("alter table processed_event drop constraint if exists processed_event_event_id_check")
	db.exec("alter table processed_event alter column event_id type uuid using event_id::uuid")
	store := pgxstore.New(db.Pool, &pgxstore.Config{Group: 50})
	once := func() (ran int64) {
		var n atomic.Int64
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() {
				ok, err := store.Once(t.Context(), key(fmt.Sprintf("{ABCDEF00-0000-4000-8000-%012X}", i)), writes("effect"))
				if err != nil {
					t.Error(err)
				}
				if ok {
					n.Add(1)
				}
			})
		}
		calls.Wait()
		return n.Load()
	}
	if first, second := once(), once(); first != 100 || second != 0 {
		t.Errorf("%d and %d calls ran, want 100 and 0", first, second)
	}
}

// An outside watcher sees records and effects together at every moment, while sessions are killed and functions fail.
func TestGroupsUnderKills(t *testing.T) {
	t.Parallel()
	db := open(t)
	pool := db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = 6 })
	store := pgxstore.New(pool, &pgxstore.Config{Group: 20, CommitTimeout: 5 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var side, calls sync.WaitGroup
	side.Go(func() { watch(ctx, t, db) })
	side.Go(func() { kill(ctx, db) })
	for worker := range 30 {
		calls.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("event-%d-%d", worker, i)
				for attempt := 1; ; attempt++ {
					_, err := store.Once(t.Context(), key(name), func(ctx context.Context, tx pgx.Tx) error {
						if rand.IntN(20) == 0 {
							return errFunction
						}
						return write(ctx, tx, name)
					})
					if err == nil {
						break
					}
					if attempt == 1000 {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			}
		})
	}
	calls.Wait()
	cancel()
	side.Wait()
	if n := value[int](db, "select count(distinct name) from effect"); n != 600 {
		t.Errorf("%d events took effect", n)
	}
	if n := value[int](db, "select count(*) from effect"); n != 600 {
		t.Errorf("%d effects", n)
	}
}

// watch compares records and effects in one snapshot, again and again.
func watch(ctx context.Context, t *testing.T, db *database) {
	for ctx.Err() == nil {
		var lone int
		err := db.QueryRow(ctx, `select count(*) from (select event_id from processed_event where consumer_id = $1) p
			full join effect e on e.name = p.event_id where e.name is null or p.event_id is null`, key("").Consumer).Scan(&lone)
		if err == nil && lone != 0 {
			t.Errorf("%d records without an effect, or effects without a record", lone)
			return
		}
	}
}

// kill ends a session of the store now and then.
func kill(ctx context.Context, db *database) {
	for ctx.Err() == nil {
		_, _ = db.Exec(ctx, `select pg_terminate_backend(l.pid) from pg_locks l
			where l.relation = 'processed_event'::regclass and l.mode = 'RowExclusiveLock' and l.pid <> pg_backend_pid() limit 1`)
		time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond)
	}
}
