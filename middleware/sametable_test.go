package middleware_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// knownStore is a store that tells where it records.
type knownStore struct {
	*store
	identity string
	err      error
}

func (s knownStore) Identity(context.Context) (string, error) { return s.identity, s.err }

// Dead letters that are recorded elsewhere than the effects would not keep a handler from running after its dead
// letter.
func TestDeadLettersAreRecordedWhereEffectsAre(t *testing.T) {
	t.Parallel()
	in := func(identity string) knownStore { return knownStore{&store{}, identity, nil} }
	dead := func(s dedupstore.Store[*tx]) consumer.Middleware { return middleware.DeadLetter(s, &cemetery{}, nil) }
	dedup := func(s dedupstore.Store[*tx]) consumer.Handler { return middleware.Dedup(s, noop, nil) }
	hidden := func(next consumer.Handler) consumer.Handler { return consumer.HandlerFunc(next.Handle) }
	const refused = "in another table (b) than the Dedup inside (a)"
	for name, c := range map[string]struct {
		topic consumer.Topic
		says  string
	}{
		"the same": {consumer.Topic{Middleware: []consumer.Middleware{dead(in("a"))}, Handler: dedup(in("a"))},
			""},
		"another": {consumer.Topic{Middleware: []consumer.Middleware{dead(in("b"))}, Handler: dedup(in("a"))},
			refused},
		"nobody knows of one": {consumer.Topic{Middleware: []consumer.Middleware{dead(&store{})}, Handler: dedup(in("a"))},
			""},
		"nobody knows of both": {consumer.Topic{Middleware: []consumer.Middleware{dead(in("b"))}, Handler: dedup(&store{})},
			""},
		"one cannot be told": {consumer.Topic{Middleware: []consumer.Middleware{dead(in(""))}, Handler: dedup(in("a"))},
			""},
		"nor the other": {consumer.Topic{Middleware: []consumer.Middleware{dead(in("b"))}, Handler: dedup(in(""))},
			""},
		"behind a link that shows nothing": {consumer.Topic{
			Middleware: []consumer.Middleware{dead(in("b")), hidden}, Handler: dedup(in("a")),
		}, refused},
		"in a branch": {consumer.Topic{
			Middleware: []consumer.Middleware{dead(in("b"))},
			Handler: middleware.Route(middleware.ByHeader("type"), map[string]consumer.Handler{
				"x": dedup(in("b")), "y": middleware.Recover()(dedup(in("a"))),
			}, nil),
		}, refused},
		"in a step": {consumer.Topic{Handler: middleware.Sequence(
			middleware.Step{Name: "x", Handler: dedup(in("a"))},
			middleware.Step{Name: "y", Middleware: []consumer.Middleware{dead(in("b"))}, Handler: dedup(in("a"))},
		)}, refused},
		"each step its own": {consumer.Topic{Handler: middleware.Sequence(
			middleware.Step{Name: "x", Middleware: []consumer.Middleware{dead(in("a"))}, Handler: dedup(in("a"))},
			middleware.Step{Name: "y", Middleware: []consumer.Middleware{dead(in("b"))}, Handler: dedup(in("b"))},
		)}, ""},
		"an error of the question": {consumer.Topic{
			Middleware: []consumer.Middleware{dead(in("a"))}, Handler: dedup(knownStore{&store{}, "a", errBase}),
		}, errBase.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			con, err := consumer.New(topics(c.topic))
			if err != nil {
				t.Fatal(err)
			}
			err = con.Check(t.Context())
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// The identity of a table is the same whatever leads to it, and that of no other table.
func TestIdentities(t *testing.T) {
	t.Parallel()
	pool, other := serverstest.Pool(t), serverstest.Pool(t)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	lite := func(file string) *sql.DB {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	file := filepath.Join(t.TempDir(), "a.db")
	for _, create := range []func() error{
		func() error { _, err := pool.Exec(t.Context(), createTables("processed_event", "second")); return err },
		func() error { _, err := other.Exec(t.Context(), createTables("processed_event")); return err },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	mem := memstore.New()
	identities := map[string][]dedupstore.Identifier{
		"a table": {
			pgxstore.New(pool, nil), pgxstore.New(pool, &pgxstore.Config{DoNothing: true}),
			sqlstore.New(db, schema.Postgres, nil),
		},
		"another table": {pgxstore.New(pool, &pgxstore.Config{Table: "second"}),
			sqlstore.New(db, schema.Postgres, &sqlstore.Config{Table: "second"})},
		"another schema": {pgxstore.New(other, nil)},
		"SQLite":         {sqlstore.New(lite(file), schema.SQLite, nil), sqlstore.New(lite(file), schema.SQLite, nil)},
		"another file":   {sqlstore.New(lite(file+"2"), schema.SQLite, nil)},
		"its own table":  {sqlstore.New(lite(file), schema.SQLite, &sqlstore.Config{Table: "second"})},
		"memory":         {mem, mem},
		"another memory": {memstore.New()},
	}
	seen := map[string]string{}
	for name, stores := range identities {
		for i, s := range stores {
			id, err := s.Identity(t.Context())
			if err != nil || id == "" {
				t.Fatalf("%s %d: %q, %v", name, i, id, err)
			}
			if before, ok := seen[id]; ok && before != name || !ok && i > 0 {
				t.Errorf("%s %d is %q, as %q is, or its first store is not", name, i, id, before)
			}
			seen[id] = name
		}
	}
	if id, err := sqlstore.New(lite(":memory:"), schema.SQLite, nil).Identity(t.Context()); id != "" || err != nil {
		t.Errorf("in memory: %q, %v, want nothing", id, err)
	}
}

func createTables(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		text.WriteString("create table " + pgx.Identifier{name}.Sanitize() + " (event_id text, consumer_id text);")
	}
	return text.String()
}
