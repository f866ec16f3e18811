package deadsql

import (
	"context"
	"time"

	"github.com/einmal-go/einmal/internal/sqlclass"
)

// Shedder is a pool that can close the connection which was given back to it last, if that is free.
type Shedder interface{ Shed(ctx context.Context) }

// shedTimeout is how long the pool may take.
const shedTimeout = time.Second

// shedding is a pool. Where the session may be to blame for an error, because somebody has left another role in it for
// example, its connection is closed: the next statement would meet it again. Nothing rests on its being that one.
type shedding struct{ Conn }

// shed does so if err is such an error.
func (s shedding) shed(ctx context.Context, err error) {
	pool, ok := s.Conn.(Shedder)
	if !ok || ctx.Err() != nil || !sqlclass.Spoils(err) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shedTimeout)
	defer cancel()
	pool.Shed(ctx)
}

// Exec implements Conn.
func (s shedding) Exec(ctx context.Context, text string, args ...any) (affected int64, err error) {
	affected, err = s.Conn.Exec(ctx, text, args...)
	s.shed(ctx, err)
	return affected, err
}

// Query implements Conn.
func (s shedding) Query(ctx context.Context, text string, args ...any) (Rows, error) {
	rows, err := s.Conn.Query(ctx, text, args...)
	if err != nil {
		s.shed(ctx, err)
		return nil, err
	}
	return &shedRows{Rows: rows, closed: func(err error) { s.shed(ctx, err) }}, nil
}

// begin begins a transaction, if the pool can. end takes what has gone wrong there.
func (s shedding) begin(ctx context.Context) (tx Conn, end func(err error), ok bool, err error) {
	b, ok := s.Conn.(Beginner)
	if !ok {
		return nil, nil, false, nil
	}
	tx, rollback, err := b.Begin(ctx)
	if err != nil {
		return nil, nil, true, err
	}
	return tx, func(err error) {
		_ = rollback()
		s.shed(ctx, err)
	}, true, nil
}

// shedRows look at their error when they have given their connection back.
type shedRows struct {
	Rows

	closed func(err error)
	done   bool
}

// Close implements Rows.
func (r *shedRows) Close() error {
	err := r.Rows.Close()
	if !r.done {
		r.done = true
		r.closed(r.Err())
	}
	return err
}
