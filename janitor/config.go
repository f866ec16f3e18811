package janitor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/safelog"
	"github.com/einmal-go/einmal/schema"
)

// Defaults of Config, Table and Partitions.
const (
	// DefaultBatch is short: about 3 ms, for which the redelivery of one of its events waits.
	DefaultBatch = 1000
	// DefaultPause makes, with DefaultBatch, at most 10,000 rows a second: more than a service records, little beside it.
	DefaultPause = 100 * time.Millisecond
	// DefaultInterval is how often rows that have grown old are looked for; a sweep that finds none costs four round
	// trips.
	DefaultInterval = time.Minute
	// DefaultMargin covers what makes an event look younger than it is: producers' clocks, which Kafka lets run an hour
	// ahead (message.timestamp.after.max.ms), and an hour for other clocks, and for a message on its way from the look at
	// its age to its record.
	DefaultMargin = 2 * time.Hour
	// DefaultPartitionWidth makes a partition a day.
	DefaultPartitionWidth = 24 * time.Hour
	// DefaultPartitionsAhead leaves a weekend for finding out why there is none for tomorrow.
	DefaultPartitionsAhead = 4
)

// Config is what a janitor sweeps, and how. The zero value of every optional field is its documented default.
type Config struct {
	// Tables are swept one after the other. Required.
	Tables []Table

	// Batch is the number of rows that one transaction deletes at most. Larger ones make redeliveries of their events wait
	// for longer, and replicas lag. Default: DefaultBatch.
	Batch int

	// Pause is the time between two batches of a sweep, give or take a half. At most a minute. Default: DefaultPause.
	Pause time.Duration

	// Interval is the time between two sweeps of Run, give or take a half. Default: DefaultInterval.
	Interval time.Duration

	// OnSweep is called after the sweep of each table, for metrics. It must be safe for concurrent use if Sweep is called
	// concurrently, and the janitor waits for it.
	OnSweep func(Report)

	// Logger is told of sweeps that have deleted something (info) or failed (warning). Default: slog.Default().
	Logger *slog.Logger
}

// Table names a table and says which of its rows are deleted: those whose Column is older than Keep and Margin
// together.
type Table struct {
	// Schema is the schema of the table, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds the table, at the first sweep: from then on it stays the same. SQLite has no schemas.
	Schema string

	// Name is spelled as in the catalogue, without quotes: "processed_event". Required.
	Name string

	// Column is the column of times, spelled likewise: "processed_at", or "expires_at" of idempotency_key. It needs a
	// B-tree index. Required, unless Partitions is set.
	Column string

	// Keep is how long rows are kept. For records of events, it is at least middleware.DedupConfig.Window: let both be one
	// constant. Where Column has the times of expiry, it is how long rows are kept after those, an hour for example. There
	// is no default, because there is none that loses nothing. Required.
	Keep time.Duration

	// Dedup are the handlers, as middleware.Dedup returns them, whose records are in the table. New refuses a Keep that is
	// shorter than the Window of one of them, and a handler without a Window: an event whose record is deleted would take
	// effect again. Where the handlers are made elsewhere, in another process for example, a Window stands for them.
	// Default: none; then nobody can compare, and the janitor of a table of records (one with the column processed_at, or
	// with Partitions) logs a warning when it is made.
	Dedup []any

	// Margin is how much longer rows are kept. Default: DefaultMargin.
	Margin time.Duration

	// Where is a condition that rows must meet, too, in SQL: "status = 'PUBLISHED'". It is put into the statement as it
	// is, so it must not come from outside. Default: none.
	Where string

	// Partitions makes the janitor drop whole partitions of a table that is partitioned by ranges of UUIDv7 ids, and
	// create the next ones in time. No rows are deleted then. PostgreSQL only. Default: nil, rows are deleted; also in a
	// table that is partitioned by hash.
	Partitions *Partitions

	place *place // where the table is, unless Schema says it
}

// Partitions looks after a table that is partitioned by ranges of one column of UUIDv7 ids, of type uuid or text
// collate "C".
//
// Partitions are created without a lock that a consumer would wait for, by attaching an empty table. A partition is
// dropped when all ids that fit into it are older than Keep and Margin. It is detached CONCURRENTLY first, so that no
// consumer waits, whatever runs; an event that comes later finds no partition, and is refused with
// dedupstore.ErrTooOld. A DEFAULT partition would take it, and let it take effect again: as long as there is one,
// nothing is dropped, and the sweep fails, saying so. It is never dropped itself.
//
// The role must own the table. While partitions are dropped, a second connection holds the lock, so a pool of one does
// not do.
type Partitions struct {
	// Width is the time whose ids fit into one new partition. Default: DefaultPartitionWidth.
	Width time.Duration

	// Ahead is the number of partitions that are kept ready for times to come. Default: DefaultPartitionsAhead.
	Ahead int
}

// Window stands for handlers with that middleware.DedupConfig.Window.
type Window time.Duration

// Window makes it a consumer.Windower.
func (w Window) Window() time.Duration { return time.Duration(w) }

// withDefaults returns a copy with what is not set filled in.
func (c Config) withDefaults() Config {
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	c.Pause = cmp.Or(c.Pause, DefaultPause)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Logger = safelog.Logger(c.Logger)
	tables := make([]Table, len(c.Tables))
	for i, t := range c.Tables {
		t.Margin = cmp.Or(t.Margin, DefaultMargin)
		if t.Partitions != nil {
			t.Partitions = &Partitions{
				Width: cmp.Or(t.Partitions.Width, DefaultPartitionWidth),
				Ahead: cmp.Or(t.Partitions.Ahead, DefaultPartitionsAhead),
			}
		}
		t.place = &place{}
		tables[i] = t
	}
	c.Tables = tables
	return c
}

const maxPause = time.Minute

// validate reports all that is wrong with a Config that has its defaults.
func (c Config) validate(d schema.Dialect) error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf("janitor: "+format, args...)) }
	if d != schema.Postgres && d != schema.SQLite {
		add("the dialect %q is not known: use schema.Postgres or schema.SQLite", d)
	}
	if len(c.Tables) == 0 {
		add("Config.Tables is empty: name a table, its column of times, and how long rows are kept")
	}
	if c.Batch < 0 || c.Batch > math.MaxInt32 {
		add("Config.Batch is %d: make it a positive number, or 0 for the default", c.Batch)
	}
	if c.Pause < 0 || c.Pause > maxPause {
		add("Config.Pause is %v: make it at most %v, or 0 for the default", c.Pause, maxPause)
	}
	if c.Interval < 0 {
		add("Config.Interval is %v: make it positive, or 0 for the default", c.Interval)
	}
	for i, t := range c.Tables {
		for _, err := range t.problems(d) {
			add("Config.Tables[%d]%s: %w", i, t.title(), err)
		}
	}
	return errors.Join(errs...)
}

func (t Table) title() string {
	if t.Name == "" {
		return ""
	}
	return " (" + t.String() + ")"
}

// problems are those of one Table.
func (t Table) problems(d schema.Dialect) (errs []error) {
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.Name == "" {
		add("Name is empty: give the table's name")
	}
	if t.Column == "" && t.Partitions == nil {
		add("Column is empty: name the column of times by which rows grow old")
	}
	for _, name := range []string{t.Schema, t.Name, t.Column} {
		if strings.ContainsAny(name, "\x00$?") {
			add("a name contains NUL, $ or ?, which drivers take for something else: use another name")
		}
	}
	errs = append(errs, t.keepProblems()...)
	if t.Margin < 0 || t.Margin > maxKeep {
		add("Margin is %v: make it at most %v, or 0 for the default", t.Margin, maxKeep)
	}
	if d == schema.SQLite && t.Schema != "" {
		add("Schema is set, but SQLite has none: leave it empty")
	}
	if t.Partitions != nil {
		errs = append(errs, t.partitionProblems(d)...)
	}
	return errs
}

// keepProblems are those of Keep, by itself and against the windows in which events are taken.
func (t Table) keepProblems() (errs []error) {
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case t.Keep == 0:
		add("Keep is not set: say how long rows are kept; for records of events at least DedupConfig.Window, see docs/retention.md")
	case t.Keep < 0:
		add("Keep is %v: make it positive", t.Keep)
	case t.Keep > maxKeep:
		add("Keep is %v: make it at most %v", t.Keep, maxKeep)
	}
	for i, handler := range t.Dedup {
		switch h, ok := handler.(interface{ Window() time.Duration }); {
		case !ok:
			add("Dedup[%d] is a %T: pass a handler as middleware.Dedup returns it, without the middlewares around it, or a janitor.Window", i, handler)
		case h.Window() <= 0:
			add("Dedup[%d] has no Window, so it takes events whose records are deleted, and they take effect again: set DedupConfig.Window to %v or less", i, t.Keep)
		case h.Window() > t.Keep:
			add("Keep is %v, and Dedup[%d] takes events up to an age of %v: records are deleted before, and the events take effect again; make Keep at least as long", t.Keep, i, h.Window())
		}
	}
	return errs
}

// maxKeep is a hundred years, so that sums of durations cannot overflow.
const maxKeep = 100 * 365 * 24 * time.Hour

// maxPartitions keeps planning cheap, and a slip in Width from filling the catalogue.
const maxPartitions = 1000

func (t Table) partitionProblems(d schema.Dialect) (errs []error) {
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf("Partitions"+format, args...)) }
	p := t.Partitions
	if d != schema.Postgres {
		add(" is set, but only PostgreSQL has partitions: leave it out")
	}
	if t.Where != "" {
		add(" and Where are both set: a partition is dropped as a whole, leave one of them out")
	}
	switch {
	case p.Width < time.Millisecond:
		add(".Width is %v: make it at least a millisecond, or 0 for the default", p.Width)
	case p.Ahead < 0:
		add(".Ahead is %d: make it positive, or 0 for the default", p.Ahead)
	case t.age()/p.Width+time.Duration(p.Ahead) > maxPartitions:
		add(": Keep, Margin and Ahead make more than %d partitions of %v: make Width larger", maxPartitions, p.Width)
	}
	return errs
}

// unchecked reports whether the table has records of events, and nobody has said for which handlers.
func (t Table) unchecked() bool {
	return len(t.Dedup) == 0 && (t.Column == "processed_at" || t.Partitions != nil)
}

// age is that of the oldest row that is kept.
func (t Table) age() time.Duration { return t.Keep + t.Margin }

// String returns the name as it stands in logs.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// sql is the table as it stands in SQL.
func (t Table) sql() string { return t.beside(quote(t.Name)) }

// beside is another name of the table's schema, as it stands in SQL.
func (t Table) beside(name string) string {
	in := t.Schema
	if in == "" && t.place != nil {
		in = t.place.schema()
	}
	if in == "" {
		return name
	}
	return quote(in) + "." + name
}

// quote makes an identifier of a name as it is spelled in the catalogue.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
