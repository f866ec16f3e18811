package relay_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

// nearer makes a schema that comes before that of the tables in the search_path of the URL that it returns.
func nearer(t testing.TB, f *tabletest.Fixture) (name, at string) {
	t.Helper()
	u, err := url.Parse(f.URL)
	must(t, err)
	query := u.Query()
	home := query.Get("search_path")
	name = home + "_nearer"
	f.MustExec("create schema " + name)
	t.Cleanup(func() { _, _ = f.Exec(context.Background(), "drop schema "+name+" cascade") })
	query.Set("search_path", name+","+home)
	u.RawQuery = query.Encode()
	return name, u.String()
}

// B38: tables that somebody makes in a nearer schema, as a migration does after create schema with the name of the
// role, are not those of a relay that runs, nor of an operator.
func TestTablesStay(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, d := range tabletest.Drivers[:2] {
			t.Run(string(mode)+" by "+d.Name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 1)
				name, at := nearer(t, b.Fixture)
				_, db := d.Open(t, at, nil)
				op := outbox.NewOperator(db, nil)
				if list, err := op.List(t.Context(), outbox.Filter{}); err != nil || len(list) > 0 {
					t.Fatalf("%d rows, %v", len(list), err)
				}
				cfg := b.config(mode)
				cfg.Database = db
				start(t, cfg)
				b.insert("before")
				eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })

				b.MustExec(schema.Postgres.SQL(&schema.Config{Schema: name}, schema.Outbox))
				b.insert("after")
				eventually(t, "it is sent from the table of the start", func() bool { return b.rows("true") == 0 })
				must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{Topic: "missing"}))
				eventually(t, "the operator sees it", func() bool {
					list, err := op.List(t.Context(), outbox.Filter{Topic: "missing"})
					return err == nil && len(list) == 1
				})
			})
		}
	}
}

// B38: a role that may not look into the schema is told what to grant, whether the configuration names it or not.
func TestNoUsageOfTheSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	role := strings.ToLower("relay_" + rand.Text()[:10])
	b.MustExec("create role " + role)
	t.Cleanup(func() { _, _ = b.Exec(context.Background(), "drop role "+role) })
	home := tabletest.Value[string](b.Fixture, "select current_schema()::text")
	_, db := tabletest.Drivers[0].Open(t, b.URL+"&role="+role, nil)
	for _, tables := range []*schema.Config{nil, {Schema: home}} {
		cfg := b.config(outbox.SinglePhase)
		cfg.Database, cfg.Tables = db, tables
		r, err := relay.New(cfg)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, listed := outbox.NewOperator(db, tables).List(ctx, outbox.Filter{})
		for what, err := range map[string]error{"Run": r.Run(ctx), "List": listed} {
			if err == nil || !strings.Contains(err.Error(), "grant usage on schema "+home+" to "+role) {
				t.Errorf("%s with %v: %v", what, tables, err)
			}
		}
		cancel()
	}
}

// B39: what somebody leaves in a session of a shared pool changes neither what a relay sees nor what it may do, and a
// session in which nothing can be written is given up.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	type shared struct {
		db  outbox.Database
		set func(text string) error
	}
	for name, open := range map[string]func(t testing.TB, url string) shared{
		"pgx": func(t testing.TB, url string) shared {
			cfg, err := pgxpool.ParseConfig(url)
			must(t, err)
			cfg.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			must(t, err)
			t.Cleanup(pool.Close)
			return shared{pgxoutbox.NewDatabase(pool), func(text string) error {
				_, err := pool.Exec(context.WithoutCancel(t.Context()), text)
				return err
			}}
		},
		"sql": func(t testing.TB, url string) shared {
			pool := tabletest.StdlibDB(t, url)
			pool.SetMaxOpenConns(1)
			t.Cleanup(func() { _ = pool.Close() })
			return shared{sqloutbox.NewDatabase(pool), func(text string) error {
				_, err := pool.ExecContext(context.WithoutCancel(t.Context()), text)
				return err
			}}
		},
	} {
		for _, mode := range modes {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 1)
				role := blind(b.Fixture)
				pool := open(t, b.URL)
				cfg := b.config(mode)
				cfg.Database, cfg.Workers = pool.db, 1
				start(t, cfg)
				op := outbox.NewOperator(pool.db, nil)
				b.insert("first")
				eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
				for _, text := range []string{"set role " + role, "set role pg_monitor", "set search_path to ''",
					"set default_transaction_read_only = on", "set statement_timeout = '1ms'"} {
					must(t, pool.set(text))
					b.insert(text)
					eventually(t, "it is sent after "+text, func() bool { return b.rows("true") == 0 })
				}
				must(t, pool.set("set role pg_monitor"))
				eventually(t, "the operator has a session of its own role again", func() bool {
					_, err := op.List(t.Context(), outbox.Filter{})
					return err == nil
				})
			})
		}
	}
}

// blind returns a role that has all rights on the tables, and sees no row.
func blind(f *tabletest.Fixture) string {
	f.T.Helper()
	role := strings.ToLower("relay_" + rand.Text()[:10])
	f.MustExec("create role " + role)
	f.T.Cleanup(func() {
		_, _ = f.Exec(context.Background(), "drop owned by "+role)
		_, _ = f.Exec(context.Background(), "drop role "+role)
	})
	f.MustExec("grant usage on schema " + tabletest.Value[string](f, "select quote_ident(current_schema())") + " to " + role)
	f.MustExec("grant all on outbox_event, outbox_lease, outbox_mode to " + role)
	f.MustExec("alter table outbox_event enable row level security")
	return role
}
