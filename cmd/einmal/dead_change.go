package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
)

// chosen are the dead letters that a command is about to change, as they are before it begins.
type chosen struct {
	ids     map[int64]bool
	missing bool // some that were named are not there
	text    string
}

// pageOf is how many dead letters are read in one query.
const pageOf = 1000

// choose looks at them, and says on warn which of those that were named are not there, or excluded by the flags.
func (f *deadFlags) choose(ctx context.Context, warn io.Writer, table *sqldeadletter.Table) (*chosen, error) {
	c, kinds := &chosen{ids: map[int64]bool{}}, map[string]int{}
	var oldest time.Time
	for after := int64(0); ; {
		list, err := table.List(ctx, f.filter, after, pageOf)
		if err != nil {
			return nil, err
		}
		for _, rec := range list {
			if after = rec.ID; len(c.ids) == 0 {
				oldest = rec.Died
			}
			c.ids[rec.ID] = true
			kinds[fmt.Sprintf("%s of %s, %s", plain(rec.Topic), plain(rec.Consumer), plain(string(rec.Kind)))]++
		}
		if len(list) < pageOf {
			break
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		c.text += fmt.Sprintf("    %d of %s\n", kinds[kind], kind)
	}
	if len(c.ids) > 0 {
		c.text += fmt.Sprintf("    the oldest died at %s\n", oldest.Format(time.RFC3339))
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.filter.IDs))) {
		if !c.ids[id] {
			fmt.Fprintf(warn, "einmal: %d is no dead letter, or not any more, or the flags exclude it\n", id)
			c.missing = true
		}
	}
	return c, nil
}

// warnOrder says of dead letters with a key that some of the key would overtake others: those that stood before them in
// their partition and are not chosen, or held.
func (c *chosen) warnOrder(ctx context.Context, warn io.Writer, db *sql.DB, w *wanted,
	filter *deadletter.Filter) error {
	rows, err := db.QueryContext(ctx, `select id, topic, "partition", "key", kind from `+tableName(w, "dead_message")+ //nolint:gosec // the name is quoted
		` where "key" is not null order by consumer_id, topic, "partition", "key", kafka_offset, id`)
	if err != nil {
		return fmt.Errorf("look at the order of the dead letters: %w", err)
	}
	defer rows.Close()
	var last string
	var left bool // one of the key that is not chosen stands before
	overtaken := 0
	for rows.Next() {
		var id int64
		var topic, key string
		var partition int32
		var kind deadletter.Kind
		if err := rows.Scan(&id, &topic, &partition, &key, &kind); err != nil {
			return err
		}
		if group := fmt.Sprintf("%q %d %q", topic, partition, key); group != last {
			last, left = group, false
		}
		switch {
		case !c.ids[id], filter.Holds(kind):
			left = true
		case left:
			overtaken++
		}
	}
	if overtaken > 0 {
		fmt.Fprintf(warn, "einmal: %d overtake dead letters of their keys that are not chosen, or held because of their kind, which stood before them: choose those too, if the order matters\n", overtaken)
	}
	return rows.Err()
}

// tableName is a table in SQL.
func tableName(w *wanted, table string) string {
	name := table
	if other := w.cfg.Tables[table]; other != "" {
		name = other
	}
	if w.cfg.Schema == "" {
		return pgx.Identifier{name}.Sanitize()
	}
	return pgx.Identifier{w.cfg.Schema, name}.Sanitize()
}

// deadDone is what a command says in the end: errNo if some that were named were not there.
func (c *chosen) deadDone(err error) error {
	if err == nil && c.missing {
		return errNo
	}
	return err
}

// show says what is about to happen.
func (c *chosen) show(to io.Writer, what string) {
	fmt.Fprintf(to, "to %s: %d\n%s", what, len(c.ids), c.text)
}
