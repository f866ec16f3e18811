package pgxstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// one has a pool keep one connection, which every call gets.
func one(cfg *pgxpool.Config) { cfg.MaxConns = 1 }

// The table stays the one that it was, whatever a function leaves in its session, and whatever is created under a
// running service.
func TestTableStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ inside, outside string }{
		"search_path":         {"set search_path to elsewhere", ""},
		"two have it":         {"set search_path to elsewhere", ""},
		"search_path of none": {"set search_path to ''", ""},
		"temporary table":     {"create temporary table processed_event (like processed_event including all)", ""},
		"dropped below":       {"", "create table nearer.processed_event (like processed_event including all)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openEmpty(t)
			home := db.Database.Schema
			nearer, elsewhere := home+"_nearer", home+"_elsewhere"
			names := strings.NewReplacer("nearer", nearer, "elsewhere", elsewhere)
			db.exec("create schema " + nearer + "; create schema " + elsewhere +
				"; create table effect (name text); create table " + elsewhere + ".effect (name text);" +
				schema.Postgres.SQL(nil, schema.Dedup) + schema.Postgres.SQL(&schema.Config{Schema: elsewhere}, schema.Dedup))
			t.Cleanup(func() {
				if _, err := db.Exec(context.Background(), "drop schema "+nearer+" cascade; drop schema "+elsewhere+
					" cascade"); err != nil {
					t.Error(err)
				}
			})
			pool := db.pool(func(cfg *pgxpool.Config) {
				one(cfg)
				cfg.ConnConfig.RuntimeParams["search_path"] = nearer + "," + home
				if name == "two have it" { // the first one's
					cfg.ConnConfig.RuntimeParams["search_path"] += "," + elsewhere
				}
			})
			store := pgxstore.New(pool, nil)
			leave := func(ctx context.Context, tx pgx.Tx) error {
				if err := write(ctx, tx, "first"); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, names.Replace(c.inside))
				return err
			}
			if ran, err := store.Once(t.Context(), key("first"), leave); !ran || err != nil {
				t.Fatalf("Once() = %v, %v", ran, err)
			}
			db.exec(names.Replace(c.outside))
			if ran, err := store.Once(t.Context(), key("first"), leave); ran || err != nil {
				t.Errorf("the same event: Once() = %v, %v, want false", ran, err)
			}
			if ran, err := store.Once(t.Context(), key("second"), writes("second")); !ran || err != nil {
				t.Errorf("the next event: Once() = %v, %v", ran, err)
			}
			if records, effects := value[int](db, "select count(*) from "+home+".processed_event"), db.Effects(); records != 2 ||
				effects != 2 {
				t.Errorf("%d records and %d effects in the schema of the start, want 2 of each", records, effects)
			}
		})
	}
}

// What a function leaves in its session does not reach the next one, in Once, InTx and a group, with or without a
// pooler, whether or not it is seen at once.
func TestSessionIsNotHandedOn(t *testing.T) {
	t.Parallel()
	for name, pooler := range map[string]string{"direct": "", "pooler": serverstest.PoolerURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := use(t, pgtest.OpenAlone(t, pgtest.Plain))
			if pooler != "" {
				db.via = db.Behind(pooler)
			}
			pool := db.pool(func(cfg *pgxpool.Config) {
				one(cfg)
				inMode(pgx.QueryExecModeExec)(cfg)
			})
			store := pgxstore.New(pool, &pgxstore.Config{Schema: db.Database.Schema})
			var settings string
			look := func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, pgtest.SessionSQL).Scan(&settings) }
			once := func(event string, fn func(context.Context, pgx.Tx) error) {
				t.Helper()
				if ran, err := store.Once(t.Context(), key(event), fn); !ran || err != nil {
					t.Fatalf("%s: Once() = %v, %v", event, ran, err)
				}
			}
			once("before", look)
			before := settings
			for _, set := range pgtest.Left(db.Role()) {
				once(set, exec(set))
				if once("after "+set, look); settings != before {
					t.Errorf("after %s: %q, want %q", set, settings, before)
				}
				if err := store.InTx(t.Context(), exec(set)); err != nil {
					t.Fatalf("%s: InTx() = %v", set, err)
				}
				if err := store.InTx(t.Context(), look); err != nil || settings != before {
					t.Errorf("after %s: InTx() = %v with %q, want %q", set, err, settings, before)
				}
			}
		})
	}
}

// A function that says SET costs its own message two round trips, and nobody a connection.
func TestSettingIsSetBack(t *testing.T) {
	t.Parallel()
	db := open(t)
	pool := db.pool(one)
	store := pgxstore.New(pool, nil)
	for i := range 5 {
		for _, set := range []string{"set time zone 'Pacific/Chatham'", "SET LOCAL time zone 'Pacific/Chatham'",
			"reset search_path"} {
			if ran, err := store.Once(t.Context(), key(fmt.Sprint(set, i)), exec(set)); !ran || err != nil {
				t.Fatalf("Once() = %v, %v", ran, err)
			}
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}

// The functions of a group do not see what the ones before them have set, with or without LOCAL, in their own statement
// or in a function of the database.
func TestSessionIsNotHandedOnInAGroup(t *testing.T) {
	t.Parallel()
	db := open(t)
	role := db.Role()
	settings := append(pgtest.Left(role), "set local role "+role)
	for _, set := range settings {
		store := pgxstore.New(db.pool(one), &pgxstore.Config{Group: 10})
		look := func(into *string) func(context.Context, pgx.Tx) error {
			return func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, pgtest.SessionSQL).Scan(into) }
		}
		once := func(event string, fn func(context.Context, pgx.Tx) error) (bool, error) {
			return store.Once(t.Context(), key(event), fn)
		}
		pgtest.SessionInAGroup(t, once, func() int { return pgxstore.Waiting(store) }, set, exec, look)
	}
}

// Behind a pooler a new connection may get a session that somebody else has changed.
func TestPoolersSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.OpenAlone(t, pgtest.Plain))
	db.via = db.Behind(serverstest.PoolerURL(t))
	pool := func() *pgxpool.Pool {
		return db.pool(func(cfg *pgxpool.Config) {
			one(cfg)
			inMode(pgx.QueryExecModeExec)(cfg)
		})
	}
	mine, others := pool(), pool()
	store := pgxstore.New(mine, &pgxstore.Config{Schema: db.Database.Schema})
	var before, settings string
	look := func(into *string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, pgtest.SessionSQL).Scan(into) }
	}
	if _, err := store.Once(t.Context(), key("before"), look(&before)); err != nil {
		t.Fatal(err)
	}
	for i, set := range pgtest.Left(db.Role()) {
		if _, err := others.Exec(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		others.Reset()
		mine.Reset() // the next one is new, and knows no session
		ran, err := store.Once(t.Context(), key(fmt.Sprint("after", i)), look(&settings))
		if dedupstore.ClassOf(err) == dedupstore.Misconfigured { // as a role that may do nothing: it costs one attempt
			ran, err = store.Once(t.Context(), key(fmt.Sprint("after", i)), look(&settings))
		}
		if !ran || err != nil || settings != before {
			t.Errorf("after %s: Once() = %v, %v with %q, want %q", set, ran, err, settings, before)
		}
	}
}

// A session in which something is wrong costs one attempt, not all that come after it.
func TestSpoiledSessionIsGivenUp(t *testing.T) {
	t.Parallel()
	db := open(t)
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	db.exec("create role " + role)
	t.Cleanup(func() { db.drop(role) })
	for _, spoil := range []string{"set role " + role, "set statement_timeout = 1"} {
		pool := db.pool(one)
		store := pgxstore.New(pool, nil)
		if err := store.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), spoil); err != nil { // by somebody who is not the store
			t.Fatal(err)
		}
		conn.Release()
		hold, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hold.Exec(t.Context(), "lock table processed_event in exclusive mode"); err != nil { // so that a time-out of 1 ms passes
			t.Fatal(err)
		}
		go func() {
			pgtest.Eventually(t, "the session is given up", func() bool {
				return pool.Stat().TotalConns() == 0 ||
					pool.Stat().NewConnsCount() > 1
			})
			_ = hold.Rollback(context.WithoutCancel(t.Context()))
		}()
		ran, err := store.Once(t.Context(), key(spoil), writes(spoil))
		if err != nil && dedupstore.ClassOf(err) == dedupstore.Unclassified {
			t.Errorf("%s: %v, which is nobody's fault", spoil, err)
		}
		if !ran {
			if ran, err := store.Once(t.Context(), key(spoil), writes(spoil)); !ran || err != nil {
				t.Errorf("%s: the next attempt: %v, %v", spoil, ran, err)
			}
		}
	}
}

// What the function's own statements meet is the event's fault, or not, wherever it happens; a deploy before its
// migration makes no dead letters.
func TestWhoseFaultAStatementIs(t *testing.T) {
	t.Parallel()
	db := open(t)
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	db.exec("create table secret (n int); create role " + role + "; grant usage on schema " + db.Database.Schema + " to " +
		role +
		"; grant select, insert, update on processed_event to " + role +
		"; create table strict (n int not null check (n > 0))")
	t.Cleanup(func() { db.drop(role) })
	store := pgxstore.New(db.pool(func(cfg *pgxpool.Config) { one(cfg); as(role)(cfg) }), nil)
	db.exec("grant insert on strict to " + role)
	for sql, want := range map[string]dedupstore.Class{
		"insert into missing values (1)":                       dedupstore.Misconfigured,
		"select missing from strict":                           dedupstore.Misconfigured,
		"select missing()":                                     dedupstore.Misconfigured,
		"insert into missing.t values (1)":                     dedupstore.Misconfigured,
		"insert into secret values (1)":                        dedupstore.Misconfigured,
		"set local statement_timeout = 20; select pg_sleep(9)": dedupstore.Transient,
		"insert into strict values (0)":                        dedupstore.Unclassified,
		"insert into strict values (null)":                     dedupstore.Unclassified,
		"insert into strict values ('x')":                      dedupstore.Unclassified,
		"select 1/0":                                           dedupstore.Unclassified,
		"do $$ begin raise 'no stock'; end $$":                 dedupstore.Unclassified,
	} {
		for name, call := range map[string]func(fn func(context.Context, pgx.Tx) error) error{
			"Once": func(fn func(context.Context, pgx.Tx) error) error {
				_, err := store.Once(t.Context(), key(sql), fn)
				return err
			},
			"InTx": func(fn func(context.Context, pgx.Tx) error) error { return store.InTx(t.Context(), fn) },
		} {
			if err := call(exec(sql)); err == nil || dedupstore.ClassOf(err) != want {
				t.Errorf("%s: %s: %v, class %v, want %v", name, sql, err, dedupstore.ClassOf(err), want)
			}
		}
	}
}

// A plan that does not fit the table any more is the deployment's fault, and gone with its connection.
func TestPlanThatChanged(t *testing.T) {
	t.Parallel()
	db := open(t)
	pool := db.pool(one)
	store := pgxstore.New(pool, nil)
	db.exec("create table plan (n int)")
	fn := func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Prepare(ctx, "kept", "table plan"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "kept")
		return err
	}
	if ran, err := store.Once(t.Context(), key("before"), fn); !ran || err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	db.exec("alter table plan add column m int")
	_, err := store.Once(t.Context(), key("after"), fn)
	if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "0A000") {
		t.Errorf("Once: %v, class %v", err, dedupstore.ClassOf(err))
	}
	if ran, err := store.Once(t.Context(), key("after"), fn); !ran || err != nil {
		t.Errorf("the next attempt: Once() = %v, %v", ran, err)
	}
}

// Behind a pooler a statement that a function has prepared by its name is another client's, or gone. That is the
// deployment's fault, says what to do, and costs one attempt.
func TestStatementsThatAPoolerMixesUp(t *testing.T) {
	t.Parallel()
	db := use(t, pgtest.OpenAlone(t, pgtest.Plain))
	db.via = db.Behind(serverstest.PoolerURL(t))
	pool := func() *pgxpool.Pool {
		return db.pool(func(cfg *pgxpool.Config) {
			one(cfg)
			inMode(pgx.QueryExecModeExec)(cfg)
		})
	}
	mine, other := pool(), pool()
	store := pgxstore.New(mine, &pgxstore.Config{Schema: db.Database.Schema})
	meet := func(code string, fn func(context.Context, pgx.Tx) error) {
		t.Helper()
		_, err := store.Once(t.Context(), key(code), fn)
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), code) ||
			!strings.Contains(err.Error(), "default_query_exec_mode=exec") {
			t.Errorf("%s: %v, class %v", code, err, dedupstore.ClassOf(err))
		}
	}
	if _, err := other.Exec(t.Context(), "prepare kept as select 1"); err != nil {
		t.Fatal(err)
	}
	meet("42P05", exec("prepare kept as select 1"))
	if ran, err := store.Once(t.Context(), key("42P05"), exec("prepare kept as select 1")); !ran || err != nil {
		t.Errorf("the next attempt: Once() = %v, %v", ran, err)
	}
	if _, err := other.Exec(t.Context(), "deallocate kept"); err != nil {
		t.Fatal(err)
	}
	meet("26000", exec("execute kept"))
}
