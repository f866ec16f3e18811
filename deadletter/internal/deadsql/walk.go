package deadsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/einmal-go/einmal/deadletter"
)

// walk looks for what a search finds. What an index finds in the order of the ids is asked for directly. Otherwise the
// indexes tell whether the event, the key, the consumer with kind and error, or the window of time leave a few rows
// only, each of which is looked at then: a planner that guesses would combine indexes of millions. If they do not, the table is gone through, a stretch of ids at a time, until the page is full or
// the time is up.
type walk struct {
	*base

	conn   Conn
	name   string // of the table, as it stands in SQL
	search deadletter.Search
	page   deadletter.Page

	few         func(c *conditions) // conditions that only a few rows meet; nil if there are none
	first, last int64               // what is looked for has ids from first to last
}

const (
	// fewRows are so few that each of them can be looked at.
	fewRows = 10_000
	// boundedRows is how many entries of the index of the times are looked at to know the first and the last id of a window.
	boundedRows = 500_000
	// stretchRows is how many rows are looked at by one statement.
	stretchRows = 20_000
)

// list returns the page.
func (w *walk) list(ctx context.Context) ([]*deadletter.Record, error) {
	begun := time.Now()
	if err := w.narrow(ctx); err != nil {
		return nil, err
	}
	if w.few != nil || w.served() || w.search.Event != "" || w.search.Key != nil {
		where := w.where()
		w.behind(where)
		return w.rows(ctx, where, w.limit())
	}
	deadline, _ := ctx.Deadline()
	return w.through(ctx, begun.Add(deadline.Sub(begun)*6/10)) // so that the last stretch ends in time
}

// served reports whether an index has exactly what is looked for, in the order of the ids.
func (w *walk) served() bool {
	s := &w.search
	switch {
	case len(s.IDs) > 0:
		return true
	case s.Text != "" || s.Topic != "" || !s.Since.IsZero() || !s.Until.IsZero():
		return false
	case s.Consumer == "" && s.Kind == "" && s.ErrorType == "" && !s.NoErrorType:
		return s.Event == "" || s.Key == nil
	}
	return w.wholeGroup() && s.Event == "" && s.Key == nil
}

// wholeGroup reports whether the search names a group, see deadletter.Group.
func (w *walk) wholeGroup() bool {
	s := &w.search
	return s.Consumer != "" && s.Kind != "" && (s.ErrorType != "" || s.NoErrorType)
}

// group adds the conditions of the index of the groups.
func (w *walk) group(c *conditions) {
	s := &w.search
	of := deadletter.Search{Filter: deadletter.Filter{Consumer: s.Consumer, Kind: s.Kind}}
	if s.Kind != "" {
		of.ErrorType, of.NoErrorType = s.ErrorType, s.NoErrorType
	}
	c.find(&of)
}

// window adds the conditions of the index of the times.
func (w *walk) window(c *conditions) {
	c.filter(deadletter.Filter{Since: w.search.Since, Until: w.search.Until})
}

// narrow finds out what the indexes know of.
func (w *walk) narrow(ctx context.Context) error {
	w.last = math.MaxInt64
	if w.served() {
		return nil
	}
	type set struct {
		meets func(c *conditions)
		most  int64 // how many entries of its index are looked at
	}
	var known []set
	for _, one := range []deadletter.Search{{Event: w.search.Event}, {Key: w.search.Key}} {
		if one.Event != "" || one.Key != nil {
			known = append(known, set{func(c *conditions) { c.find(&one) }, fewRows})
		}
	}
	if w.search.Consumer != "" {
		known = append(known, set{w.group, fewRows})
	}
	if !w.search.Since.IsZero() || !w.search.Until.IsZero() {
		known = append(known, set{w.window, boundedRows})
	}
	for _, s := range known {
		c := &conditions{dialect: w.dialect}
		s.meets(c)
		var n, first, last int64
		err := w.row(ctx, fmt.Sprintf("select count(*), coalesce(min(id), 0), coalesce(max(id), 0) from (select id from %s%s limit %d) entries",
			w.name, c.where(), s.most+1), c.args, &n, &first, &last)
		switch {
		case err != nil:
			return err
		case n <= fewRows:
			w.few = s.meets
			return nil
		case n <= s.most:
			w.first, w.last = max(w.first, first), min(w.last, last)
		}
	}
	return nil
}

// where are the conditions of the search.
func (w *walk) where() *conditions {
	c := &conditions{dialect: w.dialect}
	c.find(&w.search)
	w.bounds(c)
	return c
}

func (w *walk) bounds(c *conditions) {
	if w.first > 0 {
		c.add("id >= %s", w.first)
	}
	if w.last < math.MaxInt64 {
		c.add("id <= %s", w.last)
	}
}

// behind adds the condition of the page.
func (w *walk) behind(c *conditions) {
	switch {
	case w.page.Beyond <= 0:
	case w.page.OldestFirst:
		c.add("id > %s", w.page.Beyond)
	default:
		c.add("id < %s", w.page.Beyond)
	}
}

// from is the table, or the few rows of it. A database does not look beyond a limit within.
func (w *walk) from(c *conditions) string {
	if w.few == nil {
		return w.name
	}
	within := &conditions{dialect: w.dialect, args: c.args}
	w.few(within)
	c.args = within.args
	return fmt.Sprintf("(select * from %s%s limit %d) rows", w.name, within.where(), //nolint:unqueryvet // as the table itself
		fewRows+1)
}

func (w *walk) order() string {
	if w.page.OldestFirst {
		return "asc"
	}
	return "desc"
}

func (w *walk) limit() int {
	return min(maxPage, cmp.Or(max(0, w.page.Limit), deadletter.DefaultPageLimit))
}

// rows returns those that meet the conditions.
func (w *walk) rows(ctx context.Context, c *conditions, limit int) ([]*deadletter.Record, error) {
	text := fmt.Sprintf("select %s, %s, key is not null from %s%s order by id %s limit %d", w.dialect.columns(false),
		w.dialect.keyStart(), w.from(c), c.where(), w.order(), limit)
	return browsed(ctx, w.conn, text, c.args)
}

// through goes through the table until the page is full, or the time is up.
func (w *walk) through(ctx context.Context, until time.Time) (list []*deadletter.Record, err error) {
	var seen deadletter.PartialError
	for {
		end, died, more, err := w.stretch(ctx)
		var found []*deadletter.Record
		if err == nil {
			c := w.where()
			w.behind(c)
			if more && w.page.OldestFirst {
				c.add("id <= %s", end)
			} else if more {
				c.add("id >= %s", end)
			}
			found, err = w.rows(ctx, c, w.limit()-len(list))
		}
		list = append(list, found...)
		switch {
		case err != nil && seen.Looked > 0 && tooLong(ctx, err):
			return list, &seen
		case err != nil, !more, len(list) == w.limit():
			return list, err
		}
		w.page.Beyond = end
		if seen.Looked, seen.Beyond, seen.Died = seen.Looked+stretchRows, end, died; time.Now().After(until) {
			return list, &seen
		}
	}
}

// stretch returns the last row of the next stretch. Without more it is the rest of the table.
func (w *walk) stretch(ctx context.Context) (end int64, died time.Time, more bool, err error) {
	c := &conditions{dialect: w.dialect}
	if w.wholeGroup() {
		w.group(c)
	}
	w.bounds(c)
	w.behind(c)
	var at any
	err = w.row(ctx, fmt.Sprintf("select id, %s from %s where id = (select id from %[2]s%s order by id %s limit 1 offset %d)",
		w.dialect.moment("died_at"), w.name, c.where(), w.order(), stretchRows-1), c.args, &end, &at)
	if errors.Is(err, errNoRow) {
		return 0, died, false, nil
	}
	return end, readTime(at), err == nil, err
}

var errNoRow = errors.New("no row")

// row reads the only row of an answer.
func (w *walk) row(ctx context.Context, text string, args []any, into ...any) error {
	rows, err := w.conn.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		err = errNoRow
	} else {
		err = rows.Scan(into...)
	}
	return cmp.Or(rows.Err(), rows.Close(), err)
}
