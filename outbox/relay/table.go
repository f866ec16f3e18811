package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/internal/sqlstate"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/schema"
)

// table is the outbox in the database: its statements, and the transactions in which they run.
type table struct {
	db     outbox.Database
	mode   outbox.Mode
	config *schema.Config

	names outboxsql.Tables // where prepare has found them
	sql   *statements
	role  string // with which they were found
}

func newTable(cfg *Config) *table {
	t := &table{db: cfg.Database, mode: cfg.Mode, config: cfg.Tables}
	t.name(outboxsql.NewTables(cfg.Tables))
	return t
}

func (t *table) name(names outboxsql.Tables) { t.names, t.sql = names, newStatements(names, t.mode) }

// sqlTimeout is what a transaction may take beside Kafka's answer.
const sqlTimeout = 10 * time.Second

// lockTimeout is how long a statement waits for rows that somebody changes by hand.
const lockTimeout = time.Second

// inTx runs f in a short transaction with the usual time-outs.
func (t *table) inTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*sqlTimeout)
	defer cancel()
	return t.db.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if err := t.guard(ctx, tx, sqlTimeout); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// guard sets the time-outs of the transaction, and its role. Those of the session or the role may be shorter than
// Kafka's answer takes.
func (t *table) guard(ctx context.Context, tx outbox.Tx, idle time.Duration) error {
	args := []any{millis(idle), millis(lockTimeout), millis(sqlTimeout), t.role}
	return tx.Query(ctx, t.sql.guard, args, func(func(...any) error) error { return nil })
}

// lock locks those of the buckets that nobody else has locked, until the end of the transaction, and returns them.
func (t *table) lock(ctx context.Context, tx outbox.Tx, buckets []int64) (locked []int64, err error) {
	args := []any{outboxsql.BigintArray(buckets), t.names.Event}
	err = tx.Query(ctx, t.sql.lock, args, func(scan func(...any) error) error {
		var bucket int64
		err := scan(&bucket)
		locked = append(locked, bucket)
		return err
	})
	return locked, err
}

// prepare finds the tables, which stay those that they are now, declares the mode, and checks it.
func (t *table) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	return t.db.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		names, _, err := outboxsql.Find(ctx, tx.Query, t.config)
		if err != nil {
			return err
		}
		t.name(names)
		role := func(scan func(...any) error) error { return scan(&t.role) }
		if err := tx.Query(ctx, "select current_setting('role')", nil, role); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, t.sql.declare); err != nil {
			return t.explained(err)
		}
		if t.mode == outbox.TwoPhase {
			if _, err := tx.Exec(ctx, t.sql.seed); err != nil {
				return t.explained(err)
			}
		}
		for _, sql := range t.sql.rights {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return t.explained(err)
			}
		}
		return t.checkMode(ctx, tx)
	})
}

// checkMode returns an error that wraps ErrOtherMode if the table is sent in another mode.
func (t *table) checkMode(ctx context.Context, tx outbox.Tx) error {
	var mode string
	err := tx.Query(ctx, t.sql.mode, nil, func(scan func(...any) error) error { return scan(&mode) })
	switch {
	case err != nil:
		return err
	case mode != string(t.mode):
		return fmt.Errorf("%w: it is %s, this relay is %s: stop all relays and call SwitchMode, or set Config.Mode",
			ErrOtherMode, mode, t.mode)
	}
	return nil
}

// explained adds what to do about a table, or a right on it, that is missing.
func (t *table) explained(err error) error {
	switch sqlstate.Of(err) {
	case "42P01", "42703", "3F000":
		return fmt.Errorf("%w: einmal schema check outbox says what is missing; the tables are what this prints: einmal schema print -db postgres outbox", err)
	case "42501":
		return fmt.Errorf("%w: GRANT SELECT, INSERT, UPDATE, DELETE ON %s, %s, %s TO the relay's role",
			err, t.names.Event, t.names.Lease, t.names.Mode)
	}
	return err
}
