package pgxstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/internal/rowtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

// Functions that hand in rows keep the contract, alone and in groups.
func TestRowStore(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]int{"groups": 50, "alone": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] {
				return rowHarness(use(t, pgtest.Open(t, pgtest.Plain)), group)
			})
		})
	}
}

func rowHarness(db *database, group int) storetest.Harness[pgx.Tx] {
	h := harnessFor(db, pgx.QueryExecModeCacheStatement, group,
		func(pool *pgxpool.Pool, cfg *pgxstore.Config) dedupstore.Store[pgx.Tx] {
			return rowtest.Store(pgxstore.NewRows(pool, cfg, rowtest.Flush[pgx.Tx]))
		})
	if group > 1 {
		h.Waiting = nil // calls wait for each other in the process
	}
	return h
}

// charge is a row of these tests.
type charge struct {
	event string
	cents int
}

// copyCharges writes rows by COPY.
func copyCharges(ctx context.Context, tx pgx.Tx, charges []charge) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"charge"}, []string{"event", "cents"},
		pgx.CopyFromSlice(len(charges), func(i int) ([]any, error) {
			return []any{charges[i].event, charges[i].cents}, nil
		}))
	return err
}

// handIn runs n calls of a store at once, each of which hands in a row, and returns their errors.
func handIn(t *testing.T, store *pgxstore.RowStore[charge], n int, cents func(i int) int) []error {
	t.Helper()
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			_, errs[i] = store.Once(t.Context(), key(eventOf(i)), func(_ context.Context, rows *dedupstore.Rows[charge]) error {
				if i%40 == 9 {
					return errFunction
				}
				rows.Add(charge{eventOf(i), cents(i)})
				return nil
			})
		})
	}
	calls.Wait()
	return errs
}

func openCharges(t *testing.T) *database {
	t.Helper()
	db := open(t)
	db.exec("create table charge (event text primary key, cents int check (cents > 0))")
	return db
}

// A row that the database refuses is an error of the message that has handed it in, and of no other, although all are
// written at once.
func TestRowsBlame(t *testing.T) {
	t.Parallel()
	db := openCharges(t)
	var most, writes atomic.Int64
	store := pgxstore.NewRows(db.Pool, &pgxstore.Config{Group: 50},
		func(ctx context.Context, tx pgx.Tx, charges []charge) error {
			writes.Add(1)
			most.Store(max(most.Load(), int64(len(charges))))
			return copyCharges(ctx, tx, charges)
		})
	errs := handIn(t, store, 200, func(i int) int { return i%40 - 6 }) // 0 to 6 are refused
	for i, err := range errs {
		switch {
		case i%40 == 9:
			if !errors.Is(err, errFunction) {
				t.Errorf("event %d: %v", i, err)
			}
		case i%40 < 7:
			if !state("23514")(err) {
				t.Errorf("event %d: %v", i, err)
			}
		case err != nil:
			t.Errorf("event %d: %v", i, err)
		}
	}
	const want = 200 - 5 - 5*7
	if n := value[int](db, "select count(*) from processed_event p join charge c on c.event = p.event_id"); n != want {
		t.Errorf("%d events took effect, want %d", n, want)
	}
	if n := value[int](db, "select (select count(*) from charge) + (select count(*) from processed_event)"); n != 2*want {
		t.Errorf("%d rows and records, want %d", n, 2*want)
	}
	if most.Load() < 2 {
		t.Errorf("no more than %d rows at once, in %d writes", most.Load(), writes.Load())
	}
}

// A function that panics while it writes does so in the call whose row it cannot write.
func TestRowsPanic(t *testing.T) {
	t.Parallel()
	db := openCharges(t)
	store := pgxstore.NewRows(db.Pool, &pgxstore.Config{Group: 50},
		func(ctx context.Context, tx pgx.Tx, charges []charge) error {
			if slices.ContainsFunc(charges, func(c charge) bool { return c.cents == 13 }) {
				panic("13")
			}
			return copyCharges(ctx, tx, charges)
		})
	var calls sync.WaitGroup
	var panicked, done atomic.Int64
	for i := range 100 {
		calls.Go(func() {
			defer func() {
				if recover() != nil {
					panicked.Add(1)
				}
			}()
			_, err := store.Once(t.Context(), key(eventOf(i)), func(_ context.Context, rows *dedupstore.Rows[charge]) error {
				rows.Add(charge{eventOf(i), i + 1})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	calls.Wait()
	if panicked.Load() != 1 || done.Load() != 99 {
		t.Errorf("%d calls panicked, %d are done", panicked.Load(), done.Load())
	}
	if n := value[int](db, "select count(*) from processed_event p join charge c on c.event = p.event_id"); n != 99 {
		t.Errorf("%d events took effect", n)
	}
}

// The one whose context ends while the rows are written is to blame for that, and no other.
func TestRowsDeadline(t *testing.T) {
	t.Parallel()
	db := openCharges(t)
	store := pgxstore.NewRows(db.Pool, &pgxstore.Config{Group: 50},
		func(ctx context.Context, tx pgx.Tx, charges []charge) error {
			if slices.ContainsFunc(charges, func(c charge) bool { return c.cents == 13 }) {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return copyCharges(ctx, tx, charges)
		})
	errs := make([]error, 100)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, errs[i] = store.Once(ctx, key(eventOf(i)), func(_ context.Context, rows *dedupstore.Rows[charge]) error {
				rows.Add(charge{eventOf(i), i + 1})
				if i == 12 {
					time.AfterFunc(50*time.Millisecond, cancel)
				}
				return nil
			})
		})
	}
	calls.Wait()
	for i, err := range errs {
		if ill := i == 12; ill != (err != nil) || ill && !errors.Is(err, context.Canceled) {
			t.Errorf("event %d: %v", i, err)
		}
	}
	if n := value[int](db, "select count(*) from processed_event p join charge c on c.event = p.event_id"); n != 99 {
		t.Errorf("%d events took effect", n)
	}
}

// A function that panics over the only row of a group does so in that row's call.
func TestRowsPanicOfOne(t *testing.T) {
	t.Parallel()
	db := openCharges(t)
	store := pgxstore.NewRows(db.Pool, &pgxstore.Config{Group: 50},
		func(context.Context, pgx.Tx, []charge) error { panic("always") })
	var calls sync.WaitGroup
	var panicked atomic.Int64
	for i := range 100 {
		calls.Go(func() {
			defer func() {
				if recover() != nil {
					panicked.Add(1)
				}
			}()
			_, err := store.Once(t.Context(), key(eventOf(i)), func(_ context.Context, rows *dedupstore.Rows[charge]) error {
				if i == 50 {
					rows.Add(charge{eventOf(i), 1})
				}
				return nil
			})
			if err != nil || i == 50 {
				t.Errorf("event %d: %v", i, err)
			}
		})
	}
	calls.Wait()
	if n := value[int](db, "select count(*) from processed_event"); panicked.Load() != 1 || n != 99 {
		t.Errorf("%d calls panicked, %d are recorded", panicked.Load(), n)
	}
}

// A function of a group may call Once itself: it does not wait for its own group.
func TestRowsNested(t *testing.T) {
	t.Parallel()
	db := openCharges(t)
	store := pgxstore.NewRows(db.Pool, &pgxstore.Config{Group: 50}, copyCharges)
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			_, err := store.Once(t.Context(), key(eventOf(i)), func(ctx context.Context, rows *dedupstore.Rows[charge]) error {
				rows.Add(charge{eventOf(i), 1})
				if i%10 != 5 {
					return nil
				}
				_, err := store.Once(ctx, key("nested-"+eventOf(i)), func(_ context.Context, rows *dedupstore.Rows[charge]) error {
					rows.Add(charge{"nested-" + eventOf(i), 1})
					return nil
				})
				return err
			})
			if err != nil {
				t.Errorf("event %d: %v", i, err)
			}
		})
	}
	calls.Wait()
	if n := value[int](db, "select count(*) from processed_event p join charge c on c.event = p.event_id"); n != 22 {
		t.Errorf("%d events took effect", n)
	}
}

// A function that ends the transaction while it writes has all calls of the group fail for good: nobody knows what was
// committed.
func TestRowsEnded(t *testing.T) {
	t.Parallel()
	db := openCharges(t)
	var ended atomic.Int64
	store := pgxstore.NewRows(db.Pool, &pgxstore.Config{Group: 50},
		func(ctx context.Context, tx pgx.Tx, charges []charge) error {
			if len(charges) > 1 && ended.Add(1) == 1 {
				_, err := tx.Conn().Exec(ctx, "commit")
				return err
			}
			return copyCharges(ctx, tx, charges)
		})
	failed := 0
	for i, err := range handIn(t, store, 100, func(int) int { return 1 }) {
		if errors.Is(err, dedupstore.ErrTxEnded) {
			failed++
		} else if err != nil && i%40 != 9 {
			t.Errorf("event %d: %v", i, err)
		}
	}
	if failed < 2 {
		t.Errorf("%d calls failed, want all of one group", failed)
	}
}

// A store without what it needs says so, in Check and in each call.
func TestRowsInvalid(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, group := range []int{0, 50} {
		store := pgxstore.NewRows[charge](db.Pool, &pgxstore.Config{Group: group}, nil)
		for _, err := range []error{store.Check(t.Context()), handIn(t, store, 1, func(int) int { return 1 })[0]} {
			if dedupstore.ClassOf(err) != dedupstore.Misconfigured {
				t.Errorf("Group %d: %v", group, err)
			}
		}
	}
}
