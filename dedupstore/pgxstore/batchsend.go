package pgxstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore/internal/gather"
	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// queued is what the function of one call has queued.
type queued struct {
	ctx     context.Context //nolint:containedctx // the call's, which bounds its statements
	place   int             // of the call in its group
	queries []*pgx.QueuedQuery
	calling bool // a callback of its is under way
}

// collect calls fn and returns what it has queued.
func (s *Store) collect(ctx context.Context, place int, fn func(context.Context, *pgx.Batch) error) (*queued, error) {
	var batch pgx.Batch
	err := fn(ctx, &batch)
	for _, q := range batch.QueuedQueries {
		if endsTransaction(q.SQL) {
			return nil, s.sql.TxEnded(err)
		}
	}
	switch {
	case err != nil:
		return nil, s.sql.FunctionError(ctx, err, false)
	case ctx.Err() != nil:
		return nil, s.sql.Done(ctx, nil)
	}
	return &queued{ctx: ctx, place: place, queries: batch.QueuedQueries}, nil
}

// called reports whether there are callbacks: their errors must be known before COMMIT is sent.
func called(all []*queued) bool {
	for _, its := range all {
		for _, q := range its.queries {
			if q.Fn != nil {
				return true
			}
		}
	}
	return false
}

// limitSQL limits each statement until the end of the transaction. It stands first, so that an error that belongs to no
// statement, since nothing was sent, is seen to be one.
const limitSQL = `select set_config('statement_timeout', case when current_setting('statement_timeout')::interval between '1 ms' and $1::text::interval
then current_setting('statement_timeout') else $1::text end, true)`

// send sends what was queued, and commits. A *gather.Blame names the call that an error concerns.
func (s *Store) send(ctx context.Context, tx pgx.Tx, all []*queued) error {
	if len(all) == 0 {
		return s.commit(ctx, tx)
	}
	ctx, end := s.limited(all)
	defer end()
	limit := shortest(all, s.cfg.IdleTimeout) + limitMargin
	batch := &pgx.Batch{}
	batch.Queue(limitSQL, strconv.FormatInt(limit.Milliseconds(), 10)+" ms")
	for _, its := range all {
		for _, q := range its.queries {
			batch.Queue(q.SQL, q.Arguments...)
		}
	}
	if called(all) {
		if err := s.read(tx.Conn(), tx.Conn().SendBatch(ctx, batch), all, false); err != nil {
			return s.giveUp(ctx, tx.Conn(), err)
		}
		return s.commit(ctx, tx)
	}
	batch.Queue("commit")
	return s.giveUp(ctx, tx.Conn(), s.read(tx.Conn(), tx.Conn().SendBatch(ctx, batch), all, true))
}

const (
	// limitMargin lets the context end before the server ends the statement, so that the error is the context's.
	limitMargin = 20 * time.Millisecond
	// leastLimit is for calls that have no time left, so that they do not make the others fail.
	leastLimit = 100 * time.Millisecond
)

// shortest is how long the first of the calls' contexts lasts, between leastLimit and most.
func shortest(all []*queued, most time.Duration) time.Duration {
	for _, its := range all {
		if at, ok := its.ctx.Deadline(); ok {
			most = min(most, time.Until(at))
		}
	}
	return max(leastLimit, most)
}

// limited returns a context that ends when the statements must have been answered, or CommitTimeout after all calls'
// contexts.
func (s *Store) limited(all []*queued) (context.Context, context.CancelFunc) {
	ctx, end := context.WithDeadline(context.Background(), time.Now().Add(s.cfg.IdleTimeout+s.cfg.CommitTimeout))
	go func() {
		for _, its := range all {
			select {
			case <-its.ctx.Done():
			case <-ctx.Done():
				return
			}
		}
		timer := time.NewTimer(s.cfg.CommitTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			end()
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// read reads the answers, and calls the callbacks. commits says that COMMIT is the last statement.
func (s *Store) read(conn *pgx.Conn, results pgx.BatchResults, all []*queued, commits bool) error {
	defer results.Close()
	if _, err := results.Exec(); err != nil { // of limitSQL
		return s.sendError(context.Background(), conn, err, commits)
	}
	for _, its := range all {
		for _, q := range its.queries {
			if err := its.answer(q, results); err != nil {
				return s.blame(conn, its, err, len(all) > 1, commits)
			}
		}
	}
	if !commits {
		if err := results.Close(); err != nil {
			return s.sendError(context.Background(), conn, err, false)
		}
		return s.judge(context.Background(), conn, nil)
	}
	tag, err := results.Exec()
	if err == nil {
		err = results.Close()
	}
	switch {
	case err != nil:
		return s.sql.CommitError(err)
	case tag.String() != "COMMIT":
		return s.sql.Swallowed(nil)
	}
	if err := watched(conn); err != nil {
		return s.sql.CommitError(err)
	}
	return nil
}

// answer takes the next answer for the call. It is on its way out when calling stays true: the callback has not
// returned.
func (q *queued) answer(query *pgx.QueuedQuery, results pgx.BatchResults) error {
	if query.Fn == nil {
		_, err := results.Exec()
		return err
	}
	q.calling = true
	err := query.Fn(results)
	q.calling = false
	return err
}

// blame is the error of a statement, or of a callback. A statement that was ended because another call has less time
// concerns nobody: in a smaller group, or alone, it has its own.
func (s *Store) blame(conn *pgx.Conn, its *queued, err error, others, commits bool) error {
	code := record.StateOf(err)
	switch {
	case code == "" && conn.IsClosed():
		return s.sendError(its.ctx, conn, err, commits)
	case code == codeCanceled && its.ctx.Err() != nil:
		err = s.sql.Done(its.ctx, err)
	case code == codeCanceled && others:
		return s.sql.FunctionError(its.ctx, err, false)
	default:
		err = s.sql.FunctionError(its.ctx, err, false)
	}
	return &gather.Blame{Place: its.place, Err: err}
}

// codeCanceled is what a statement that takes too long ends with.
const codeCanceled = "57014"

// sendError is an error that concerns no statement. When COMMIT was sent, and the server has not answered, nobody knows
// its outcome.
func (s *Store) sendError(ctx context.Context, conn *pgx.Conn, err error, commits bool) error {
	_, unsent := errors.AsType[pgx.ErrPreprocessingBatch](err)
	lost := conn.IsClosed() && !unbuilt(err)
	if commits && lost && !unsent && record.StateOf(err) == "" {
		return s.sql.CommitError(err)
	}
	return s.sql.FunctionError(ctx, err, lost)
}

// unbuilt reports whether err is that of an argument. pgx closes the connection then, as if it were lost.
func unbuilt(err error) bool {
	return strings.HasPrefix(err.Error(), "error preprocessing batch (build)")
}
