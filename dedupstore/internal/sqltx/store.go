package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// Tx is *sql.Tx, or a transaction that stands on one.
type Tx interface {
	Commit() error
	Rollback() error
}

// Begin begins a transaction on one connection.
type Begin[T Tx] func(ctx context.Context, opts *sql.TxOptions) (T, error)

// Driver is what makes transactions of type T out of database/sql's.
type Driver[T Tx] struct {
	DB   *sql.DB
	Conn func(ctx context.Context) (*sql.Conn, Begin[T], error)
	SQL  func(tx T) *sql.Tx

	Isolation sql.IsolationLevel

	// Check looks at a connection for what would do harm, if it is not nil.
	Check func(ctx context.Context, ask record.Query) error
}

// Store is the store. It is safe for concurrent use.
type Store[T Tx] struct {
	driver  Driver[T]
	dialect record.Dialect
	cfg     record.Config
	invalid error // what is wrong with the configuration

	groups func() *gather.Gatherer[T] // nil without groups; the pool's size is looked at when the first transaction begins

	sessions record.Processes

	places func() *record.Places // the pool's size is looked at when the first transaction begins
}

// New returns a Store. invalid is what is wrong with its arguments: the error of Check, and of every Once.
func New[T Tx](driver Driver[T], dialect record.Dialect, cfg record.Config, invalid error) *Store[T] {
	s := &Store[T]{driver: driver, dialect: dialect, cfg: cfg, invalid: invalid,
		places: sync.OnceValue(func() *record.Places {
			return record.PlacesOf(driver.DB, driver.DB.Stats().MaxOpenConnections, cfg.Logger)
		})}
	if cfg.Group > 1 {
		s.groups = sync.OnceValue(func() *gather.Gatherer[T] {
			return gather.New(&groups[T]{store: s}, s.gathering(false))
		})
	}
	return s
}

// gathering is how the store's calls are gathered.
func (s *Store[T]) gathering(atOnce bool) gather.Config {
	return gather.Config{Size: s.cfg.Group, Side: s.side(), AtOnce: atOnce, Changed: record.GroupsChanged(s.cfg.Logger)}
}

// side is how many transactions a store with groups has side by side. SQLite has one writer.
func (s *Store[T]) side() int {
	if _, ok := s.dialect.(*record.SQLite); ok {
		return 1
	}
	const unbounded = 32
	if n := s.driver.DB.Stats().MaxOpenConnections; n > 0 {
		return max(1, n-1)
	}
	return unbounded
}

// Once implements dedupstore.Store.
func (s *Store[T]) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx T) error) (ran bool,
	err error) {
	if err := s.dialect.Invalid(s.invalid, key.Validate()); err != nil {
		return false, err
	}
	if s.groups != nil && !s.nested(ctx) {
		return s.groups().Once(ctx, key, fn)
	}
	return s.alone(ctx, key, fn)
}

// alone runs fn in a transaction of its own.
func (s *Store[T]) alone(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx T) error) (ran bool,
	err error) {
	for {
		ran, err = s.once(ctx, key, fn)
		if !errors.Is(err, record.ErrChanged) {
			return ran, err
		}
	}
}

// once makes the attempt on one connection.
func (s *Store[T]) once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx T) error) (ran bool,
	err error) {
	c, err := s.enter(ctx)
	if err != nil {
		return false, err
	}
	defer c.close()

	if err := s.dialect.Locate(ctx, c.ask); err != nil {
		return false, c.giveUp(err)
	}
	form, err := s.form(ctx, c)
	if err != nil {
		return false, s.recordError(ctx, c, key, err)
	}
	outcome, err := c.begin(ctx, form, key)
	if err == nil && c.changed() {
		return false, record.ErrChanged
	}
	if err != nil || outcome == record.Silent {
		c.rollback()
	}
	switch {
	case err != nil:
		return false, s.recordError(ctx, c, key, err)
	case outcome == record.Silent:
		return false, s.dialect.Silence(ctx, form, key, c.ask)
	case outcome == record.Inserted:
		if err := c.run(ctx, fn); err != nil {
			return false, err
		}
	}
	// A duplicate is committed too: see pgxstore.
	if err := c.commit(); err != nil {
		return false, err
	}
	return outcome == record.Inserted, nil
}

// enter takes a connection when there is a place for it.
func (s *Store[T]) enter(ctx context.Context) (*call[T], error) {
	if err := s.places().Enter(ctx); err != nil {
		return nil, s.dialect.Place(err)
	}
	c, err := s.open(ctx, s.places().Leave)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, s.dialect.Waiting(ctx)
	case err != nil:
		return nil, s.dialect.ConnectError(err)
	}
	return c, nil
}

// form finds out at the first call how the table can be written, unless Check has.
func (s *Store[T]) form(ctx context.Context, c *call[T]) (record.Form, error) {
	return s.dialect.Form(ctx, func(ctx context.Context, form record.Form, probe dedupstore.Key) (first,
		second record.Outcome, err error) {
		defer c.rollback()
		if first, err = c.begin(ctx, form, probe); err != nil {
			return first, second, err
		}
		second, err = c.record(ctx, probe)
		return first, second, err
	})
}

// recordError explains why a key was not recorded. The transaction has been rolled back.
func (s *Store[T]) recordError(ctx context.Context, c *call[T], key dedupstore.Key, err error) error {
	catchUp(ctx)
	return c.giveUp(s.dialect.RecordError(ctx, key, err, c.ask))
}

// Check implements dedupstore.Checker.
func (s *Store[T]) Check(ctx context.Context) error {
	if err := s.dialect.Invalid(s.invalid, nil); err != nil {
		return err
	}
	c, err := s.open(ctx, func() {})
	if err != nil {
		return s.dialect.ConnectError(err)
	}
	defer c.close()
	if err := s.dialect.Locate(ctx, c.ask); err != nil {
		return c.giveUp(err)
	}
	if err := s.dialect.Examine(ctx, c.ask); err != nil {
		return c.giveUp(err)
	}
	// The last word is the server's: it runs the statements itself, and checks privileges column by column.
	if _, err := s.form(ctx, c); err != nil {
		return s.recordError(ctx, c, dedupstore.Key{}, err)
	}
	if s.driver.Check == nil {
		return nil
	}
	return s.driver.Check(ctx, c.ask)
}

// IdleTimeout is how long a transaction may be left alone, 0 for no limit.
func (s *Store[T]) IdleTimeout() time.Duration {
	if _, ok := s.dialect.(*record.SQLite); ok {
		return 0
	}
	return s.cfg.IdleTimeout
}

// Identity implements dedupstore.Identifier.
func (s *Store[T]) Identity(ctx context.Context) (string, error) {
	if err := s.dialect.Invalid(s.invalid, nil); err != nil {
		return "", err
	}
	c, err := s.open(ctx, func() {})
	if err != nil {
		return "", s.dialect.ConnectError(err)
	}
	defer c.close()
	if err := s.dialect.Locate(ctx, c.ask); err != nil {
		return "", c.giveUp(err)
	}
	return s.dialect.Identity(ctx, c.ask)
}

// catchUp waits until ctx says that its deadline has passed, if it has: a socket with the same deadline may be quicker.
func catchUp(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
}

var errBroken = errors.New("the connection cannot be used any more")
