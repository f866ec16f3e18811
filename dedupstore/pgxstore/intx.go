package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// InTx implements dedupstore.Transactor: one round trip for BEGIN and the time-out, those of fn, and one for COMMIT.
// IdleTimeout and CommitTimeout are as for Once.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return s.unkeyed(ctx, s.runAndCommit(fn))
}

// unkeyed runs a transaction without a record.
func (s *Store) unkeyed(ctx context.Context, work finish) error {
	if err := s.sql.Invalid(s.invalid, nil); err != nil {
		return err
	}
	if err := s.places.Enter(ctx); err != nil {
		return s.sql.Place(err)
	}
	defer s.places.Leave()
	for {
		err := s.inTx(ctx, work)
		if !errors.Is(err, record.ErrChanged) {
			return err
		}
	}
}

// inTx makes the attempt on one connection.
func (s *Store) inTx(ctx context.Context, work finish) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()

	tx, session, err := s.beginUnkeyed(ctx, conn.Conn())
	defer s.rollback(ctx, tx) // does nothing after a commit
	switch {
	case s.changed(ctx, conn.Conn(), session, err):
		return record.ErrChanged
	case err != nil:
		return s.giveUp(ctx, conn.Conn(), s.sql.BeginError(ctx, err))
	}
	return work(ctx, tx, session)
}

// beginUnkeyed returns a tx that is not nil even if there is an error.
func (s *Store) beginUnkeyed(ctx context.Context, conn *pgx.Conn) (tx pgx.Tx, session record.Session, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RecordTimeout())
	defer cancel()
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue(s.sql.Statements(record.Upsert).Unkeyed).QueryRow(func(row pgx.Row) error { return row.Scan((*string)(&session)) })
	results := conn.SendBatch(ctx, &batch)
	err = results.Close()
	return results.Tx(), session, err
}

// Forget implements dedupstore.Forgetter. It needs the privilege to delete, which nothing else in the store does.
func (s *Store) Forget(ctx context.Context, tx pgx.Tx, key dedupstore.Key) error {
	if err := s.sql.Invalid(s.invalid, key.Validate()); err != nil {
		return err
	}
	if err := s.sql.Locate(ctx, query(tx)); err != nil {
		return err
	}
	texts, left := s.sql.Statements(record.Upsert), false
	_, err := tx.Exec(ctx, texts.Forget, key.Event, key.Consumer, key.HandOns())
	if err == nil {
		err = tx.QueryRow(ctx, texts.Left, key.Event, key.Consumer, key.HandOns()).Scan(&left)
	}
	return s.sql.ForgetError(err, left)
}
