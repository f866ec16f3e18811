package pgxstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/schema"
)

// A table takes the upsert if it can, and DO NOTHING if it cannot or the user prefers it. What tells them apart: a
// counter.
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

// What swallows, changes or hides some records only, the probe does not meet. An event is no repetition unless its
// record is seen to be there.
func TestRecordIsSwallowedForSome(t *testing.T) {
	t.Parallel()
	const swallow = `create function swallow() returns trigger language plpgsql as 'begin if new.consumer_id = ''einmal'' then return new; end if; %s end';
		create trigger swallow before insert on processed_event for each row execute function swallow()`
	for name, sql := range map[string]string{
		"trigger that answers null":         fmt.Sprintf(swallow, "return null;"),
		"trigger that writes elsewhere":     "create table other (like processed_event including all) inherits (processed_event); " + fmt.Sprintf(swallow, "insert into other (event_id, consumer_id) values (new.event_id, new.consumer_id); return null;"),
		"trigger that changes the consumer": fmt.Sprintf(swallow, "new.consumer_id := ''another''; return new;"),
		"trigger that changes the id":       fmt.Sprintf(swallow, "new.event_id := lower(new.event_id); return new;"),
	} {
		for _, doNothing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, DoNothing %v", name, doNothing), func(t *testing.T) {
				t.Parallel()
				db := open(t)
				store := pgxstore.New(db.Pool, &pgxstore.Config{DoNothing: doNothing})
				if ran, err := store.Once(t.Context(), key("before"), writes("before")); !ran || err != nil {
					t.Fatalf("Once() = %v, %v", ran, err)
				}
				db.exec("insert into processed_event (event_id, consumer_id) values ('Fresh', 'another')") // which says nothing of this one
				db.exec(sql)
				if err := store.Check(t.Context()); err != nil {
					t.Fatalf("the probe meets it: %v", err)
				}
				for _, event := range []string{"Fresh", "fRESH"} {
					ran, err := store.Once(t.Context(), key(event), writes(event))
					if ran || dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "trigger") {
						t.Errorf("%s: Once() = %v, %v, want an error that names triggers", event, ran, err)
					}
				}
				if n := db.Effects(); n != 1 {
					t.Errorf("%d effects, want the one from before", n)
				}
				if ran, err := store.Once(t.Context(), key("before"), writes("before")); ran || err != nil {
					t.Errorf("what was recorded before: Once() = %v, %v", ran, err)
				}
				db.exec("alter table processed_event disable trigger swallow")
				for _, want := range []bool{true, false} {
					if ran, err := store.Once(t.Context(), key("Fresh"), writes("fresh")); ran != want || err != nil {
						t.Errorf("without the trigger: Once() = %v, %v, want %v", ran, err, want)
					}
				}
			})
		}
	}
}

// A record that row-level security hides is there, and was not seen: that is no repetition either.
func TestRecordIsHidden(t *testing.T) {
	t.Parallel()
	db := open(t)
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	db.exec("create role " + role + "; grant usage on schema " + db.Database.Schema + " to " + role + "; grant select, insert, update on processed_event to " + role + `;
		alter table processed_event enable row level security;
		create policy p on processed_event to ` + role + ` using (event_id not like 'hidden%') with check (true)`)
	t.Cleanup(func() { db.drop(role) })
	if ran, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("hidden"), writes("hidden")); !ran || err != nil {
		t.Fatalf("the owner: Once() = %v, %v", ran, err)
	}
	for _, doNothing := range []bool{false, true} {
		store := pgxstore.New(db.pool(as(role)), &pgxstore.Config{DoNothing: doNothing})
		if err := store.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		ran, err := store.Once(t.Context(), key("hidden"), writes("again"))
		if ran || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("DoNothing %v: Once() = %v, %v", doNothing, ran, err)
		}
	}
}

// A trigger of the table that raises the error of a bad value does not make the ids bad.
func TestTriggerRaisesABadValue(t *testing.T) {
	t.Parallel()
	for name, raise := range map[string]string{
		"cast":  "perform ''x''::int;",
		"raise": "raise exception using errcode = ''22000'', message = new.event_id;",
		"check": "raise check_violation;",
	} {
		db := open(t)
		store := pgxstore.New(db.Pool, nil)
		if err := store.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		db.exec(`create function bad() returns trigger language plpgsql as 'begin ` + raise + ` return new; end';
			create trigger bad before insert on processed_event for each row execute function bad()`)
		_, err := store.Once(t.Context(), key("the id"), writes("e"))
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || errors.Is(err, dedupstore.ErrInvalidKey) ||
			strings.Contains(err.Error(), "the id") {
			t.Errorf("%s: %v, class %v", name, err, dedupstore.ClassOf(err))
		}
	}
}

// What the columns do not take is the event's fault if it is the id, and the deployment's if it is the consumer's name.
func TestColumnsThatRefuse(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("create domain short as varchar(60) check (value not like 'no%')")
	for change, want := range map[string]dedupstore.Class{
		"alter column event_id type varchar(40)":    dedupstore.Permanent,
		"alter column event_id type short":          dedupstore.Permanent,
		"add check (event_id not like 'no%')":       dedupstore.Permanent,
		"alter column consumer_id type varchar(8)":  dedupstore.Misconfigured,
		"add check (consumer_id not like 'test/%')": dedupstore.Misconfigured,
	} {
		db.exec("drop table processed_event cascade; " + schema.Postgres.SQL(nil, schema.Dedup) +
			"; alter table processed_event " + change)
		_, err := pgxstore.New(db.Pool, nil).Once(t.Context(), key("no"+strings.Repeat("x", 40)), writes("e")) // little too long
		if dedupstore.ClassOf(err) != want {
			t.Errorf("%s: %v, class %v, want %v", change, err, dedupstore.ClassOf(err), want)
		}
		if strings.Contains(change, "consumer_id type") &&
			!strings.Contains(err.Error(), "does not take the consumer's name") {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// Where partitions are ranges of UUIDv7 ids, the events of a partition that was dropped are too old; those of one that
// was not created yet are not, and neither are ids of another kind.
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
	for _, event := range []string{of2060, uuid7(time.Now().AddDate(40, 0, 0))} {
		if _, err := once(event); !errors.Is(err, dedupstore.ErrInvalidKey) ||
			!strings.Contains(err.Error(), "ahead of the server's clock") {
			t.Errorf("an event of a producer whose clock is ahead: %v, want ErrInvalidKey", err)
		}
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

// uuid7 is an id of that time.
func uuid7(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + "-7000-8000-0123456789ab"
}

// A partition that was forgotten is no reason to give its events up, even if there are later ones, of a clock that is
// fast.
func TestPartitionWasForgotten(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.Open(t, pgtest.ByUUID))
	store := pgxstore.New(db.Pool, nil)
	if err := store.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	db.exec(`drop table part1; create table future partition of processed_event
		for values from ('02900000-0000-0000-0000-000000000000') to ('02950000-0000-0000-0000-000000000000')`)
	if ran, err := store.Once(t.Context(), key("02910000-0000-7000-8000-0123456789ab"), writes("future")); !ran ||
		err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	for _, ahead := range []time.Duration{0, 12 * time.Hour} {
		_, err := store.Once(t.Context(), key(uuid7(time.Now().Add(ahead))), writes("now"))
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured ||
			!strings.Contains(err.Error(), "create it, and the next ones") {
			t.Errorf("%v ahead: Once: %v", ahead, err)
		}
	}
	if _, err := store.Once(t.Context(), key(uuid7(time.Now().Add(-45*time.Minute))),
		writes("before")); dedupstore.ClassOf(err) != dedupstore.Misconfigured {
		t.Errorf("45 minutes ago: Once: %v, class %v", err, dedupstore.ClassOf(err))
	}
	if _, err := store.Once(t.Context(), key(uuid7(time.Now().Add(36*time.Hour))), writes("tomorrow")); !errors.Is(err,
		dedupstore.ErrInvalidKey) {
		t.Errorf("36 hours ahead: Once: %v", err)
	}
	_, err := store.Once(t.Context(), key(uuid7(time.Now().AddDate(0, 0, 30))), writes("later"))
	if !errors.Is(err, dedupstore.ErrInvalidKey) || dedupstore.ClassOf(err) != dedupstore.Permanent {
		t.Errorf("30 days ahead: Once: %v, want ErrInvalidKey", err)
	}
}

// Without a partition for today, nothing can be recorded, and the start says so.
func TestNoPartitionForToday(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.Open(t, pgtest.ByUUID))
	db.exec("drop table part1")
	store := pgxstore.New(db.Pool, nil)
	_, onceErr := store.Once(t.Context(), key("018a0000-0000-7000-8000-0123456789ab"),
		func(context.Context, pgx.Tx) error { return nil })
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if err == nil || !strings.Contains(err.Error(), "create it") || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A record whose deletion a trigger swallows, or a policy, is there, and would have the event that is published again
// taken for a repetition.
func TestForgetIsSwallowed(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, nil)
	for _, k := range []dedupstore.Key{key("e"), key("e").HandOn("1m"), key("other")} {
		if ran, err := store.Once(t.Context(), k, writes("e")); !ran || err != nil {
			t.Fatalf("Once() = %v, %v", ran, err)
		}
	}
	db.exec(`create function swallow() returns trigger language plpgsql as 'begin if old.event_id = ''e'' then return null; end if; return old; end';
		create trigger swallow before delete on processed_event for each row execute function swallow()`)
	forget := func(k dedupstore.Key) error {
		return store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error { return store.Forget(ctx, tx, k) })
	}
	if err := forget(key("e")); dedupstore.ClassOf(err) != dedupstore.Misconfigured ||
		!strings.Contains(err.Error(), "still there") {
		t.Errorf("Forget() = %v", err)
	}
	for _, k := range []dedupstore.Key{key("other"), key("none")} {
		if err := forget(k); err != nil {
			t.Errorf("%s: Forget() = %v", k.Event, err)
		}
	}
	db.exec("alter table processed_event disable trigger swallow")
	if err := forget(key("e")); err != nil {
		t.Errorf("without the trigger: Forget() = %v", err)
	}
	if n := value[int](db, "select count(*) from processed_event"); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// Where partitions are hashes, no event is too old: one for which there is no partition lacks it.
func TestNoPartitionOfAHash(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec(`drop table processed_event; create table processed_event (event_id text collate "C" not null, consumer_id text collate "C" not null,
		processed_at timestamptz not null default clock_timestamp(), duplicates integer not null default 0, primary key (event_id, consumer_id)) partition by hash (event_id);
		create table part0 partition of processed_event for values with (modulus 2, remainder 0)`)
	store := pgxstore.New(db.Pool, &pgxstore.Config{DoNothing: true})
	took, refused := 0, 0
	for i := range 50 {
		switch ran, err := store.Once(t.Context(), key(uuid7(time.Now().Add(-time.Duration(i+1)*day))),
			func(context.Context, pgx.Tx) error { return nil }); {
		case ran:
			took++
		case dedupstore.ClassOf(err) == dedupstore.Misconfigured:
			refused++
		default:
			t.Errorf("Once() = %v, %v, class %v", ran, err, dedupstore.ClassOf(err))
		}
	}
	if took == 0 || refused == 0 {
		t.Errorf("%d were taken, and %d refused", took, refused)
	}
}

const day = 24 * time.Hour

// A table that refuses the probe's id would refuse each event, and blames none.
func TestProbeIsRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("alter table processed_event add check (event_id like 'order-%')")
	store := pgxstore.New(db.Pool, nil)
	_, onceErr := store.Once(t.Context(), key("order-1"), writes("order-1"))
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "it was a probe") {
			t.Errorf("%s: %v, class %v", what, err, dedupstore.ClassOf(err))
		}
	}
}
