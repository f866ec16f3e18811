package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// call is one call's connection, and the transaction that is open on it.
type call[T Tx] struct {
	store *Store[T]
	conn  *sql.Conn
	start Begin[T]
	leave func() // the place in the pool

	tx     T
	opened bool               // tx is open
	cancel context.CancelFunc // of the context with which it was begun
	texts  *record.Statements // with which it was begun

	session record.Session // as it was when tx was begun

	broken  bool // the connection must not be used again
	spoiled bool // because of its session, which a pooler may keep
	hanging bool // a goroutine that was left behind has it
}

// open takes a connection. leave is called when it is given back, or at once if there is none.
func (s *Store[T]) open(ctx context.Context, leave func()) (*call[T], error) {
	conn, start, err := s.driver.Conn(ctx)
	if err != nil {
		leave()
		catchUp(ctx)
		return nil, err
	}
	return &call[T]{store: s, conn: conn, start: start, leave: leave, cancel: func() {}}, nil
}

// close rolls back what is open, and gives the connection back.
func (c *call[T]) close() {
	c.rollback()
	if !c.hanging {
		c.release()
	}
}

func (c *call[T]) release() {
	if c.spoiled { // a pooler closes its own connection to the server only in a transaction
		ctx, stop := context.WithTimeout(context.Background(), c.store.cfg.CommitTimeout)
		_, _ = c.conn.ExecContext(ctx, "begin")
		stop()
	}
	if c.broken {
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn }) // has database/sql close it
	}
	_ = c.conn.Close()
	c.cancel()
	c.leave()
}

// spoil keeps the connection from being used again, if so. A connection that hangs is closed anyway, by the goroutine
// that has it.
func (c *call[T]) spoil(yes bool) {
	if yes && !c.hanging {
		c.broken = true
	}
}

// giveUp does so if what is wrong may be the session.
func (c *call[T]) giveUp(err error) error {
	if c.hanging {
		return err // the goroutine that has the connection closes it
	}
	c.spoil(c.store.dialect.GiveUp(err))
	c.spoiled = c.broken && c.store.dialect.OfTheSession(err)
	return err
}

var errNoAnswer = errors.New("no answer in time")

// within runs f, which has the connection to itself. If it does not return in time, it keeps the connection.
func (c *call[T]) within(limit time.Duration, f func() error) error {
	if c.hanging {
		return errBroken
	}
	var err error
	done := make(chan struct{})
	go func() {
		err = f()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return err
	case <-timer.C:
	}
	c.hanging = true
	c.cancel() // with which some drivers give up
	go func() {
		<-done
		if c.opened {
			_ = c.tx.Rollback()
		}
		c.broken = true
		c.release()
	}()
	return errNoAnswer
}

// begin begins a transaction and records the key. After an error it must be rolled back.
func (c *call[T]) begin(ctx context.Context, form record.Form, key dedupstore.Key) (record.Outcome, error) {
	if err := c.beginTx(ctx, form); err != nil {
		return record.Silent, err
	}
	outcome, err := c.record(ctx, key)
	if err == nil && outcome == record.Inserted {
		err = c.mark(ctx)
	}
	return outcome, err
}

// beginTx begins a transaction. After an error it must be rolled back.
func (c *call[T]) beginTx(ctx context.Context, form record.Form) error {
	if c.hanging {
		return errBroken // by the probe
	}
	c.cancel()
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel, c.texts = cancel, c.store.dialect.Statements(form)
	stop := context.AfterFunc(ctx, cancel) // BEGIN is given up with the call
	err := c.within(c.store.cfg.RecordTimeout(), func() (err error) {
		c.tx, err = c.start(lasting, &sql.TxOptions{Isolation: c.store.driver.Isolation})
		c.opened = err == nil
		return err
	})
	if !stop() && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// record sends the record.
func (c *call[T]) record(ctx context.Context, key dedupstore.Key) (record.Outcome, error) {
	if c.texts.Guarded { // the server ends the wait, but for one for the table; this is for that, and a server that hangs
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.store.cfg.RecordTimeout())
		defer stop()
	}
	var inserted *bool
	err := c.sql().QueryRowContext(ctx, c.texts.Record, key.Event, key.Consumer).Scan(&inserted, &c.session)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return record.Silent, err
	}
	return record.OutcomeOf(inserted), nil
}

// mark marks the transaction, where the record has not.
func (c *call[T]) mark(ctx context.Context) error {
	if c.texts.Mark == "" {
		return nil
	}
	_, err := c.sql().ExecContext(ctx, c.texts.Mark)
	return err
}

func (c *call[T]) sql() *sql.Tx { return c.store.driver.SQL(c.tx) }

// ask runs a query outside of any transaction.
func (c *call[T]) ask(ctx context.Context, text string, args ...any) (answer string, err error) {
	if c.hanging || c.broken {
		return "", errBroken
	}
	err = c.conn.QueryRowContext(ctx, text, args...).Scan(&answer)
	return answer, err
}

// run calls fn and reports why its transaction must not be committed.
func (c *call[T]) run(ctx context.Context, fn func(ctx context.Context, tx T) error) error {
	err := fn(ctx, c.tx)
	catchUp(ctx)
	state, why := c.look(ctx, err)
	err = c.judge(ctx, state, why, err)
	if err != nil {
		return c.giveUp(err)
	}
	return nil
}

func (c *call[T]) judge(ctx context.Context, state state, why, err error) error {
	explain := c.store.dialect
	switch {
	case state == ended:
		return explain.TxEnded(err)
	case err != nil:
		return explain.FunctionError(ctx, err, state == lost && ctx.Err() == nil) // drivers close connections when ctx ends
	case ctx.Err() != nil:
		return explain.Done(ctx, nil)
	case state == failed:
		return explain.Swallowed(why)
	case state == busy:
		return explain.RowsOpen()
	case state == lost:
		return explain.Lost(why)
	}
	return nil
}

// state is that of a transaction after the function.
type state int

const (
	intact state = iota
	ended        // by the function
	failed       // by one of its statements
	busy         // with rows that were left open
	lost         // with the connection
)

// look finds out about the transaction, after the function has returned fnErr. database/sql does not know: a COMMIT as
// text passes it by, and so does the failure of a statement.
func (c *call[T]) look(ctx context.Context, fnErr error) (state, error) {
	if c.texts.Mark != "" {
		return c.lookAtMark(ctx, fnErr), nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), c.store.cfg.CommitTimeout)
	defer stop()
	var mark sql.NullString
	var now record.Session
	err := c.sql().QueryRowContext(ctx, c.texts.Same).Scan(&mark, &now)
	switch {
	case err == nil && mark.String != "":
		return c.restore(ctx, now)
	case err == nil, errors.Is(err, sql.ErrTxDone):
		return ended, nil
	case record.StateOf(err) == record.CodeFailedTransaction:
		return failed, nil
	case leftOpen(err):
		return busy, nil
	}
	return lost, err
}

// leftOpen reports whether a driver says that it cannot send a statement, because rows of another one are open. Each
// has its words: pgx, and those that find an answer which is not to what they have sent. The end of a connection may be
// called unexpected too.
func leftOpen(err error) bool {
	var network net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network) {
		return false
	}
	return record.StateOf(err) == "" && (strings.Contains(err.Error(), "conn busy") ||
		strings.Contains(err.Error(), "unexpected"))
}

// changed reports whether the session is not what it was at its first transaction. The connection is closed then.
func (c *call[T]) changed() bool {
	if !c.store.sessions.Changed(c.session) {
		return false
	}
	c.broken, c.spoiled = true, true
	return true
}

// restore brings the settings of the session back that the function has changed, for the next transaction.
func (c *call[T]) restore(ctx context.Context, now record.Session) (state, error) {
	if now.Same(c.session) {
		return intact, nil
	}
	text, args := c.session.Restore(now)
	var unused any
	if err := c.sql().QueryRowContext(ctx, text, args...).Scan(&unused); err != nil {
		c.broken = true
		return failed, err
	}
	return intact, nil
}

// lookAtMark does so in SQLite, where the mark is gone with its transaction. SQLite rolls back by itself where a
// statement is interrupted or the disk fails, which is not the function's doing.
func (c *call[T]) lookAtMark(ctx context.Context, fnErr error) state {
	if ctx.Err() != nil || fnErr != nil &&
		dedupstore.ClassOf(c.store.dialect.FunctionError(ctx, fnErr, false)) != dedupstore.Unclassified {
		return intact
	}
	if _, err := c.sql().ExecContext(ctx, c.texts.Same); err != nil {
		return ended
	}
	return intact
}

// commit cannot be cut short by the context of the call.
func (c *call[T]) commit() error {
	err := c.within(c.store.cfg.CommitTimeout, c.tx.Commit)
	switch {
	case err == nil:
		c.opened = false
		return nil
	case errors.Is(err, errNoAnswer):
		return c.store.dialect.Unknown(err)
	case errors.Is(err, sql.ErrTxDone):
		return c.store.dialect.TxEnded(nil)
	}
	explained := c.store.dialect.CommitError(err)
	c.spoil(errors.Is(explained, dedupstore.ErrOutcomeUnknown))
	return explained
}

// rollback ends the transaction if it is open. If it cannot, the connection is closed, and the server rolls back.
func (c *call[T]) rollback() {
	if c.hanging || !c.opened {
		return
	}
	err := c.within(c.store.cfg.CommitTimeout, c.tx.Rollback)
	if c.hanging {
		return
	}
	c.opened = false
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		c.broken = true
	}
}
