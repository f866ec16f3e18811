package relay

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/outbox"
)

// lookInterval is how often the table is looked at as a whole.
const lookInterval = 5 * time.Second

// maintenance looks at the table from time to time, removes what was kept long enough, and returns rows of relays
// that died.
type maintenance struct {
	cfg    *Config
	table  *table
	status *statusKeeper
	log    *slog.Logger
	fatal  chan<- error // why Run must end

	outages *outageLogs
}

// run goes on until ctx is done, or the table is sent in another mode.
func (m *maintenance) run(ctx context.Context) {
	var cleaned time.Time
	for ctx.Err() == nil {
		more, err := m.look(ctx)
		if err == nil && m.cfg.Mode == outbox.TwoPhase && time.Since(cleaned) > m.cfg.LeaseTTL/4 {
			err = m.cleanUp(ctx)
			cleaned = time.Now()
		}
		m.status.looked(err)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrOtherMode):
			m.fatal <- err
			return
		case err != nil:
			m.status.failed(err)
			m.outages.database.failed(lineLook, err)
		default:
			m.outages.database.works(lineLook)
		}
		if !more {
			sleep(ctx, jitter(min(lookInterval, m.cfg.LeaseTTL/4)))
		}
	}
}

// look reads what Status tells of the table, checks the mode, and sweeps. It reports whether there is more to sweep.
func (m *maintenance) look(ctx context.Context) (more bool, err error) {
	seen := look{at: time.Now()}
	err = m.table.inTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		if err := m.table.checkMode(ctx, tx); err != nil {
			return err
		}
		if err := m.measure(ctx, tx, &seen); err != nil {
			return err
		}
		more, err = m.sweep(ctx, tx)
		return err
	})
	if err != nil {
		return false, err
	}
	if seen.large() {
		m.countAll(ctx, &seen)
	}
	m.status.saw(seen)
	return more, nil
}

// errReadOnly is why nothing can be sent by a database that answers.
var errReadOnly error = readOnly{}

type readOnly struct{}

func (readOnly) Error() string {
	return "the database is read-only, a standby for example: connect to the primary"
}

// SQLState is the code with which the server would refuse to write: a connection to a standby is not to be kept.
func (readOnly) SQLState() string { return "25006" }

// measure reads what Status tells of the table.
func (m *maintenance) measure(ctx context.Context, tx outbox.Tx, seen *look) error {
	readOnly, err := m.count(ctx, tx, countLimit+1, seen)
	switch {
	case err != nil:
		return err
	case readOnly:
		return errReadOnly
	}
	var seconds *string
	var head *int64
	err = tx.Query(ctx, m.table.sql.oldest, nil, func(scan func(...any) error) error { return scan(&seconds, &head) })
	if err != nil {
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
func (m *maintenance) count(ctx context.Context, tx outbox.Tx, limit int64, seen *look) (readOnly bool, err error) {
	var most any
	if limit > 0 {
		most = strconv.FormatInt(limit, 10)
	}
	err = tx.Query(ctx, m.table.sql.backlog, []any{most}, func(scan func(...any) error) error {
		return scan(&seen.backlog, &seen.blocked, &seen.inFlight, &readOnly)
	})
	return readOnly, err
}

// countAll counts all rows, unless that was done a moment ago or takes too long: an estimate is told then.
func (m *maintenance) countAll(ctx context.Context, seen *look) {
	if !m.status.countAgain() {
		m.status.estimate(seen)
		return
	}
	begun, all := time.Now(), *seen
	err := m.table.inTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		_, err := m.count(ctx, tx, 0, &all)
		return err
	})
	if err == nil {
		*seen = all
	}
	m.status.counted(seen, err == nil, time.Since(begun))
}

// sweep deletes rows that were kept long enough, unless another relay is at it.
func (m *maintenance) sweep(ctx context.Context, tx outbox.Tx) (more bool, err error) {
	if m.cfg.Keep <= 0 {
		return false, nil
	}
	var mine bool
	args := []any{m.table.names.Event}
	err = tx.Query(ctx, m.table.sql.sweepLock, args, func(scan func(...any) error) error { return scan(&mine) })
	if err != nil || !mine {
		return false, err
	}
	n, err := tx.Exec(ctx, m.table.sql.sweep, interval(m.cfg.Keep))
	return n == 5000, err
}

// cleanUp returns rows of relays that died and whose buckets nobody has leased since.
func (m *maintenance) cleanUp(ctx context.Context) error {
	return m.table.inTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		n, err := tx.Exec(ctx, m.table.sql.cleanUp, strconv.Itoa(m.cfg.MaxClaims))
		if err == nil && n > 0 {
			m.status.returned(n)
			m.log.Warn("outbox: rows of a relay that ended while it held them are sent again", slog.Int64("rows", n))
		}
		return err
	})
}
