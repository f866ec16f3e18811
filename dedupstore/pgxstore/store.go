package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// Store records keys in a table of a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	cfg      record.Config
	sql      *record.Postgres
	places   *record.Places
	records  limit                    // of the first round trip
	ends     limit                    // of COMMIT and ROLLBACK
	invalid  error                    // what is wrong with pool and cfg
	groups   *gather.Gatherer[pgx.Tx] // nil without groups
	sessions record.Sessions
}

var (
	_ dedupstore.Store[pgx.Tx]     = (*Store)(nil)
	_ dedupstore.Forgetter[pgx.Tx] = (*Store)(nil)
	_ dedupstore.Checker           = (*Store)(nil)
	_ dedupstore.Identifier        = (*Store)(nil)
	_ dedupstore.Grouper           = (*Store)(nil)
	_ dedupstore.GroupReporter     = (*Store)(nil)
)

// New returns a Store on pool, which stays the caller's to close, after the last Once has returned. It does no input or
// output. What is wrong with its arguments is the error of Check, and of every Once.
func New(pool *pgxpool.Pool, cfg *Config) *Store {
	s := &Store{pool: pool, cfg: cfg.withDefaults()}
	s.sql = record.NewPostgres("pgxstore", s.cfg, true)
	s.invalid = s.cfg.Validate()
	s.records.length, s.ends.length = s.cfg.RecordTimeout(), s.cfg.CommitTimeout
	poolSize := 0
	if pool == nil {
		s.invalid = errors.Join(errors.New("the pool is nil: make one with pgxpool.New"), s.invalid)
	} else {
		poolSize = int(pool.Config().MaxConns)
	}
	s.places = record.PlacesOf(pool, poolSize, s.cfg.Logger)
	if s.cfg.Group > 1 {
		s.groups = gather.New(&groups{store: s}, s.gathering(false))
	}
	return s
}

// gathering is how the store's calls are gathered.
func (s *Store) gathering(atOnce bool) gather.Config {
	side := 1
	if s.pool != nil {
		side = max(1, int(s.pool.Config().MaxConns)-1)
	}
	return gather.Config{Size: s.cfg.Group, Side: side, AtOnce: atOnce, Changed: record.GroupsChanged(s.cfg.Logger)}
}

// Once implements dedupstore.Store. At most one less than the pool's MaxConns run at once, so that the rest of the
// service finds a connection; the others wait.
func (s *Store) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx pgx.Tx) error) (ran bool,
	err error) {
	if err := s.sql.Invalid(s.invalid, key.Validate()); err != nil {
		return false, err
	}
	if s.groups != nil && !s.nested(ctx) {
		return s.groups.Once(ctx, key, fn)
	}
	return s.alone(ctx, key, s.runAndCommit(fn))
}

// finish is what is done in a transaction after the record. It commits, unless it returns an error. The session is as
// it was when the transaction began.
type finish func(ctx context.Context, tx pgx.Tx, began record.Session) error

func (s *Store) runAndCommit(fn func(ctx context.Context, tx pgx.Tx) error) finish {
	return func(ctx context.Context, tx pgx.Tx, began record.Session) error {
		if err := s.run(ctx, tx, began, fn); err != nil {
			return err
		}
		return s.commit(ctx, tx)
	}
}

// alone records key in a transaction of its own.
func (s *Store) alone(ctx context.Context, key dedupstore.Key, fresh finish) (ran bool, err error) {
	if err := s.places.Enter(ctx); err != nil {
		return false, s.sql.Place(err)
	}
	defer s.places.Leave()
	for {
		ran, err = s.once(ctx, key, fresh)
		if !errors.Is(err, record.ErrChanged) {
			return ran, err
		}
	}
}

// once makes the attempt on one connection.
func (s *Store) once(ctx context.Context, key dedupstore.Key, fresh finish) (ran bool, err error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release() // closes it unless it is idle and outside a transaction
	if err := s.sql.Locate(ctx, query(conn.Conn())); err != nil {
		return false, s.giveUp(ctx, conn.Conn(), err)
	}
	form, err := s.form(ctx, conn.Conn())
	if err != nil {
		return false, s.recordError(ctx, conn.Conn(), key, err)
	}
	tx, answer, err := s.begin(ctx, conn.Conn(), form, key)
	defer s.rollback(ctx, tx) // does nothing after a commit
	if s.changed(ctx, conn.Conn(), answer.Session, err) {
		return false, record.ErrChanged
	}
	if err != nil || answer.Outcome == record.Silent {
		s.rollback(ctx, tx)
	}
	switch {
	case err != nil:
		return false, s.recordError(ctx, conn.Conn(), key, err)
	case answer.Outcome == record.Silent:
		return false, s.sql.Silence(ctx, form, key, query(conn.Conn()))
	case answer.Outcome == record.Inserted:
		err := fresh(ctx, tx, answer.Session)
		return err == nil, err
	}
	// A duplicate is committed too. It waits like any commit for a synchronous replica, and so for the first one's
	// commit, should its wait have been cut short: the caller may rely on a record that a failover cannot lose.
	return false, s.commit(ctx, tx)
}

// acquire takes a connection.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, s.sql.Waiting(ctx)
	case err != nil:
		return nil, s.sql.ConnectError(err)
	}
	return conn, nil
}

// form finds out at the first call how the table can be written, unless Check has.
func (s *Store) form(ctx context.Context, conn *pgx.Conn) (record.Form, error) {
	return s.sql.Form(ctx, func(ctx context.Context, form record.Form, probe dedupstore.Key) (first, second record.Outcome,
		err error) {
		tx, answer, err := s.begin(ctx, conn, form, probe)
		defer s.rollback(ctx, tx)
		if err != nil {
			return first, second, err
		}
		limited := s.records.start(ctx)
		defer s.records.stop(limited)
		again, err := read(tx.QueryRow(limited, s.sql.Statements(form).Record, probe.Event, probe.Consumer))
		return answer.Outcome, again.Outcome, err
	})
}

// begin sends BEGIN and the record, which sets the time-outs, in one round trip. tx is not nil even if there is an
// error; it must be rolled back then.
//
// The server ends the wait for a row. The deadline is for a wait for the table, and for a server that does not answer
// at all.
func (s *Store) begin(ctx context.Context, conn *pgx.Conn, form record.Form, key dedupstore.Key) (tx pgx.Tx,
	answer record.Answer, err error) {
	limited := s.records.start(ctx)
	defer s.records.stop(limited)
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue(s.sql.Statements(form).Record, key.Event, key.Consumer).QueryRow(func(row pgx.Row) (err error) {
		answer, err = read(row)
		return err
	})
	results := conn.SendBatch(limited, &batch)
	err = results.Close()
	return results.Tx(), answer, err
}

// read reads the answer to the record.
func read(row pgx.Row) (answer record.Answer, err error) {
	var inserted *bool
	if err := row.Scan(&inserted, (*string)(&answer.Session)); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return answer, err
	}
	answer.Outcome = record.OutcomeOf(inserted)
	return answer, nil
}

// recordError explains why the first round trip failed. The transaction has been rolled back.
func (s *Store) recordError(ctx context.Context, conn *pgx.Conn, key dedupstore.Key, err error) error {
	return s.giveUp(ctx, conn, s.sql.RecordError(ctx, key, err, query(conn)))
}

// giveUp closes the connection if it must not be used again.
func (s *Store) giveUp(ctx context.Context, conn *pgx.Conn, err error) error {
	if !s.sql.GiveUp(err) {
		return err
	}
	if s.sql.OfTheSession(err) && conn.PgConn().TxStatus() == 'I' { // a pooler closes its own connection to the server only in a transaction
		limited := s.ends.start(ctx)
		_, _ = conn.Exec(limited, "begin")
		s.ends.stop(limited)
	}
	_ = conn.Close(ctx)
	return err
}

// query asks on a connection, or in a transaction.
func query(conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) record.Query {
	return func(ctx context.Context, sql string, args ...any) (text string, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&text)
		return text, err
	}
}

// run calls fn and reports why its transaction must not be committed. What fn has set in its session is set back; what
// it has hidden, by calling a function of the database that does so, is noticed by the next transaction.
func (s *Store) run(ctx context.Context, tx pgx.Tx, began record.Session,
	fn func(ctx context.Context, tx pgx.Tx) error) error {
	guarded := &handlerTx{Tx: tx}
	reported := reportsTx(tx.Conn())
	err := fn(ctx, guarded)
	if guarded.ended.Load() || s.ended(ctx, tx, reported) {
		return s.giveUp(ctx, tx.Conn(), s.sql.TxEnded(err))
	}
	if err := s.judge(ctx, tx.Conn(), err); err != nil {
		return s.giveUp(ctx, tx.Conn(), err)
	}
	if guarded.sets.Load() || guarded.local.Load() && s.nested(ctx) {
		if err := s.restore(ctx, tx, began); err != nil {
			_ = tx.Conn().Close(ctx)
			return s.sql.Lost(err)
		}
	}
	return nil
}

// judge says what is wrong with a transaction that fn has not ended.
func (s *Store) judge(ctx context.Context, conn *pgx.Conn, err error) error {
	switch {
	case err != nil:
		return s.sql.FunctionError(ctx, err, conn.IsClosed() && ctx.Err() == nil) // pgx closes it when ctx ends
	case ctx.Err() != nil:
		return s.sql.Done(ctx, nil)
	case conn.IsClosed():
		return s.sql.Lost(nil)
	case conn.PgConn().IsBusy():
		return s.sql.RowsOpen()
	case conn.PgConn().TxStatus() == 'E':
		return s.sql.Swallowed(nil)
	}
	return nil
}

// commit ignores that ctx may end: only its own deadline cuts it short.
func (s *Store) commit(ctx context.Context, tx pgx.Tx) error {
	limited := s.ends.start(context.WithoutCancel(ctx))
	defer s.ends.stop(limited)
	err := tx.Commit(limited)
	if err == nil {
		err = watched(tx.Conn())
	}
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return s.sql.Swallowed(err)
	case err != nil:
		return s.sql.CommitError(err)
	}
	return nil
}

// rollback ends tx if it is still open. If it cannot, pgx closes the connection, and the server rolls back.
func (s *Store) rollback(ctx context.Context, tx pgx.Tx) {
	if tx.Conn().PgConn().TxStatus() == 'I' {
		return // as after a commit
	}
	limited := s.ends.start(context.WithoutCancel(ctx))
	defer s.ends.stop(limited)
	_ = tx.Rollback(limited)
}

// IdleTimeout is Config.IdleTimeout, for who compares it with other times.
func (s *Store) IdleTimeout() time.Duration { return s.cfg.IdleTimeout }

// Identity implements dedupstore.Identifier.
func (s *Store) Identity(ctx context.Context) (string, error) {
	if err := s.sql.Invalid(s.invalid, nil); err != nil {
		return "", err
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	if err := s.sql.Locate(ctx, query(conn.Conn())); err != nil {
		return "", s.giveUp(ctx, conn.Conn(), err)
	}
	return s.sql.Identity(ctx, query(conn.Conn()))
}

// Check implements dedupstore.Checker: it reports everything that would make Once fail, with the SQL to run. It
// connects, looks at the table, and records a key of its own in a transaction that it rolls back.
func (s *Store) Check(ctx context.Context) error {
	if err := s.sql.Invalid(s.invalid, nil); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.sql.ConnectError(err)
	}
	defer conn.Release()
	if err := s.sql.Locate(ctx, query(conn.Conn())); err != nil {
		return s.giveUp(ctx, conn.Conn(), err)
	}
	if err := s.sql.Examine(ctx, query(conn.Conn())); err != nil {
		return s.giveUp(ctx, conn.Conn(), err)
	}
	// The last word is the server's: it runs the statements itself, and checks privileges column by column.
	if _, err := s.form(ctx, conn.Conn()); err != nil {
		return s.recordError(ctx, conn.Conn(), dedupstore.Key{}, err)
	}
	return nil
}
