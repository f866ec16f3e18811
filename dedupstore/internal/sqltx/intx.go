package sqltx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// InTx implements dedupstore.Transactor.
func (s *Store[T]) InTx(ctx context.Context, fn func(ctx context.Context, tx T) error) error {
	if err := s.dialect.Invalid(s.invalid, nil); err != nil {
		return err
	}
	for {
		err := s.inTx(ctx, fn)
		if !errors.Is(err, record.ErrChanged) {
			return err
		}
	}
}

// inTx makes the attempt on one connection.
func (s *Store[T]) inTx(ctx context.Context, fn func(ctx context.Context, tx T) error) error {
	c, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer c.close()

	err = c.beginTx(ctx, record.Upsert)
	if err == nil {
		err = c.unkeyed(ctx)
	}
	if err != nil {
		c.rollback()
		catchUp(ctx)
		return c.giveUp(s.dialect.BeginError(ctx, err))
	}
	if c.changed() {
		return record.ErrChanged
	}
	if err := c.run(ctx, fn); err != nil {
		return err
	}
	return c.commit()
}

// unkeyed sends what stands in place of the record.
func (c *call[T]) unkeyed(ctx context.Context) error {
	if c.texts.Unkeyed == "" {
		return c.mark(ctx)
	}
	ctx, stop := context.WithTimeout(ctx, c.store.cfg.RecordTimeout())
	defer stop()
	return c.sql().QueryRowContext(ctx, c.texts.Unkeyed).Scan(&c.session)
}

// Forget implements dedupstore.Forgetter.
func (s *Store[T]) Forget(ctx context.Context, tx T, key dedupstore.Key) error {
	if err := s.dialect.Invalid(s.invalid, key.Validate()); err != nil {
		return err
	}
	in := s.driver.SQL(tx)
	if err := s.dialect.Locate(ctx, queryIn(in)); err != nil {
		return err
	}
	texts, left := s.dialect.Statements(record.Upsert), false
	_, err := in.ExecContext(ctx, texts.Forget, key.Event, key.Consumer, key.HandOns())
	if err == nil {
		err = in.QueryRowContext(ctx, texts.Left, key.Event, key.Consumer, key.HandOns()).Scan(&left)
	}
	return s.dialect.ForgetError(err, left)
}

// queryIn asks inside of a transaction.
func queryIn(tx *sql.Tx) record.Query {
	return func(ctx context.Context, text string, args ...any) (answer string, err error) {
		err = tx.QueryRowContext(ctx, text, args...).Scan(&answer)
		return answer, err
	}
}
