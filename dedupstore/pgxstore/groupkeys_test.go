package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// grouping returns a store with groups, and one transaction at a time. Calls that wait for it share the next one.
func grouping(db *database) *pgxstore.Store {
	return pgxstore.Unhurried(pgxstore.New(db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = 2 }),
		&pgxstore.Config{Group: 50}))
}

// together makes the calls in one group: the only transaction is in use until all of them wait.
func together(t *testing.T, store *pgxstore.Store, calls ...func()) {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := store.Once(t.Context(), key("first"), func(context.Context, pgx.Tx) error {
			close(held)
			<-release
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	for _, call := range calls {
		all.Go(call)
	}
	for pgxstore.Waiting(store) < len(calls) {
		time.Sleep(time.Millisecond)
	}
	close(release)
	all.Wait()
}

// The records of a group are inserted in the order of their keys, in whichever order its calls came, so that two groups
// lock in one order.
func TestGroupsRecordInTheOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := grouping(db)
	calls := make([]func(), 40)
	for i := range calls {
		calls[i] = func() {
			name := fmt.Sprintf("event-%02d", i*17%len(calls))
			if ran, err := store.Once(t.Context(), key(name), writes(name)); !ran || err != nil {
				t.Errorf("%s: %v, %v", name, ran, err)
			}
		}
	}
	together(t, store, calls...)
	if n := value[int](db, "select count(distinct xmin::text) from processed_event"); n > 10 {
		t.Fatalf("%d transactions", n)
	}
	const before = `select count(*) from (select event_id, lag(event_id) over (partition by xmin::text order by ctid) as before from processed_event) r
		where before > event_id`
	if n := value[int](db, before); n > 0 {
		t.Errorf("%d records stand behind one of a higher key of their transaction", n)
	}
}

// When a function has ended the transaction of a group, the records of events that have not run are taken back, and no
// record that somebody else has made of them meanwhile.
func TestGroupsTakeBackTheirOwnRecordsAlone(t *testing.T) {
	t.Parallel()
	db := open(t)
	store, other := grouping(db), pgxstore.New(db.Pool, nil)
	var first sync.Once
	call := func(name, sibling string) func() {
		return func() {
			var err error
			for range 3 {
				if _, err = store.Once(t.Context(), key(name), func(ctx context.Context, tx pgx.Tx) error {
					ended := false
					first.Do(func() { ended = true })
					if !ended {
						return write(ctx, tx, name)
					}
					if _, err := tx.Conn().Exec(ctx, "rollback"); err != nil {
						return err
					}
					ran, err := other.Once(t.Context(), key(sibling), writes(sibling))
					if !ran {
						err = errors.Join(err, errors.New("it is there already"))
					}
					return err
				}); err == nil {
					return
				}
			}
			t.Errorf("%s: %v", name, err)
		}
	}
	together(t, store, call("a", "b"), call("b", "a"))
	for _, name := range []string{"a", "b"} {
		if n := value[int](db, "select count(*) from effect where name = $1", name); n != 1 {
			t.Errorf("%s took effect %d times", name, n)
		}
		if n := value[int](db, "select count(*) from processed_event where event_id = $1", name); n != 1 {
			t.Errorf("%s has %d records", name, n)
		}
	}
}

// Whatever would end the transaction of a group, or begin another one, is not sent, and fails its own call alone.
func TestGroupsSendNothingThatEndsThem(t *testing.T) {
	t.Parallel()
	for sql, ends := range map[string]bool{
		"begin": true, "START transaction": true, " commit; select 1": true, "End": true, "abort": true, "rollback;": true,
		"ROLLBACK work":           true,
		"prepare transaction 'x'": true, "savepoint s": false, "prepare p as select 1": false, "": false,
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			store := grouping(db)
			together(t, store,
				func() {
					_, err := store.Once(t.Context(), key("a"), exec(sql))
					if ends != errors.Is(err, dedupstore.ErrTxEnded) || !ends && err != nil {
						t.Errorf("%v", err)
					}
				},
				func() {
					if ran, err := store.Once(t.Context(), key("b"), writes("b")); !ran || err != nil {
						t.Errorf("the other call: %v, %v", ran, err)
					}
				})
			if n := value[int](db, "select count(*) from processed_event where event_id = 'a'"); (n == 0) != ends {
				t.Errorf("%d records", n)
			}
		})
	}
}
