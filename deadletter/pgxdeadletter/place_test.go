package pgxdeadletter_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadtest"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// A dead letter that a trigger swallows was not written: its message must stay.
func TestWriteIsSwallowed(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.DeadLetter)+`; create function swallow() returns trigger language plpgsql as 'begin return null; end';
		create trigger swallow before insert on dead_message for each row execute function swallow()`); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return pgxdeadletter.New(pool, nil).Write(t.Context(), tx, &deadletter.Record{})
	})
	if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "trigger") {
		t.Errorf("Write: %v, class %v", err, dedupstore.ClassOf(err))
	}
}

// A constraint or a trigger that somebody has added is the deployment's fault: no event fares better.
func TestWriteIsRefused(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.DeadLetter)); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"alter table dead_message add added text not null",
		"alter table dead_message add check (size > 0)",
		"create function refuse() returns trigger language plpgsql as 'begin raise ''no''; end'; create trigger refuse before insert on dead_message for each row execute function refuse()",
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), change); err != nil {
				return err
			}
			return pgxdeadletter.New(pool, nil).Write(t.Context(), tx, &deadletter.Record{})
		})
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.HasPrefix(err.Error(), "pgxdeadletter: write: ") {
			t.Errorf("%s: Write: %v, class %v", change, err, dedupstore.ClassOf(err))
		}
	}
}

// The tables stay those that they were at the first use, whatever a function leaves or makes in its session.
func TestTablesStay(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Dedup, schema.DeadLetter,
		schema.CrashLoop)); err != nil {
		t.Fatal(err)
	}
	table := pgxdeadletter.New(pool, nil)
	if err := table.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{"create temporary table dead_message (like dead_message including all) on commit drop",
		"set local search_path to ''"} {
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), change); err != nil {
				return err
			}
			return table.Write(t.Context(), tx, &deadletter.Record{})
		}); err != nil {
			t.Errorf("%s: Write: %v", change, err)
		}
	}
	if n, err := table.Count(t.Context(), deadletter.Filter{}); n != 2 || err != nil {
		t.Errorf("Count() = %d, %v, want 2", n, err)
	}
}

// A role that may not look into the schema is told what to grant, at the start and at the first use.
func TestNoUsage(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	var in string
	if err := pool.QueryRow(t.Context(), "select current_schema()").Scan(&in); err != nil {
		t.Fatal(err)
	}
	role := pgx.Identifier{"einmal " + in}.Sanitize()
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.DeadLetter)+"; create role "+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "drop role "+role); err != nil {
			t.Error(err)
		}
	})
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set role "+role)
		return err
	}
	limited := newPool(t, cfg)
	for _, config := range []*pgxdeadletter.Config{nil, {Schema: in}} {
		table := pgxdeadletter.New(limited, config)
		_, countErr := table.Count(t.Context(), deadletter.Filter{})
		for what, err := range map[string]error{"Check": table.Check(t.Context()), "Count": countErr} {
			if dedupstore.ClassOf(err) != dedupstore.Misconfigured || what == "Check" &&
				!strings.Contains(err.Error(), "grant usage on schema "+in) {
				t.Errorf("%s with %v: %v, class %v", what, config, err, dedupstore.ClassOf(err))
			}
		}
	}
}

// A service that writes dead letters needs insert and nothing else, which Check knows: an operator's rights are asked
// for by schema check.
func TestCheckAsksForInsertAlone(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	var in string
	if err := pool.QueryRow(t.Context(), "select current_schema()").Scan(&in); err != nil {
		t.Fatal(err)
	}
	role := pgx.Identifier{"einmal " + in}.Sanitize()
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.DeadLetter)+"; create role "+role+
		"; grant usage on schema "+in+" to "+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set role "+role)
		return err
	}
	table := pgxdeadletter.New(newPool(t, cfg), nil)
	if err := table.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "grant insert on") ||
		strings.Contains(err.Error(), "select") {
		t.Errorf("without a right: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "grant insert on dead_message to "+role); err != nil {
		t.Fatal(err)
	}
	if err := table.Check(t.Context()); err != nil {
		t.Errorf("with insert: %v", err)
	}
}

func newPool(t *testing.T, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A session that somebody has changed past the table meets one call at most.
func TestSessionThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			var h deadtest.Harness[pgx.Tx]
			cfg, err := pgxpool.ParseConfig(deadtest.Postgres(t, &h))
			if err != nil {
				t.Fatal(err)
			}
			cfg.MaxConns, cfg.ConnConfig.DefaultQueryExecMode = 1, mode
			pool := newPool(t, cfg)
			deadtest.SessionThatOthersHaveChanged(t, func() (deadletter.Table[pgx.Tx], deadletter.Starts) {
				table := pgxdeadletter.New(pool, nil)
				return table, table.Starts()
			}, func(text string) error {
				_, err := pool.Exec(t.Context(), text)
				return err
			})
		})
	}
}
