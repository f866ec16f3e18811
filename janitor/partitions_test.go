package janitor_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// uuid7 is an id of that time.
func uuid7(at time.Time, n int) string {
	ms := at.UnixMilli()
	b := []byte{byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms), 0x70,
		byte(n >> 8), 0x80, byte(n)}
	id := hex.EncodeToString(b) + "000000000000"
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

// openRanges has the store's table, partitioned by ranges of ids of that type, without a partition.
func openRanges(t testing.TB, idType string) *database {
	t.Helper()
	db := openEmpty(t)
	db.run(`create table processed_event (event_id ` + idType + ` not null, consumer_id text collate "C" not null,
		processed_at timestamptz not null default clock_timestamp(), duplicates integer not null default 0,
		primary key (event_id, consumer_id)) partition by range (event_id)`)
	return db
}

// keepThree keeps three days, and a day's width of partitions.
func keepThree(cfg *janitor.Config) {
	cfg.Tables = []janitor.Table{{Name: "processed_event", Keep: 3 * day, Partitions: &janitor.Partitions{}}}
}

// partitions are their names and bounds.
func (db *database) partitions() []string {
	db.t.Helper()
	rows, _ := db.Query(db.t.Context(), `select c.relname || ' ' || pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'processed_event'::regclass order by 1`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		db.t.Fatal(err)
	}
	return list
}

// addPartition makes one of a day, as an operator would.
func (db *database) addPartition(name string, from time.Time) {
	db.t.Helper()
	bound := func(at time.Time) string { return uuid7(at, 0)[:13] + "-0000-0000-000000000000" }
	db.run(fmt.Sprintf("create table %s partition of processed_event for values from ('%s') to ('%s')", name, bound(from),
		bound(from.Add(day))))
}

func today() time.Time { return time.Now().UTC().Truncate(day) }

func (db *database) once(id string, fn func(context.Context, pgx.Tx) error) (ran bool, err error) {
	return pgxstore.New(db.Pool, nil).Once(db.t.Context(), dedupstore.Key{Consumer: "c", Event: id}, fn)
}

func nothing(context.Context, pgx.Tx) error { return nil }

func TestPartitionsAreCreatedAhead(t *testing.T) {
	t.Parallel()
	for _, idType := range []string{"uuid", `text collate "C"`} {
		t.Run(idType, func(t *testing.T) {
			t.Parallel()
			db := openRanges(t, idType)
			j := db.newJanitor(keepThree)
			r := sweep(t, j)
			// three days and two hours back is in the fourth day, or in the third before 2 o'clock; then today, and four ahead
			if n := len(db.partitions()); len(r.Created) != n || n < 8 || n > 9 || len(r.Dropped) != 0 {
				t.Fatalf("%+v: partitions %q", r, db.partitions())
			}
			if s := j.Status().Tables[0]; s.Created != int64(len(r.Created)) {
				t.Errorf("%+v", s)
			}
			for _, at := range []time.Duration{-3 * day, -day, 0, 4*day - time.Minute} {
				id := uuid7(time.Now().Add(at), 1)
				for _, want := range []bool{true, false} {
					if ran, err := db.once(id, nothing); err != nil || ran != want {
						t.Errorf("an event of %v from now: %v, %v", at, ran, err)
					}
				}
			}
			if r := sweep(t, j); len(r.Created)+len(r.Dropped) != 0 {
				t.Errorf("again: %+v", r)
			}
		})
	}
}

// Partitions that are wholly older are dropped, whoever made them; others stay, and what comes for the dropped ones is
// too old.
func TestOldPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	db := openRanges(t, "uuid")
	for daysAgo := 7; daysAgo >= 0; daysAgo-- {
		db.addPartition(fmt.Sprintf("mine_%d", daysAgo), today().Add(-time.Duration(daysAgo)*day))
	}
	ancient, kept := uuid7(time.Now().Add(-6*day), 1), uuid7(time.Now().Add(-2*day), 1)
	for _, id := range []string{ancient, kept, uuid7(time.Now(), 1)} {
		if ran, err := db.once(id, nothing); err != nil || !ran {
			t.Fatal(ran, err)
		}
	}
	r := sweep(t, db.newJanitor(keepThree))
	schemaName := value[string](db, "select current_schema()")
	var names []string
	for _, name := range r.Dropped {
		names = append(names, strings.TrimPrefix(name, schemaName+"."))
	}
	slices.Sort(names)
	want := []string{"mine_5", "mine_6", "mine_7"}
	if time.Since(today()) > janitor.DefaultMargin { // then the fourth day before is over by more than the margin
		want = append([]string{"mine_4"}, want...)
	}
	if !slices.Equal(names, want) || len(r.Created) != 4 {
		t.Errorf("dropped %q, want %q; created %q", names, want, r.Created)
	}
	if n := value[int](db, "select count(*) from pg_class where relname like 'mine%' and relkind = 'r' and relnamespace = current_schema()::regnamespace"); n != 8-len(want) {
		t.Errorf("%d tables are left", n)
	}
	if _, err := db.once(ancient, nothing); !errors.Is(err, dedupstore.ErrTooOld) {
		t.Errorf("an event of a dropped partition: %v, want ErrTooOld", err)
	}
	if ran, err := db.once(kept, nothing); err != nil || ran {
		t.Errorf("an event of two days ago: %v, %v, want a duplicate", ran, err)
	}
}

// The server's clock decides what is dropped and created, whatever that of the janitor's process is.
func TestPartitionsByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 30 * day, "behind": -30 * day} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openRanges(t, "uuid")
			want := sweep(t, db.newJanitor(keepThree)).Created
			before := db.partitions()
			db.addPartition("old", today().Add(-9*day))
			url, at := db.url, time.Now().Add(off)
			synctest.Test(t, func(t *testing.T) { // whose clock begins in the year 2000
				time.Sleep(time.Until(at))
				if d := time.Until(at); d < -time.Minute || d > time.Minute {
					t.Fatalf("this clock is off by %v", d)
				}
				pool := cached.open(t, url)
				defer pool.Close()
				r := sweep(t, newJanitor(t, pool, schema.Postgres, keepThree))
				if len(r.Dropped) != 1 || !strings.HasSuffix(r.Dropped[0], ".old") {
					t.Errorf("%s: dropped %q, want that which is old by the server's clock", name, r.Dropped)
				}
			})
			if after := db.partitions(); !slices.Equal(after, before) {
				t.Errorf("partitions %q, want %q", after, before)
			}
			if len(want) < 8 {
				t.Errorf("created %q", want)
			}
		})
	}
}

// A partition that is missing between others is made, and none before the first one: its records may have been dropped.
func TestGapsAreFilled(t *testing.T) {
	t.Parallel()
	db := openRanges(t, "uuid")
	for _, daysAgo := range []int{2, -2} {
		db.addPartition(fmt.Sprintf("mine_%d", daysAgo+2), today().Add(-time.Duration(daysAgo)*day))
	}
	r := sweep(t, db.newJanitor(keepThree))
	var days []string
	for _, name := range r.Created {
		days = append(days, name[strings.LastIndex(name, "event_")+6:])
	}
	var want []string
	for _, n := range []int{-1, 0, 1, 3, 4} {
		want = append(want, today().Add(time.Duration(n)*day).Format("20060102_150405"))
	}
	if !slices.EqualFunc(days, want, strings.HasPrefix) {
		t.Errorf("created %q, want %q", days, want)
	}
	if r := sweep(t, db.newJanitor(keepThree)); len(r.Created)+len(r.Dropped) != 0 {
		t.Errorf("again: %+v", r)
	}
}

// A default partition would take the events of a dropped one, and let them take effect again.
func TestDefaultPartitionKeepsAllOthers(t *testing.T) {
	t.Parallel()
	db := openRanges(t, "uuid")
	db.addPartition("mine", today().Add(-9*day))
	db.run("create table rest partition of processed_event default; insert into processed_event (event_id, consumer_id, processed_at) values ('" + uuid7(time.Now().Add(-30*day), 1) + "', 'c', now() - interval '30 days')")
	j := db.newJanitor(keepThree)
	reports, err := j.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "default partition") || !strings.Contains(err.Error(), ".rest") ||
		len(reports[0].Dropped) != 0 {
		t.Errorf("%+v, %v", reports, err)
	}
	if n := len(db.partitions()); len(reports[0].Created) < 8 || n != len(reports[0].Created)+2 {
		t.Errorf("%d partitions, created %q: the next ones must be made all the same", n, reports[0].Created)
	}
	if n := value[int](db, "select count(*) from rest"); n != 1 {
		t.Errorf("%d rows are in the default partition", n)
	}
	db.run("alter table processed_event detach partition rest")
	if r := sweep(t, j); len(r.Dropped) != 1 {
		t.Errorf("%+v", r)
	}
}

// While a partition is dropped, consumers go on, even those that come behind a transaction which takes its time.
func TestNobodyWaitsForADrop(t *testing.T) {
	t.Parallel()
	db := openRanges(t, "uuid")
	db.addPartition("mine", today().Add(-9*day))
	j := db.newJanitor(keepThree)
	entered, leave := make(chan struct{}), make(chan struct{})
	leaving := sync.OnceFunc(func() { close(leave) })
	defer leaving()
	held := make(chan error, 1)
	db.addPartition("current", today())
	go func() {
		_, err := db.once(uuid7(time.Now(), 1), func(context.Context, pgx.Tx) error {
			close(entered)
			<-leave
			return nil
		})
		held <- err
	}()
	<-entered
	swept := make(chan error, 1)
	go func() {
		_, err := j.Sweep(context.WithoutCancel(t.Context()))
		swept <- err
	}()
	eventually(t, "the partition is being detached", func() bool {
		return value[int](db, "select count(*) from pg_inherits where inhparent = 'processed_event'::regclass and inhdetachpending") == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store := pgxstore.New(db.Pool, nil)
	if ran, err := store.Once(ctx, dedupstore.Key{Consumer: "c", Event: uuid7(time.Now(), 2)}, nothing); err != nil ||
		!ran {
		t.Errorf("while it waits: %v, %v", ran, err)
	}
	if r := sweep(t, db.newJanitor(keepThree)); !r.Busy {
		t.Errorf("another janitor: %+v, want Busy", r)
	}
	leaving()
	if err := errors.Join(<-held, <-swept); err != nil {
		t.Error(err)
	}
	if s := j.Status().Tables[0]; s.Dropped != 1 {
		t.Errorf("%+v", s)
	}
}

// What a janitor left half done, because it was killed between two steps, the next one finishes.
func TestHalfDroppedPartitionsAreFinished(t *testing.T) {
	t.Parallel()
	db := openRanges(t, "uuid")
	for daysAgo := 9; daysAgo >= 7; daysAgo-- {
		db.addPartition(fmt.Sprintf("mine_%d", daysAgo), today().Add(-time.Duration(daysAgo)*day))
	}
	db.addPartition("current", today())
	mark := fmt.Sprintf("'einmal janitor: was a partition of %d, to be dropped'",
		value[uint32](db, "select 'processed_event'::regclass::oid"))
	db.run("create table bystander (a int); comment on table bystander is 'einmal janitor: was a partition of 1, to be dropped'")
	// killed after the first mark, after detaching the second, and in the midst of detaching the third
	for _, text := range []string{
		"comment on table mine_9 is " + mark, "comment on table mine_8 is " + mark, "comment on table mine_7 is " + mark,
		"alter table processed_event detach partition mine_8",
		"comment on table current is " + mark, // of a sweep that kept less: it is a partition still
	} {
		db.run(text)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select count(*) from processed_event"); err != nil {
		t.Fatal(err)
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	detached := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()),
			"alter table processed_event detach partition mine_7 concurrently")
		detached <- err
	}()
	pending := "select count(*) from pg_inherits where inhparent = 'processed_event'::regclass and inhdetachpending"
	eventually(t, "it is being detached", func() bool { return value[int](db, pending) == 1 })
	db.run("select pg_terminate_backend($1)", conn.Conn().PgConn().PID())
	if err := <-detached; err == nil {
		t.Fatal("the partition was detached")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := value[int](db, pending); n != 1 {
		t.Fatalf("%d partitions are half detached", n)
	}
	r := sweep(t, db.newJanitor(keepThree))
	if len(r.Dropped) != 3 {
		t.Errorf("%+v, want three", r)
	}
	if n := value[int](db, "select count(*) from pg_class where relname like 'mine%' and relkind = 'r' and relnamespace = current_schema()::regnamespace"); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if n := value[int](db, "select count(*) from bystander"); n != 0 {
		t.Errorf("bystander has %d rows", n)
	}
}

// What cannot be told by its bounds is nobody's to drop, and an open end needs no more partitions.
func TestPartitionsThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	db := openRanges(t, `text collate "C"`)
	db.run(`create table first partition of processed_event for values from (minvalue) to ('0170');
		create table odd partition of processed_event for values from ('a') to ('zzz');
		create table last partition of processed_event for values from ('zzz') to (maxvalue)`)
	r := sweep(t, db.newJanitor(keepThree))
	if len(r.Created) != 0 || len(r.Dropped) != 1 || !strings.HasSuffix(r.Dropped[0], ".first") {
		t.Errorf("%+v, want the first one dropped", r)
	}
	if n := len(db.partitions()); n != 2 {
		t.Errorf("partitions %q", db.partitions())
	}
}

func TestPartitionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]string{
		"plain":     schema.Postgres.SQL(nil),
		"by hash":   `create table processed_event (event_id uuid) partition by hash (event_id)`,
		"two keys":  `create table processed_event (event_id uuid, consumer_id uuid) partition by range (event_id, consumer_id)`,
		"collation": `create table processed_event (event_id text collate "en_US") partition by range (event_id)`,
		"by time":   `create table processed_event (event_id timestamptz) partition by range (event_id)`,
		"function":  `create table processed_event (event_id text collate "C") partition by range (lower(event_id))`,
		"view":      `create view processed_event as select 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openEmpty(t)
			if name == "collation" && value[int](db, "select count(*) from pg_collation where collname = 'en_US'") == 0 {
				create = strings.ReplaceAll(create, "en_US",
					value[string](db, "select collname from pg_collation where collname like 'en-%' limit 1"))
			}
			db.run(create)
			if _, err := db.newJanitor(keepThree).Sweep(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "leave out Table.Partitions") {
				t.Errorf("%v", err)
			}
		})
	}
	db := openRanges(t, "uuid")
	one := db.via(cached)
	one.SetMaxOpenConns(1)
	if _, err := newJanitor(t, one, schema.Postgres, keepThree).Sweep(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "raise SetMaxOpenConns") {
		t.Errorf("a pool of one: %v", err)
	}
}
