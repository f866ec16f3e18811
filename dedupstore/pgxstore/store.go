package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
)

// Store records keys in the table processed_event of a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	cfg     Config
	sql     statements
	places  *places
	invalid error // what is wrong with pool and cfg
}

var (
	_ dedupstore.Store[pgx.Tx] = (*Store)(nil)
	_ dedupstore.Checker       = (*Store)(nil)
)

// New returns a Store on pool, which stays the caller's to close, after the last Once has returned. It does no input or
// output. What is wrong with its arguments is the error of Check, and of every Once.
func New(pool *pgxpool.Pool, cfg *Config) *Store {
	s := &Store{pool: pool, cfg: cfg.withDefaults()}
	s.sql = newStatements(&s.cfg)
	s.places = newPlaces(pool, s.cfg.Logger)
	s.invalid = s.cfg.validate()
	if pool == nil {
		s.invalid = errors.Join(errors.New("the pool is nil: make one with pgxpool.New"), s.invalid)
	}
	return s
}

// Once implements dedupstore.Store. At most one less than the pool's MaxConns run at once, so that the rest of the service finds
// a connection; the others wait.
func (s *Store) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx pgx.Tx) error) (ran bool, err error) {
	if err := errors.Join(s.invalid, key.Validate()); err != nil {
		return false, fmt.Errorf("pgxstore: %w", err)
	}
	if err := s.places.enter(ctx); err != nil {
		return false, err
	}
	defer s.places.leave()
	conn, err := s.pool.Acquire(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, fmt.Errorf("pgxstore: get a connection: %w", cause(ctx))
	case err != nil:
		return false, fmt.Errorf("pgxstore: get a connection: %w", err)
	}
	defer conn.Release() // closes it unless it is idle and outside a transaction

	tx, inserted, err := s.begin(ctx, conn.Conn(), key)
	defer s.rollback(ctx, tx) // does nothing after a commit
	if err != nil {
		s.rollback(ctx, tx)
		return false, s.recordError(ctx, conn.Conn(), err)
	}
	if inserted {
		if err := run(ctx, tx, fn); err != nil {
			return false, err
		}
	}
	// A duplicate is committed too. It waits like any commit for a synchronous replica, and so for the first one's
	// commit, should its wait have been cut short: the caller may rely on a record that a failover cannot lose.
	if err := s.commit(ctx, tx); err != nil {
		return false, err
	}
	return inserted, nil
}

// begin sends BEGIN, the time-outs and the record in one round trip. tx is not nil even if there is an error; it must be
// rolled back then.
//
// The server ends the wait for a lock, except where pgx has the statement prepared first, outside the transaction: that
// needs a lock of the table too. The deadline is for that, and for a server that does not answer at all.
func (s *Store) begin(ctx context.Context, conn *pgx.Conn, key dedupstore.Key) (tx pgx.Tx, inserted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.recordTimeout())
	defer cancel()
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue(s.sql.guard)
	batch.Queue(s.sql.record, key.Event, key.Consumer).QueryRow(func(row pgx.Row) error {
		return row.Scan(&inserted, nil)
	})
	results := conn.SendBatch(ctx, &batch)
	err = results.Close()
	return results.Tx(), inserted, err
}

// run calls fn and reports why its transaction must not be committed.
func run(ctx context.Context, tx pgx.Tx, fn func(ctx context.Context, tx pgx.Tx) error) error {
	guarded := &handlerTx{Tx: tx}
	err := fn(ctx, guarded)
	conn := tx.Conn()
	status := conn.PgConn().TxStatus()
	switch {
	case guarded.ended.Load() || status == 'I':
		return txEnded(err)
	case err != nil:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("pgxstore: rolled back: %w", cause(ctx))
	case conn.IsClosed():
		return errors.New("pgxstore: rolled back: the connection was lost while the function ran, and the function returned nil: return the errors of all statements")
	case conn.PgConn().IsBusy():
		return errors.New("pgxstore: rolled back: the function returned while rows or a batch of its were open: close them")
	case status == 'E':
		return errors.New("pgxstore: rolled back: a statement failed, and the function returned nil: return the errors of all statements, or set a savepoint before one that may fail")
	}
	return nil
}

// commit ignores that ctx may end: only its own deadline cuts it short.
func (s *Store) commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.CommitTimeout)
	defer cancel()
	if err := tx.Commit(ctx); err != nil {
		return s.commitError(err)
	}
	return nil
}

// rollback ends tx if it is still open. If it cannot, pgx closes the connection, and the server rolls back.
func (s *Store) rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.CommitTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}
