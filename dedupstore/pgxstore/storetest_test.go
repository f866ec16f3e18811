package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/dedupstore/storetest"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) storetest.Harness[pgx.Tx] { return harness(open(t), mode) })
		})
	}
}

func harness(db *database, mode pgx.QueryExecMode) storetest.Harness[pgx.Tx] {
	store := func(cfg *pgxstore.Config) dedupstore.Store[pgx.Tx] { return pgxstore.New(db.pool(inMode(mode)), cfg) }
	return storetest.Harness[pgx.Tx]{
		Store:   store(nil),
		Write:   write,
		Effects: db.effectsOf,
		Other:   store(nil),
		Waiting: db.waiting,
		Spoil: map[string]func(context.Context, pgx.Tx) error{
			"statement fails": exec("select 1/0"),
			"connection lost": exec("select pg_terminate_backend(pg_backend_pid())"),
		},
		End: map[string]func(context.Context, pgx.Tx) error{
			"Commit":        func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
			"Rollback":      func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
			"COMMIT text":   exec("commit"),
			"ROLLBACK text": exec("rollback"),
			"on the Conn": func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Conn().Exec(ctx, "commit")
				return err
			},
		},
		Cut: func(_ testing.TB, at storetest.Moment) dedupstore.Store[pgx.Tx] {
			pool, dialer := db.faulty(inMode(mode))
			dialer.Break(map[storetest.Moment]faultconn.Moment{
				storetest.BeforeCommit: faultconn.BeforeCommit,
				storetest.AfterCommit:  faultconn.AfterCommit,
				storetest.CommitHangs:  faultconn.CommitHangs,
			}[at])
			return pgxstore.New(pool, &pgxstore.Config{CommitTimeout: time.Second})
		},
		Impatient: store(&pgxstore.Config{IdleTimeout: 300 * time.Millisecond}),
		Hasty:     store(&pgxstore.Config{CommitTimeout: time.Millisecond}),
	}
}

func exec(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

func (db *database) effectsOf(ctx context.Context, effect string) (n int, err error) {
	err = db.QueryRow(ctx, "select count(*) from effect where name = $1", effect).Scan(&n)
	return n, err
}

// waiting counts the sessions that wait for a transaction which wrote the same key.
func (db *database) waiting(ctx context.Context) (n int, err error) {
	err = db.QueryRow(ctx, `select count(distinct pid) from pg_locks l join pg_locks w using (pid)
		where not l.granted and l.locktype = 'transactionid' and w.relation = 'processed_event'::regclass`).Scan(&n)
	return n, err
}
