package pgxstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/schematest"
)

// Check and Once say what is missing, and after the SQL that they show, both pass.
func TestMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm string
		says string
	}{
		"table":             {"drop table processed_event", "does not exist"},
		"column":            {"alter table processed_event drop duplicates", "column duplicates is missing"},
		"primary key":       {"alter table processed_event drop constraint processed_event_pkey", "no unique index"},
		"usable index":      {"alter table processed_event drop constraint processed_event_pkey, add unique (event_id, consumer_id) deferrable", "is deferrable"},
		"index of all":      {"alter table processed_event drop constraint processed_event_pkey; create unique index on processed_event (event_id, consumer_id) where duplicates = 0", "no unique index"},
		"index of the two":  {"alter table processed_event drop constraint processed_event_pkey; create unique index on processed_event (event_id, consumer_id, processed_at)", "no unique index"},
		"deferrable beside": {"alter table processed_event add unique (event_id, consumer_id) deferrable", "is deferrable"},
		"key of one":        {"alter table processed_event drop constraint processed_event_pkey; create unique index on processed_event (event_id)", "no unique index"},
		"several": {"alter table processed_event drop constraint processed_event_pkey, drop duplicates",
			"no unique index"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			store := pgxstore.New(db.Pool, nil)
			db.exec(c.harm)
			_, onceErr := store.Once(t.Context(), key("secret"), writes("e"))
			for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("%s: %v, want an error that says %q", what, err, c.says)
				}
			}
			db.exec(remedy(store.Check(t.Context())))
			if err := store.Check(t.Context()); err != nil {
				t.Errorf("after the remedy: Check: %v", err)
			}
			if ran, err := store.Once(t.Context(), key("secret"), writes("e")); !ran || err != nil {
				t.Errorf("after the remedy: Once() = %v, %v", ran, err)
			}
		})
	}
}

// remedy cuts the SQL out of an error.
func remedy(err error) (sql string) {
	if strings.Contains(err.Error(), ";;") {
		return "two semicolons are no SQL"
	}
	for _, part := range strings.Split(schematest.Printed(err.Error()), "run:")[1:] {
		end := strings.LastIndex(part, ";")
		for _, next := range []string{"; it ", "; its "} { // the next problem
			if i := strings.Index(part, next); i >= 0 {
				end = min(end, i)
			}
		}
		sql += part[:end+1]
	}
	return sql
}

// Types and collations that take different ids for the same would lose events.
func TestLossyColumns(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, nil)
	schema := value[string](db, "select current_schema()")
	db.exec("create collation folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
	for typ, fine := range map[string]bool{
		"text": true, "varchar": true, "varchar(1024)": true, "varchar(36)": false, `text collate "en-x-icu"`: true,
		"uuid":      true,
		"char(100)": false, "name": false, "text collate " + schema + ".folding": false,
	} {
		db.exec("truncate processed_event")
		db.exec("alter table processed_event alter event_id type " + typ + " using null::" + typ)
		err := store.Check(t.Context())
		if (err == nil) != fine {
			t.Errorf("event_id %s: Check: %v, want fine %v", typ, err, fine)
		}
		if err != nil {
			db.exec(remedy(err))
			if err := store.Check(t.Context()); err != nil {
				t.Errorf("event_id %s: after the remedy: Check: %v", typ, err)
			}
		}
	}
}

// A table that is sound for the consumers of the service, and for nobody else, is tried with one of those. Where it is
// tried with another one, the error says so.
func TestTablesOfCertainConsumers(t *testing.T) {
	t.Parallel()
	const columns = `create table processed_event (event_id text collate "C" not null, consumer_id text collate "C" not null,
		processed_at timestamptz not null default clock_timestamp(), duplicates integer not null default 0, primary key (event_id, consumer_id)`
	for name, create := range map[string]string{
		"list":  columns + `) partition by list (consumer_id); create table one partition of processed_event for values in ('billing')`,
		"check": columns + `, check (consumer_id = 'billing'))`,
		"foreign key": `create table service (name text collate "C" primary key); insert into service values ('billing'); ` +
			columns + `, foreign key (consumer_id) references service (name))`,
		"policy": columns + `); alter table processed_event enable row level security, force row level security; create policy own on processed_event using (consumer_id = 'billing')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openEmpty(t)
			db.exec(create)
			pool := db.Pool
			if name == "policy" { // which a superuser does not meet
				role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
				db.exec("create role " + role + "; grant usage on schema " + value[string](db, "select current_schema()") + " to " +
					role + "; grant select, insert, update on processed_event to " + role)
				t.Cleanup(func() {
					if _, err := db.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
						t.Error(err)
					}
				})
				pool = db.pool(func(cfg *pgxpool.Config) {
					cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
						_, err := c.Exec(ctx, "set role "+role)
						return err
					}
				})
			}
			for of, fine := range map[string]bool{"": false, "shipping": false, "billing": true} {
				err := pgxstore.New(pool, nil).Check(dedupstore.WithKey(t.Context(), dedupstore.Key{Consumer: of}))
				if fine && err != nil {
					t.Errorf("for billing: %v", err)
				}
				if !fine && (err == nil || !strings.Contains(err.Error(), "it was a probe") ||
					dedupstore.ClassOf(err) != dedupstore.Misconfigured) {
					t.Errorf("for %q: %v (%v), want an error that says that it was a probe", of, err, dedupstore.ClassOf(err))
				}
			}
			store := pgxstore.New(pool, nil)
			ctx := dedupstore.WithKey(t.Context(), dedupstore.Key{Consumer: "billing", Event: "e"}) // as Dedup does
			if ran, err := store.Once(ctx, dedupstore.Key{Consumer: "billing", Event: "e"},
				func(context.Context, pgx.Tx) error { return nil }); err != nil || !ran {
				t.Errorf("Once() = %v, %v", ran, err)
			}
		})
	}
}

func TestNotATable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ create, says string }{
		{"create view processed_event as select", "it is a view"},
		{"create materialized view processed_event as select", "it is a view"},
	} {
		db := openEmpty(t)
		db.exec(c.create)
		store := pgxstore.New(db.Pool, nil)
		_, onceErr := store.Once(t.Context(), key("e"), writes("e"))
		for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
			if err == nil || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "einmal schema print -db postgres") {
				t.Errorf("%s: %v, want an error that says %q", what, err, c.says)
			}
		}
	}
}

func TestMissingSchema(t *testing.T) {
	t.Parallel()
	db := openEmpty(t)
	name := "missing " + rand.Text()
	store := pgxstore.New(db.Pool, &pgxstore.Config{Schema: name})
	err := store.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), `create schema "`+name+`"`) {
		t.Fatalf("Check: %v", err)
	}
	t.Cleanup(func() {
		_, _ = db.Exec(context.Background(), "drop schema if exists "+pgx.Identifier{name}.Sanitize()+" cascade")
	})
	db.exec(remedy(err))
	if err := store.Check(t.Context()); err != nil {
		t.Errorf("after the remedy: Check: %v", err)
	}
}

func TestMissingPrivileges(t *testing.T) {
	t.Parallel()
	db := open(t)
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	db.exec("create role " + role)
	t.Cleanup(func() {
		if _, err := db.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	pool := db.pool(func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "set role "+role)
			return err
		}
	})
	store := pgxstore.New(pool, nil)
	for _, c := range []struct{ grant, says string }{
		{"select 1", "run: grant usage on schema"}, // what may not be seen is not found by the search_path
		{"grant usage on schema " + value[string](db, "select current_schema()") + " to " + role, "may not insert"},
		{"grant select, insert on processed_event to " + role, "may not update"},
		{"revoke all on processed_event from " + role +
			"; grant insert (event_id), update (duplicates), select on processed_event to " + role, "42501"},
		{"grant select, insert, update on processed_event to " + role, ""},
		{"revoke all on processed_event from " + role +
			"; grant insert (event_id, consumer_id), update (duplicates), select on processed_event to " + role, ""},
	} {
		db.exec(c.grant)
		err := store.Check(t.Context())
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("after %s: Check: %v, want %q", c.grant, err, c.says)
		}
		if err != nil && dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("after %s: Check: %v, class %v", c.grant, err, dedupstore.ClassOf(err))
		}
		_, err = store.Once(t.Context(), key(c.grant), func(context.Context, pgx.Tx) error { return nil })
		if (err == nil) != (c.says == "") {
			t.Errorf("after %s: Once: %v", c.grant, err)
		}
	}
}

// A schema of the role's own name, which the search_path has as "$user", is one that may lack USAGE too.
func TestMissingUsageOfTheRolesOwnSchema(t *testing.T) {
	t.Parallel()
	db := open(t)
	role := "einmal_" + strings.ToLower(rand.Text())
	db.exec("create role " + role + "; create schema " + role + "; create table " + role +
		".processed_event (like processed_event including all)")
	t.Cleanup(func() {
		if _, err := db.Exec(context.Background(), "drop schema "+role+" cascade; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	store := pgxstore.New(db.pool(func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, `set role `+role+`; set search_path to "$user"`)
			return err
		}
	}), nil)
	_, onceErr := store.Once(t.Context(), key("e"), func(context.Context, pgx.Tx) error { return nil })
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if err == nil || !strings.Contains(err.Error(), "run: grant usage on schema "+role+" to "+role) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A session on a server that has become a replica is given up, so that the pool finds the primary.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	db := open(t)
	pool := db.pool(func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	store := pgxstore.New(pool, nil)
	readOnly := func() {
		if _, err := pool.Exec(t.Context(), "set default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
	}
	readOnly()
	if err := store.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Check: %v", err)
	}
	if ran, err := store.Once(t.Context(), key("before"), writes("before")); !ran || err != nil {
		t.Fatalf("Check has not given up the session: Once() = %v, %v", ran, err)
	}
	readOnly()
	if _, err := store.Once(t.Context(), key("e"), writes("e")); err == nil ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("Once: %v", err)
	}
	if ran, err := store.Once(t.Context(), key("e"), writes("e")); !ran || err != nil {
		t.Errorf("the next call has another session: Once() = %v, %v", ran, err)
	}
}

func TestCheckCannotConnect(t *testing.T) {
	t.Parallel()
	db := openEmpty(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*pgxpool.Config)
		says   string
	}{
		"nobody listens": {func(cfg *pgxpool.Config) {
			cfg.ConnConfig.Password, cfg.ConnConfig.Host, cfg.ConnConfig.Port = "topsecret", "127.0.0.1",
				uint16(closed.Addr().(*net.TCPAddr).Port)
		}, "check the host and the port"},
		"no such user": {func(cfg *pgxpool.Config) {
			cfg.ConnConfig.User, cfg.ConnConfig.Password = "nobody "+rand.Text(), "topsecret"
		}, "check the user and the password"},
		"no such database": {func(cfg *pgxpool.Config) { cfg.ConnConfig.Database = "none " + rand.Text() },
			"check the name of the database"},
	} {
		var password string
		store := pgxstore.New(db.pool(func(cfg *pgxpool.Config) {
			c.change(cfg)
			cfg.ConnConfig.Fallbacks = nil
			password = cfg.ConnConfig.Password // empty where the server trusts everybody
		}), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := store.Check(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.says) || password != "" && strings.Contains(err.Error(), password) {
			t.Errorf("%s: Check: %v, want %q", name, err, c.says)
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	pool := openEmpty(t).Pool
	for says, store := range map[string]*pgxstore.Store{
		"the pool is nil":          pgxstore.New(nil, nil),
		"Config.LockTimeout: -1s":  pgxstore.New(pool, &pgxstore.Config{LockTimeout: -time.Second}),
		"Config.LockTimeout: 1µs":  pgxstore.New(pool, &pgxstore.Config{LockTimeout: time.Microsecond}),
		"Config.IdleTimeout: 999h": pgxstore.New(pool, &pgxstore.Config{IdleTimeout: 999 * time.Hour}),
		"Config.CommitTimeout: -1": pgxstore.New(pool, &pgxstore.Config{CommitTimeout: -1}),
		"Config.Schema: 64 bytes":  pgxstore.New(pool, &pgxstore.Config{Schema: strings.Repeat("x", 64)}),
		"Config.Schema: 1 bytes":   pgxstore.New(pool, &pgxstore.Config{Schema: "\x00"}),
	} {
		_, onceErr := store.Once(t.Context(), key("e"), writes("e"))
		for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
	}
	both := pgxstore.New(nil, &pgxstore.Config{IdleTimeout: -1}).Check(t.Context())
	if s := fmt.Sprint(both); !strings.Contains(s, "the pool is nil") || !strings.Contains(s, "IdleTimeout") {
		t.Errorf("Check does not name all that is wrong: %v", both)
	}
}

// A second unique index is not covered by ON CONFLICT: it takes the second event of a consumer for the first.
func TestNarrowIndex(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.exec("create unique index narrow on processed_event (consumer_id) where duplicates = 0")
	store := pgxstore.New(db.Pool, nil)
	if ran, err := store.Once(t.Context(), key("first"), writes("first")); !ran || err != nil {
		t.Errorf("Once() = %v, %v", ran, err)
	}
	_, onceErr := store.Once(t.Context(), key("secret"), writes("second"))
	for what, err := range map[string]error{"Check": store.Check(t.Context()), "Once": onceErr} {
		if err == nil || !strings.Contains(err.Error(), "index narrow takes different events") ||
			strings.Contains(err.Error(), "secret") || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("%s: %v", what, err)
		}
	}
	db.exec(remedy(onceErr))
	if ran, err := store.Once(t.Context(), key("secret"), writes("second")); !ran || err != nil {
		t.Errorf("after the remedy: Once() = %v, %v", ran, err)
	}
}

// A pool that the service has closed is not a server that is away.
func TestCheckOfAClosedPool(t *testing.T) {
	t.Parallel()
	pool := openEmpty(t).pool(func(*pgxpool.Config) {})
	pool.Close()
	if err := pgxstore.New(pool, nil).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "the pool was closed") || strings.Contains(err.Error(), "the port") {
		t.Errorf("%v", err)
	}
}
