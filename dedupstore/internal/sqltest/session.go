package sqltest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
)

// SessionIsNotHandedOn checks that what a function leaves in its session does not reach the next one, in Once, InTx and
// a group. A pooler is reached by its URL, unless that is empty.
func SessionIsNotHandedOn[Tx any](t *testing.T, driver Driver, kind Kind[Tx], pooler string) {
	t.Helper()
	db := pgtest.OpenAlone(t, pgtest.Plain)
	url := db.URL
	if pooler != "" {
		url = db.Behind(pooler)
	}
	pool := driver.Open(t, url, nil)
	t.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(1)
	for name, group := range map[string]int{"alone": 0, "in groups": 10} {
		store := kind.New(pool, &sqlstore.Config{Schema: db.Schema, Group: group})
		transactor, ok := store.(dedupstore.Transactor[Tx])
		if !ok {
			t.Fatalf("%T has no InTx", store)
		}
		inTx := transactor.InTx
		var settings string
		look := func(ctx context.Context, tx Tx) error {
			return kind.SQL(tx).QueryRowContext(ctx, pgtest.SessionSQL).Scan(&settings)
		}
		once := func(event string, fn func(ctx context.Context, tx Tx) error) {
			t.Helper()
			if ran, err := store.Once(t.Context(), dedupstore.Key{Consumer: name, Event: event}, fn); !ran || err != nil {
				t.Fatalf("%s, %s: Once() = %v, %v", name, event, ran, err)
			}
		}
		once("before", look)
		before := settings
		for _, set := range pgtest.Left(db.Role()) {
			once(set, kind.exec(set))
			if once("after "+set, look); settings != before {
				t.Errorf("%s, after %s: %q, want %q", name, set, settings, before)
			}
			if err := inTx(t.Context(), kind.exec(set)); err != nil {
				t.Fatalf("%s: InTx() = %v", set, err)
			}
			if err := inTx(t.Context(), look); err != nil || settings != before {
				t.Errorf("%s, after %s: InTx() = %v with %q, want %q", name, set, err, settings, before)
			}
		}
	}
}

// SessionThatOthersHaveChanged checks that no function runs in a session which somebody has changed past the store, in
// Once, InTx and a group: on the connection itself or, if there is a pooler, on another one that has had the same
// session of the server.
func SessionThatOthersHaveChanged[Tx any](t *testing.T, driver Driver, kind Kind[Tx], pooler string) {
	t.Helper()
	db := pgtest.OpenAlone(t, pgtest.Plain)
	url := db.URL
	if pooler != "" {
		url = db.Behind(pooler)
	}
	open := func() *sql.DB {
		pool := driver.Open(t, url, nil)
		t.Cleanup(func() { _ = pool.Close() })
		pool.SetMaxOpenConns(1)
		return pool
	}
	mine := open()
	others := mine
	if pooler != "" {
		others = open()
	}
	for name, group := range map[string]int{"alone": 0, "in groups": 10} {
		store := kind.New(mine, &sqlstore.Config{Schema: db.Schema, Group: group})
		transactor, ok := store.(dedupstore.Transactor[Tx])
		if !ok {
			t.Fatalf("%T has no InTx", store)
		}
		var settings, before string
		look := func(ctx context.Context, tx Tx) error {
			return kind.SQL(tx).QueryRowContext(ctx, pgtest.SessionSQL).Scan(&settings)
		}
		once := func(event string) error {
			ran, err := store.Once(t.Context(), dedupstore.Key{Consumer: name, Event: event}, look)
			if err == nil && !ran {
				t.Errorf("%s, %s has not run", name, event)
			}
			return err
		}
		if err := once("before"); err != nil {
			t.Fatal(err)
		}
		before = settings
		for _, set := range pgtest.Left(db.Role()) {
			for what, call := range map[string]func() error{"Once": func() error { return once("after " + set) },
				"InTx": func() error { return transactor.InTx(t.Context(), look) }} {
				if _, err := others.ExecContext(t.Context(), set); err != nil {
					t.Fatal(err)
				}
				err := call()
				if dedupstore.ClassOf(err) == dedupstore.Misconfigured { // as a role that may do nothing: it costs one attempt
					err = call()
				}
				if err != nil || settings != before {
					t.Errorf("%s, after %s: %s() = %v with %q, want %q", name, set, what, err, settings, before)
				}
			}
		}
	}
}
