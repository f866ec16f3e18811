package janitor

import (
	"log/slog"
	"time"
)

// Report is what one sweep of one table came to.
type Report struct {
	Table    string
	Start    time.Time
	Duration time.Duration

	Deleted int64 // rows
	Batches int   // transactions that deleted some

	Created []string // partitions that were created
	Dropped []string // partitions that were dropped

	// Busy says that another janitor was at work on the table, so that this one left it alone, or went away half-way.
	Busy bool

	Stopped bool  // the context ended before the sweep did
	Err     error // why it failed
}

// Status is a snapshot of what a janitor has done since New, for a page, a metric, or a test.
type Status struct {
	Sweeping bool          // a sweep is under way
	Tables   []TableStatus // in the order of Config.Tables
}

// TableStatus is what became of one table.
type TableStatus struct {
	Table    string
	Sweeps   int64 // that came to their end
	Busy     int64 // that found another janitor at work
	Failures int64
	Deleted  int64 // rows
	Batches  int64
	Created  int64 // partitions
	Dropped  int64
	Last     Report // of the last sweep; its Table is empty if there was none
}

// add counts a sweep.
func (s *TableStatus) add(r Report) {
	switch {
	case r.Err != nil:
		s.Failures++
	case r.Busy:
		s.Busy++
	case r.Stopped:
	default:
		s.Sweeps++
	}
	s.Deleted += r.Deleted
	s.Batches += int64(r.Batches)
	s.Created += int64(len(r.Created))
	s.Dropped += int64(len(r.Dropped))
	s.Last = r
}

// log says what is worth a line.
func (r Report) log(log *slog.Logger) {
	attrs := []any{
		slog.String("db.collection.name", r.Table), slog.Int64("deleted", r.Deleted), slog.Int("batches", r.Batches),
		slog.Float64("duration_seconds", r.Duration.Seconds()),
	}
	if len(r.Created) > 0 || len(r.Dropped) > 0 {
		attrs = append(attrs, slog.Any("created", r.Created), slog.Any("dropped", r.Dropped))
	}
	switch {
	case r.Err != nil:
		log.Warn("einmal: the janitor's sweep failed, it is repeated", append(attrs, slog.Any("error", r.Err))...)
	case r.Deleted > 0 || len(r.Created) > 0 || len(r.Dropped) > 0:
		log.Info("einmal: the janitor has swept", attrs...)
	case r.Busy:
		log.Debug("einmal: another janitor sweeps", attrs...)
	default:
		log.Debug("einmal: the janitor found nothing", attrs...)
	}
}
