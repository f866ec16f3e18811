package janitor

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/einmal-go/einmal/schema"
)

// Janitor sweeps tables. It is safe for concurrent use.
type Janitor struct {
	db      *sql.DB
	cfg     Config
	dialect dialect

	mu       sync.Mutex
	sweeping int
	tables   []TableStatus
}

// dialect is what differs between databases.
type dialect interface {
	// batch deletes some of the oldest rows whose time is not before from, which is empty at first. pause is called once,
	// while nothing is held that a consumer waits for; its error ends the batch.
	batch(ctx context.Context, conn *sql.Conn, t *Table, from string, pause func() error) (batch, error)
}

// batch is what became of one.
type batch struct {
	busy    bool // another janitor is at work
	deleted int64
	full    bool   // there may be more
	upTo    string // time of the last row, in the form of from
}

// New returns a Janitor on db, which stays the caller's to close, after Run has returned. A sweep takes one connection
// and gives it back. It does no input or output; the error lists all that is wrong with the arguments.
func New(db *sql.DB, d schema.Dialect, cfg Config) (*Janitor, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate(d)
	if db == nil {
		err = errors.Join(errors.New("janitor: the database is nil: open one with sql.Open, or pgx's stdlib.OpenDB"), err)
	}
	if err != nil {
		return nil, err
	}
	j := &Janitor{db: db, cfg: cfg, dialect: postgres{cfg.Batch}}
	if d == schema.SQLite {
		j.dialect = sqlite{cfg.Batch}
	}
	for _, t := range cfg.Tables {
		if d == schema.SQLite {
			t.place.in.Store(new(mainSchema))
		}
		if t.unchecked() {
			cfg.Logger.Warn("einmal: nobody has compared how long records are kept with the window in which events are taken: an event whose record is deleted takes effect again; "+
				"set Table.Dedup to the handlers of middleware.Dedup, whose DedupConfig.Window must not be longer than Keep",
				slog.String("db.collection.name", t.String()), slog.Float64("keep_seconds", t.Keep.Seconds()))
		}
		j.tables = append(j.tables, TableStatus{Table: t.String()})
	}
	return j, nil
}

// Run sweeps at once and then every Config.Interval, until ctx is done; then it rolls back the batch in work, and
// returns nil. A sweep that failed is repeated after 1 s, then twice as long each time up to 1 min.
func (j *Janitor) Run(ctx context.Context) error {
	for failures := 0; ; {
		_, err := j.Sweep(ctx)
		delay := jitter(j.cfg.Interval)
		if failures++; err == nil {
			failures = 0
		} else {
			delay = jitter(backoff(failures))
		}
		if stopped := sleep(ctx, delay); stopped != nil {
			return nil //nolint:nilerr // a failure does not end it, and the context's end is none
		}
	}
}

// Sweep sweeps all tables once, until nothing is left that is old enough, and returns a report for each, whether or not
// there is an error: the errors of the reports joined, or that of ctx. It is for those who have a clock of their own,
// cron for example. That another janitor is at work is no error: see Report.Busy.
func (j *Janitor) Sweep(ctx context.Context) ([]Report, error) {
	j.begin(1)
	defer j.begin(-1)
	var reports []Report
	var errs []error
	for i := range j.cfg.Tables {
		if ctx.Err() != nil {
			break
		}
		r := j.sweep(ctx, &j.cfg.Tables[i])
		if r.Stopped = r.Err != nil && ctx.Err() != nil; r.Stopped {
			r.Err = nil
		}
		j.count(i, r)
		r.log(j.cfg.Logger)
		if j.cfg.OnSweep != nil {
			j.cfg.OnSweep(r)
		}
		reports, errs = append(reports, r), append(errs, r.Err)
	}
	return reports, errors.Join(append(errs, context.Cause(ctx))...)
}

// Status returns a snapshot.
func (j *Janitor) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Status{Sweeping: j.sweeping > 0, Tables: append([]TableStatus(nil), j.tables...)}
}

func (j *Janitor) begin(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sweeping += n
}

func (j *Janitor) count(table int, r Report) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tables[table].add(r)
}

func (j *Janitor) sweep(ctx context.Context, t *Table) Report {
	r := Report{Table: t.String(), Start: time.Now()}
	if t.Partitions != nil {
		r.Err = sweepPartitions(ctx, j.db, t, &r)
	} else {
		r.Err = j.sweepRows(ctx, t, &r)
	}
	r.Duration = time.Since(r.Start)
	return r
}

// sweepRows deletes batch after batch, each from where the last one ended: what was deleted before stays in the index
// until the next vacuum, and would be passed again each time.
func (j *Janitor) sweepRows(ctx context.Context, t *Table, r *Report) (err error) {
	conn, err := j.db.Conn(ctx)
	if err != nil {
		return explain(t, "connect", err)
	}
	defer func() { release(ctx, conn, err) }()
	for from := ""; ; {
		first := from == ""
		b, err := j.dialect.batch(ctx, conn, t, from, func() error {
			if first {
				return nil
			}
			return sleep(ctx, jitter(j.cfg.Pause))
		})
		if err != nil {
			return err
		}
		if r.Deleted += b.deleted; b.deleted > 0 {
			r.Batches++
		}
		if r.Busy = b.busy; b.busy || !b.full {
			return nil
		}
		from = b.upTo
	}
}

// backoff is the time after so many failures in a row.
func backoff(failures int) time.Duration {
	return min(time.Minute, time.Second<<min(failures-1, 6))
}

// jitter keeps processes that started together apart.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(max(1, d)) //nolint:gosec // jitter is no secret
}

// sleep waits for d, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
