package outbox

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"
)

// lookInterval is how often the table is looked at as a whole.
const lookInterval = 5 * time.Second

// keepHouse looks at the table from time to time, removes what was kept long enough, and returns rows of relays that died.
func (r *running) keepHouse(ctx context.Context) {
	var cleaned time.Time
	for ctx.Err() == nil {
		more, err := r.look(ctx)
		if err == nil && r.cfg.Mode == TwoPhase && time.Since(cleaned) > r.cfg.LeaseTTL/4 {
			err = r.cleanUp(ctx)
			cleaned = time.Now()
		}
		r.status.looked(err)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrOtherMode):
			r.fatal <- err
			return
		case err != nil:
			r.status.failed(err)
			r.log.Warn("outbox: cannot look at the table", slog.Any("error", err))
		}
		if !more {
			sleep(ctx, jitter(min(lookInterval, r.cfg.LeaseTTL/4)))
		}
	}
}

// inTx is a short transaction with the usual time-outs.
func (r *running) inTx(ctx context.Context, f func(ctx context.Context, tx Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*sqlTimeout)
	defer cancel()
	b := &batch{worker: &worker{running: r}}
	return r.cfg.Database.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := b.guard(ctx, tx, sqlTimeout); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// look reads what Status tells of the table, checks the mode, and sweeps. It reports whether there is more to sweep.
func (r *running) look(ctx context.Context) (more bool, err error) {
	seen := look{at: time.Now()}
	err = r.inTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := r.checkMode(ctx, tx); err != nil {
			return err
		}
		if err := r.measure(ctx, tx, &seen); err != nil {
			return err
		}
		more, err = r.sweep(ctx, tx)
		return err
	})
	if err != nil {
		return false, err
	}
	if seen.large() {
		r.countAll(ctx, &seen)
	}
	r.status.saw(seen)
	return more, nil
}

// errReadOnly is why nothing can be sent by a database that answers.
var errReadOnly = errors.New("the database is read-only, a standby for example: connect to the primary")

// measure reads what Status tells of the table.
func (r *running) measure(ctx context.Context, tx Tx, seen *look) error {
	readOnly, err := r.count(ctx, tx, countLimit+1, seen)
	switch {
	case err != nil:
		return err
	case readOnly:
		return errReadOnly
	}
	var seconds *string
	var head *int64
	if err := tx.Query(ctx, r.sql.oldest, nil, func(scan func(...any) error) error { return scan(&seconds, &head) }); err != nil {
		return err
	}
	if seconds != nil {
		age, _ := strconv.ParseFloat(*seconds, 64)
		seen.oldest, seen.head = max(0, time.Duration(age*float64(time.Second))), deref(head)
	}
	return nil
}

// countLimit is up to where rows are counted with each look.
const countLimit = 10_000

// count counts rows, so many of each state at most; 0 is no limit.
func (r *running) count(ctx context.Context, tx Tx, limit int64, seen *look) (readOnly bool, err error) {
	var most any
	if limit > 0 {
		most = strconv.FormatInt(limit, 10)
	}
	err = tx.Query(ctx, r.sql.backlog, []any{most}, func(scan func(...any) error) error {
		return scan(&seen.backlog, &seen.blocked, &seen.inFlight, &readOnly)
	})
	return readOnly, err
}

// countAll counts all rows, unless that was done a moment ago or takes too long: an estimate is told then.
func (r *running) countAll(ctx context.Context, seen *look) {
	if !r.status.countAgain() {
		r.status.estimate(seen)
		return
	}
	begun, all := time.Now(), *seen
	err := r.inTx(ctx, func(ctx context.Context, tx Tx) error {
		_, err := r.count(ctx, tx, 0, &all)
		return err
	})
	if err == nil {
		*seen = all
	}
	r.status.counted(seen, err == nil, time.Since(begun))
}

// sweep deletes rows that were kept long enough, unless another relay is at it.
func (r *running) sweep(ctx context.Context, tx Tx) (more bool, err error) {
	if r.cfg.Keep <= 0 {
		return false, nil
	}
	var mine bool
	if err := tx.Query(ctx, r.sql.sweepLock, []any{r.tables.event}, func(scan func(...any) error) error { return scan(&mine) }); err != nil || !mine {
		return false, err
	}
	n, err := tx.Exec(ctx, r.sql.sweep, interval(r.cfg.Keep))
	return n == 5000, err
}

// cleanUp returns rows of relays that died and whose buckets nobody has leased since.
func (r *running) cleanUp(ctx context.Context) error {
	return r.inTx(ctx, func(ctx context.Context, tx Tx) error {
		n, err := tx.Exec(ctx, r.sql.cleanUp, strconv.Itoa(r.cfg.MaxClaims))
		if err == nil && n > 0 {
			r.status.returned(n)
			r.log.Warn("outbox: rows of a relay that ended while it held them are sent again", slog.Int64("rows", n))
		}
		return err
	})
}
