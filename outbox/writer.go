package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/schema"
)

// WriterConfig is what is optional about a writer. A nil WriterConfig, or a zero field, is the default.
type WriterConfig struct {
	// Tables says where the tables are, as for schema.Postgres.Apply. By default the search_path finds outbox_event.
	Tables *schema.Config

	// MaxBytes is the largest record that Write accepts, in bytes. Defaults to DefaultMaxBytes.
	MaxBytes int

	// LockKeys takes a lock per key until the end of the transaction, before the rows get their numbers. Set it where
	// nothing else serialises the writers of a key: without it, two transactions that write events of one key at once
	// may commit in another order than the one in which their events are sent. A writer that updates, or locks, the
	// row of the entity before it writes the event needs no other lock. The keys of one Write are locked in one
	// order; two Writes in one transaction can deadlock with another transaction's, which PostgreSQL ends with an
	// error.
	LockKeys bool
}

// Writer makes the statement of a Write. It is for the writers of drivers: use pgxoutbox, sqloutbox or bunoutbox. It
// is safe for concurrent use.
type Writer struct {
	tables   outboxsql.Tables
	located  atomic.Pointer[string] // the table with its schema, in SQL
	place    sqltable.Place
	bare     string // the table's name in the catalogue; empty if the configuration names its schema
	maxBytes int
	lockKeys bool
}

// NewWriter returns a Writer.
func NewWriter(cfg *WriterConfig) *Writer {
	if cfg == nil {
		cfg = &WriterConfig{}
	}
	w := &Writer{tables: outboxsql.NewTables(cfg.Tables), maxBytes: cfg.MaxBytes, lockKeys: cfg.LockKeys}
	if w.maxBytes <= 0 {
		w.maxBytes = DefaultMaxBytes
	}
	switch {
	case cfg.Tables == nil:
		w.bare = outboxsql.EventTable
	case cfg.Tables.Schema == "":
		w.bare = cmp.Or(cfg.Tables.Tables[outboxsql.EventTable], outboxsql.EventTable)
	}
	return w
}

// Locate finds the table, if it is not known, by a query in the transaction: what functions leave in their sessions
// changes nothing from then on. A table that is not there is left to the statement.
func (w *Writer) Locate(ctx context.Context, ask schema.Query) error {
	if w.bare == "" || w.located.Load() != nil {
		return nil
	}
	in, err := w.place.Find(ctx, sqltable.Query(ask), w.bare)
	switch {
	case errors.Is(err, sqltable.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("outbox: look for the table: %w", err)
	}
	name := sqltable.Name(in, w.bare)
	w.located.Store(&name)
	return nil
}

// ErrSwallowed is returned where an event was written and is not in the table.
var ErrSwallowed = errors.New("outbox: an event is not in the table: " +
	"a trigger or a rule swallows what is inserted: remove it")

// Written reports whether all events are in the table, after the statement has said that it inserted rows of them.
func (w *Writer) Written(rows int64, events []Event) error {
	if rows != int64(len(events)) {
		return ErrSwallowed
	}
	return nil
}

// Arrays says how a driver takes an array as the argument of a statement.
type Arrays int

// The ways.
const (
	TextArrays   Arrays = iota // as PostgreSQL's text of an array: any driver can
	NativeArrays               // as []string, [][]byte and []*int32: pgx can
)

// Statement validates the events and returns the one statement that inserts them, and its arguments. Without events
// it returns "". The error wraps ErrInvalidEvent, and says which event is wrong.
func (w *Writer) Statement(ctx context.Context, events []Event, arrays Arrays) (sql string, args []any, err error) {
	if len(events) == 0 {
		return "", nil, nil
	}
	n := len(events)
	ids, topics := make([]string, n), make([]string, n)
	keys, values, headers := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	partitions := make([]*int32, n)
	for i, e := range events {
		if e.ID == "" {
			e.ID = NewID()
		}
		e.Headers = withTrace(ctx, e.Headers)
		if err := e.validate(w.maxBytes); err != nil {
			return "", nil, fmt.Errorf("outbox: event %d of %d: %w", i+1, n, err)
		}
		ids[i], topics[i], keys[i], values[i], headers[i] = e.ID, e.Topic, e.Key, e.Value, EncodeHeaders(e.Headers)
		partitions[i] = e.Partition
	}
	if arrays == NativeArrays {
		return w.sql(""), []any{ids, topics, keys, values, headers, partitions}, nil
	}
	return w.sql("::text"), []any{
		outboxsql.TextArray(ids), outboxsql.TextArray(topics), outboxsql.ByteaArray(keys), outboxsql.ByteaArray(values),
		outboxsql.ByteaArray(headers), outboxsql.IntArray(partitions),
	}, nil
}

// sql is the statement. The rows get their numbers in the order of the events, and after the locks.
func (w *Writer) sql(cast string) string {
	table := w.tables.Event
	if found := w.located.Load(); found != nil {
		table = *found
	}
	text := `insert into ` + table + ` (event_id, topic, partition_key, payload, headers, partition)
select e.event_id, e.topic, e.partition_key, e.payload, e.headers, e.partition
from unnest($1` + cast + `::text[], $2` + cast + `::text[], $3` + cast + `::bytea[], $4` + cast + `::bytea[],
    $5` + cast + `::bytea[], $6` + cast + `::int[])
  with ordinality as e (event_id, topic, partition_key, payload, headers, partition, place)`
	if w.lockKeys {
		text = `with locked as materialized (
  select pg_advisory_xact_lock(key) from (
    select distinct hashtextextended(k.topic || chr(31) || encode(k.partition_key, 'hex'), 9) as key
    from unnest($2` + cast + `::text[], $3` + cast + `::bytea[]) as k (topic, partition_key)
    where k.partition_key is not null order by key) as keys)
` + text + `
where (select count(*) from locked) >= 0`
	}
	return text + "\norder by e.place"
}
