package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/sqltest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/schematest"
	"github.com/einmal-go/einmal/schema"
)

func key(event string) dedupstore.Key { return dedupstore.Key{Consumer: "test/consumer", Event: event} }

func writes(effect string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into effect (name) values ($1)", effect)
		return err
	}
}

// What is wrong with the table is found at the start, with the SQL to run where that is enough.
func TestSQLiteCheck(t *testing.T) {
	t.Parallel()
	const columns = "processed_at text, duplicates integer not null default 0"
	for name, c := range map[string]struct{ instead, says string }{
		"no table":        {"", "does not exist"},
		"a view":          {"create view processed_event as select 1", "it is a view"},
		"missing counter": {"create table processed_event (event_id text, consumer_id text, processed_at text, primary key (event_id, consumer_id))", "column duplicates is missing"},
		"missing time":    {"create table processed_event (event_id text, consumer_id text, duplicates integer default 0, primary key (event_id, consumer_id))", "column processed_at is missing"},
		"no key": {"create table processed_event (event_id text, consumer_id text, " + columns + ")",
			"no unique index"},
		"wide key": {"create table processed_event (event_id text, consumer_id text, " + columns +
			", primary key (event_id, consumer_id, processed_at))", "no unique index"},
		"partial key": {"create table processed_event (event_id text, consumer_id text, " + columns +
			"); create unique index i on processed_event (event_id, consumer_id) where duplicates = 0", "no unique index"},
		"narrow key beside": {"create table processed_event (event_id text, consumer_id text, " + columns +
			", primary key (event_id, consumer_id)); create unique index narrow on processed_event (event_id)",
			`index "narrow" takes different events`},
		"folding collation": {"create table processed_event (event_id text collate nocase, consumer_id text, " + columns +
			", primary key (event_id, consumer_id))", "does not compare byte by byte"},
		"number for an id": {"create table processed_event (event_id numeric, consumer_id text, " + columns +
			", primary key (event_id, consumer_id))", "column event_id is of type numeric"},
		"integer for an id": {"create table processed_event (event_id bigint, consumer_id text, " + columns +
			", primary key (event_id, consumer_id))", "column event_id is of type bigint"},
		"varchar, blob, none": {"create table processed_event (event_id varchar(9), consumer_id blob, " + columns +
			", primary key (event_id, consumer_id))", ""},
		"unrelated index": {"create table processed_event (id integer primary key, event_id text, consumer_id, " +
			columns + ", unique (consumer_id, event_id))", ""},
		"trigger that ignores": {"create table processed_event (event_id text, consumer_id text, " + columns +
			", primary key (event_id, consumer_id)); create trigger i before insert on processed_event begin select raise(ignore); end", "trigger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sqltest.NewFile(t)
			f.Run("drop table processed_event; " + c.instead)
			err := sqlstore.New(f.DB, schema.SQLite, nil).Check(t.Context())
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) ||
				dedupstore.ClassOf(err) != dedupstore.Misconfigured) {
				t.Fatalf("Check: %v, want %q", err, c.says)
			}
			if err == nil {
				return
			}
			if _, sql, ok := strings.Cut(schematest.Printed(err.Error()), "run:"); ok && !strings.Contains(c.instead, "view") {
				sql, _, _ = strings.Cut(sql, "; its ") // the next problem
				f.Run(sql)
				if err := sqlstore.New(f.DB, schema.SQLite, nil).Check(t.Context()); err != nil {
					t.Errorf("after the remedy: %v", err)
				}
			}
		})
	}
}

func TestSQLiteNeedsABusyTimeout(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	err := sqlstore.New(f.Open(0), schema.SQLite, nil).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "busy_timeout") {
		t.Errorf("Check: %v", err)
	}
}

func TestSQLiteWithAnotherTable(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	const name = `seen "by" us`
	f.Run("drop table processed_event; " +
		schema.SQLite.SQL(&schema.Config{Tables: map[string]string{"processed_event": name}}, schema.Dedup))
	store := sqlstore.New(f.DB, schema.SQLite, &sqlstore.Config{Table: name})
	if err := store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false, false} {
		if ran, err := store.Once(t.Context(), key("e"), writes("e")); ran != want || err != nil {
			t.Errorf("Once() = %v, %v, want %v", ran, err, want)
		}
	}
	if n := f.Count(`select duplicates from "seen ""by"" us"`); n != 2 {
		t.Errorf("%d redeliveries were counted, want 2", n)
	}
}

// The table's own checks may refuse a key. No attempt cures that, and nothing repeats the id.
func TestSQLiteRefusesAKey(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	f.Run(`drop table processed_event; create table processed_event (event_id text check (length(event_id) > 3 and event_id not like '%secret%'), consumer_id text,
		processed_at text, duplicates integer not null default 0, primary key (event_id, consumer_id))`)
	store := sqlstore.New(f.DB, schema.SQLite, nil)
	_, err := store.Once(t.Context(), key("the secret id"), writes("e"))
	if !errors.Is(err, dedupstore.ErrInvalidKey) || strings.Contains(err.Error(), "secret id") {
		t.Errorf("Once: %v, want ErrInvalidKey", err)
	}
}

// Writers of everything wait for each other, not only those of one key: 32 at once lose nothing.
func TestSQLiteManyWriters(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	store := sqlstore.New(f.Open(60_000), schema.SQLite, nil)
	var all sync.WaitGroup
	for w := range 32 {
		all.Go(func() {
			for i := range 10 {
				effect := fmt.Sprint(w, " ", i)
				if ran, err := store.Once(t.Context(), key(effect), writes(effect)); !ran || err != nil {
					t.Errorf("Once() = %v, %v", ran, err)
				}
			}
		})
	}
	all.Wait()
	if n := f.Count("select count(*) from effect"); n != 320 {
		t.Errorf("%d effects, want 320", n)
	}
}

// In SQLite a failed statement takes back itself only. What the function confines to it is no failure.
func TestSQLiteStatementFails(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	f.Run("create table one (name text unique); insert into one values ('taken')")
	ran, err := sqlstore.New(f.DB, schema.SQLite, nil).Once(t.Context(), key("e"),
		func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "insert into one values ('taken')"); err == nil {
				t.Error("the constraint is not there")
			}
			return writes("e")(ctx, tx)
		})
	if !ran || err != nil || f.Count("select count(*) from effect") != 1 {
		t.Errorf("Once() = %v, %v", ran, err)
	}
}

// A function that ends the transaction and fails afterwards has not simply failed: the next attempt would find its
// record.
func TestSQLiteEndedAndFailed(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	own := errors.New("own")
	for name, end := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"Commit": func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"COMMIT": func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "commit")
			return err
		},
	} {
		_, err := sqlstore.New(f.DB, schema.SQLite, nil).Once(t.Context(), key(name),
			func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(end(ctx, tx), own)
			})
		if !errors.Is(err, dedupstore.ErrTxEnded) || !errors.Is(err, own) || dedupstore.ClassOf(err) != dedupstore.Permanent {
			t.Errorf("%s: %v, want both errors", name, err)
		}
	}
}

// What the function's own statements meet is the event's fault, or not, by the table of docs/failures.md.
func TestWhoseFaultAStatementIsInSQLite(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	f.Run(`create table strict (n integer not null check (n > 0), u text unique) strict; insert into strict values (1, 'taken');
		create table refusing (n); create trigger refuse before insert on refusing begin select raise(abort, 'no'); end`)
	pool := f.Open(50)
	for text, want := range map[string]dedupstore.Class{
		"insert into missing values (1)":             dedupstore.Misconfigured,
		"insert into main.missing values (1)":        dedupstore.Misconfigured,
		"insert into strict (missing) values (1)":    dedupstore.Misconfigured,
		"select missing from strict":                 dedupstore.Misconfigured,
		"select missing()":                           dedupstore.Misconfigured,
		"pragma query_only = on; delete from strict": dedupstore.Misconfigured,
		"insert into strict values (0, 'a')":         dedupstore.Unclassified,
		"insert into strict values (null, 'a')":      dedupstore.Unclassified,
		"insert into strict values (2, 'taken')":     dedupstore.Unclassified,
		"insert into strict values ('text', 'a')":    dedupstore.Unclassified,
		"insert into refusing values (1)":            dedupstore.Unclassified,
		"select from":                                dedupstore.Unclassified,
		"select json('{')":                           dedupstore.Unclassified,
	} {
		store := sqlstore.New(pool, schema.SQLite, nil)
		pool.SetMaxIdleConns(0) // no connection keeps what a pragma has set
		exec := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}
		_, onceErr := store.Once(t.Context(), key(text), exec)
		for what, err := range map[string]error{"Once": onceErr, "InTx": store.InTx(t.Context(), exec)} {
			if err == nil || dedupstore.ClassOf(err) != want {
				t.Errorf("%s: %s: %v, class %v, want %v", what, text, err, dedupstore.ClassOf(err), want)
			}
		}
	}
	full := f.Open(50)
	full.SetMaxOpenConns(1)
	_, err := sqlstore.New(full, schema.SQLite, nil).Once(t.Context(), key("full"),
		func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "pragma max_page_count = 1; insert into effect values (hex(zeroblob(100000)))")
			return err
		})
	if dedupstore.ClassOf(err) != dedupstore.Unavailable {
		t.Errorf("a full disk: %v, class %v", err, dedupstore.ClassOf(err))
	}
}

// What refuses the record is the deployment's fault, whichever event it is, unless it is about the event's id.
func TestWhoseFaultARecordIsInSQLite(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]dedupstore.Class{
		"alter table processed_event rename to seen":                                                                          dedupstore.Misconfigured,
		"alter table processed_event drop column duplicates":                                                                  dedupstore.Misconfigured,
		"alter table processed_event add column tenant text not null default (null)":                                          dedupstore.Misconfigured,
		"create trigger refuse before insert on processed_event begin select raise(abort, 'no'); end":                         dedupstore.Misconfigured,
		"create trigger refuse before insert on processed_event begin select raise(ignore); end":                              dedupstore.Misconfigured,
		"create trigger refuse before insert on processed_event when new.event_id = 'e' begin select raise(abort, 'no'); end": dedupstore.Misconfigured,
		"alter table processed_event add column later text check (length(event_id) > 3)":                                      dedupstore.Permanent,
		"alter table processed_event add column later text check (consumer_id <> 'test/consumer')":                            dedupstore.Misconfigured,
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			f := sqltest.NewFile(t)
			store := sqlstore.New(f.DB, schema.SQLite, nil)
			if err := store.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.Run(change)
			for range 2 {
				ran, err := store.Once(t.Context(), key("e"), writes("e"))
				if ran || dedupstore.ClassOf(err) != want {
					t.Errorf("Once() = %v, %v, class %v, want %v", ran, err, dedupstore.ClassOf(err), want)
				}
			}
			if n := f.Count("select count(*) from effect"); n != 0 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// A record that a trigger takes away again is found at the start.
func TestRecordIsTakenAwayInSQLite(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	f.Run("create trigger swallow after insert on processed_event begin delete from processed_event; end")
	store := sqlstore.New(f.DB, schema.SQLite, nil)
	_, onceErr := store.Once(t.Context(), key("e"), writes("e"))
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "trigger") {
			t.Errorf("%s: %v, class %v", what, err, dedupstore.ClassOf(err))
		}
	}
}

// A record whose deletion a trigger swallows is there, and would have the event that is published again taken for a
// repetition.
func TestForgetIsSwallowedInSQLite(t *testing.T) {
	t.Parallel()
	f := sqltest.NewFile(t)
	store := sqlstore.New(f.DB, schema.SQLite, nil)
	if ran, err := store.Once(t.Context(), key("e"), func(context.Context, *sql.Tx) error { return nil }); !ran ||
		err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	forget := func() error {
		return store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return store.Forget(ctx, tx, key("e")) })
	}
	f.Run("create trigger swallow before delete on processed_event begin select raise(ignore); end")
	if err := forget(); dedupstore.ClassOf(err) != dedupstore.Misconfigured ||
		!strings.Contains(err.Error(), "still there") {
		t.Errorf("Forget() = %v", err)
	}
	f.Run("drop trigger swallow")
	for range 2 {
		if err := forget(); err != nil {
			t.Errorf("without the trigger: Forget() = %v", err)
		}
	}
	if ran, err := store.Once(t.Context(), key("e"), func(context.Context, *sql.Tx) error { return nil }); !ran ||
		err != nil {
		t.Errorf("Once() = %v, %v", ran, err)
	}
}
