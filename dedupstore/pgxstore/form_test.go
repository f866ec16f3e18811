package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// A table takes the upsert if it can, and DO NOTHING if it cannot or the user prefers it. What tells them apart: a counter.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		layout  pgtest.Layout
		counted int
	}{{pgtest.Plain, 1}, {pgtest.Renamed, 1}, {pgtest.Cheap, 0}, {pgtest.ByHash, 0}, {pgtest.ByRange, 0}} {
		for _, checked := range []bool{true, false} {
			db := use(t, pgtest.Open(t, c.layout))
			store := pgxstore.New(db.Pool, db.config(pgxstore.Config{}))
			if checked {
				if err := store.Check(t.Context()); err != nil {
					t.Fatalf("%s: Check: %v", c.layout.Name, err)
				}
			}
			for _, want := range []bool{true, false} {
				if ran, err := store.Once(t.Context(), key("twice"), writes("twice")); ran != want || err != nil {
					t.Errorf("%s: Once() = %v, %v, want %v", c.layout.Name, ran, err, want)
				}
			}
			if n := value[int](db, "select duplicates from "+db.Layout.TableSQL()); n != c.counted {
				t.Errorf("%s: %d redeliveries were counted, want %d", c.layout.Name, n, c.counted)
			}
			if n := db.Records(); n != 1 {
				t.Errorf("%s: %d records, the probe's among them", c.layout.Name, n)
			}
		}
	}
}

// A table that becomes a partitioned one under a running store costs one attempt.
func TestTableBecomesPartitioned(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, nil)
	if ran, err := store.Once(t.Context(), key("before"), writes("before")); !ran || err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	db.exec(`alter table processed_event rename to old; alter table old drop constraint processed_event_pkey;
		create table processed_event (like old including defaults, primary key (event_id, consumer_id)) partition by hash (event_id);
		create table part partition of processed_event for values with (modulus 1, remainder 0);
		insert into processed_event select event_id, consumer_id, processed_at, duplicates from old`)
	_, err := store.Once(t.Context(), key("after"), writes("after"))
	if class := dedupstore.ClassOf(err); class != dedupstore.Misconfigured {
		t.Errorf("the first call afterwards: %v, class %v", err, class)
	}
	for k, want := range map[string]bool{"before": false, "after": true} {
		if ran, err := store.Once(t.Context(), key(k), writes(k)); ran != want || err != nil {
			t.Errorf("%s: Once() = %v, %v, want %v", k, ran, err, want)
		}
	}
}

// Something that swallows the record, such as a rule of an old way of partitioning, would have every event taken for a
// redelivery, and lost.
func TestRecordIsSwallowed(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec(`create function swallow() returns trigger language plpgsql as 'begin return null; end';
		create trigger swallow before insert on processed_event for each row execute function swallow()`)
	store := pgxstore.New(db.Pool, nil)
	_, onceErr := store.Once(t.Context(), key("e"), writes("e"))
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if err == nil || !strings.Contains(err.Error(), "trigger") || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Where partitions are ranges of UUIDv7 ids, the events of a partition that was dropped are too old; those of one that was not
// created yet are not, and neither are ids of another kind.
func TestPartitionsOfUUID7(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.Open(t, pgtest.ByUUID))
	store := pgxstore.New(db.Pool, nil)
	if err := store.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	const (
		of2023   = "018a0000-0000-7000-8000-0123456789ab"
		of2024   = "018d0000-0000-7000-8000-0123456789ab"
		of2060   = "02960000-0000-7000-8000-0123456789ab"
		version4 = "0f9619ff-8b86-4011-b42d-00c04fc964ff"
	)
	once := func(event string) (bool, error) {
		ran, err := store.Once(t.Context(), key(event), writes(event))
		if err != nil && strings.Contains(err.Error(), event) {
			t.Errorf("the error repeats the id: %v", err)
		}
		return ran, err
	}
	if _, err := once(of2023); dedupstore.ClassOf(err) != dedupstore.Misconfigured {
		t.Errorf("an old event, and no later one on record: %v", err)
	}
	for _, want := range []bool{true, false} {
		if ran, err := once(of2024); ran != want || err != nil {
			t.Errorf("Once() = %v, %v, want %v", ran, err, want)
		}
	}
	if _, err := once(of2023); !errors.Is(err, dedupstore.ErrTooOld) {
		t.Errorf("an event of a partition that is not there any more: %v, want ErrTooOld", err)
	}
	if _, err := once(of2060); dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "create it") {
		t.Errorf("an event of a partition that is not there yet: %v", err)
	}
	for _, event := range []string{version4, "no uuid"} {
		if _, err := once(event); !errors.Is(err, dedupstore.ErrInvalidKey) {
			t.Errorf("%s: %v, want ErrInvalidKey", event, err)
		}
	}
	// A constraint of the user's function is its own affair.
	db.exec("alter table effect add check (name <> 'forbidden')")
	_, err := store.Once(t.Context(), key("018d0000-0000-7000-8000-000000000000"), writes("forbidden"))
	if class := dedupstore.ClassOf(err); err == nil || class != dedupstore.Unclassified {
		t.Errorf("a check of the function's own: %v, class %v", err, class)
	}
}

// A partition that was forgotten is no reason to give its events up, even if there are later ones, of a clock that is fast.
func TestPartitionWasForgotten(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.Open(t, pgtest.ByUUID))
	store := pgxstore.New(db.Pool, nil)
	if err := store.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	db.exec(`drop table part1; create table future partition of processed_event
		for values from ('02900000-0000-0000-0000-000000000000') to ('02950000-0000-0000-0000-000000000000')`)
	if ran, err := store.Once(t.Context(), key("02910000-0000-7000-8000-0123456789ab"), writes("future")); !ran || err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	now := fmt.Sprintf("%012x", time.Now().UnixMilli())
	_, err := store.Once(t.Context(), key(now[:8]+"-"+now[8:]+"-7000-8000-0123456789ab"), writes("now"))
	if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "create it, and the next ones") {
		t.Errorf("Once: %v", err)
	}
}

// Without a partition for today, nothing can be recorded, and the start says so.
func TestNoPartitionForToday(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.Open(t, pgtest.ByUUID))
	db.exec("drop table part1")
	store := pgxstore.New(db.Pool, nil)
	_, onceErr := store.Once(t.Context(), key("018a0000-0000-7000-8000-0123456789ab"), func(context.Context, pgx.Tx) error { return nil })
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if err == nil || !strings.Contains(err.Error(), "create it") || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("%s: %v", what, err)
		}
	}
}
