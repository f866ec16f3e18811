package deadsql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/sqlstate"
)

// Beginner is a Conn that can begin a transaction. end gives it up: what is asked there writes nothing.
type Beginner interface {
	Begin(ctx context.Context) (tx Conn, end func() error, err error)
}

var _ deadletter.Browser = (*Table[any])(nil)

const (
	// browseTimeout is how long a question may take whose ctx has no deadline.
	browseTimeout = 5 * time.Second
	// maxPage bounds a page.
	maxPage = 10_000
)

// Browse implements deadletter.Browser.
func (t *Table[Tx]) Browse(ctx context.Context, search deadletter.Search,
	page deadletter.Page) (list []*deadletter.Record, err error) {
	if search.Nothing() {
		return nil, t.invalid
	}
	err = t.browse(ctx, func(ctx context.Context, c Conn, name string) (err error) {
		w := &walk{base: t.base, conn: c, name: name, search: search, page: page}
		list, err = w.list(ctx)
		return err
	})
	return list, err
}

// keyStart is the part of a key that a page has.
func (d *dialect) keyStart() string {
	return fmt.Sprintf("substr(key, 1, %d)", deadletter.MaxBrowsedKey)
}

// browsed reads the rows of a page.
func browsed(ctx context.Context, c Conn, text string, args []any) (list []*deadletter.Record, err error) {
	rows, err := c.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key []byte
		var hasKey bool
		rec, err := scan(rows, false, &key, &hasKey)
		if err != nil {
			return nil, err
		}
		rec.Key = present(key, hasKey)
		list = append(list, rec)
	}
	return list, errors.Join(rows.Err(), rows.Close())
}

// find adds the conditions of a search.
func (c *conditions) find(s *deadletter.Search) {
	c.filter(s.Filter)
	if s.Event != "" {
		c.add("event_id = %s", s.Event)
	}
	if s.NoErrorType {
		c.texts = append(c.texts, "error_type = ''")
	}
	if s.Key != nil {
		c.add(keyIndexed("key")+" = %s", s.Key[:min(len(s.Key), indexedKey)])
		c.add("key = %s", s.Key)
	}
	if s.Text != "" {
		param := c.dialect.param(c.arg("%" + likeEscapes.Replace(s.Text) + "%"))
		var either []string
		for _, column := range []string{"error", "error_type", "redrive_error", "event_id", "topic"} {
			either = append(either, fmt.Sprintf(c.dialect.like(s.Text), column, param))
		}
		c.texts = append(c.texts, "("+strings.Join(either, " or ")+")")
	}
}

// indexedKey is how many bytes of a key its index has, see the files of package schema.
const indexedKey = 512

// keyIndexed is the expression of the index.
func keyIndexed(key string) string { return fmt.Sprintf("substr(%s, 1, %d)", key, indexedKey) }

var likeEscapes = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`) //nolint:gochecknoglobals // it has no state

// groupSQL finds the next group by the index of its columns, one step for each group, and counts no more of it than it
// says: its cost does not grow with the table.
const groupSQL = `with one as (select consumer_id, kind, error_type from %[1]s%[2]s order by consumer_id, kind, error_type limit 1)
select one.consumer_id, one.kind, one.error_type,
  (select count(*) from (select 1 from %[1]s d where %[3]s limit %[4]d) counted),
  %[5]s,
  %[6]s
from one`

// sameGroup is the condition for a row d of the group.
const sameGroup = `d.consumer_id = one.consumer_id and d.kind = one.kind and d.error_type = one.error_type`

// Groups implements deadletter.Browser.
func (t *Table[Tx]) Groups(ctx context.Context, behind *deadletter.Group, limit int) (list []deadletter.Group,
	err error) {
	err = t.browse(ctx, func(ctx context.Context, c Conn, name string) error {
		for len(list) < limit {
			g, err := t.groupBehind(ctx, c, name, behind)
			if err != nil || g == nil {
				return err
			}
			list = append(list, *g)
			behind = g
		}
		return nil
	})
	return list, err
}

// groupBehind returns the next group, or nil.
func (t *Table[Tx]) groupBehind(ctx context.Context, c Conn, name string,
	behind *deadletter.Group) (g *deadletter.Group, err error) {
	where, args := "", []any(nil)
	if behind != nil {
		where = fmt.Sprintf(" where (consumer_id, kind, error_type) > (%s, %s, %s)", t.dialect.param(1), t.dialect.param(2),
			t.dialect.param(3))
		args = []any{behind.Consumer, string(behind.Kind), behind.ErrorType}
	}
	died := func(order string) string {
		return t.dialect.moment(fmt.Sprintf("(select d.died_at from %s d where %s order by d.id %s limit 1)", name, sameGroup,
			order))
	}
	text := fmt.Sprintf(groupSQL, name, where, sameGroup, deadletter.MaxGroupCount+1, died("asc"), died("desc"))
	rows, err := c.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		var oldest, newest any
		g = &deadletter.Group{}
		if err := rows.Scan(&g.Consumer, &g.Kind, &g.ErrorType, &g.Count, &oldest, &newest); err != nil {
			return nil, err
		}
		g.Oldest, g.Newest = readTime(oldest), readTime(newest)
		g.More = g.Count > deadletter.MaxGroupCount
		g.Count = min(g.Count, deadletter.MaxGroupCount)
	}
	return g, errors.Join(rows.Err(), rows.Close())
}

// CountUpTo implements deadletter.Browser.
func (t *Table[Tx]) CountUpTo(ctx context.Context, search deadletter.Search, most int64) (n int64, more bool,
	err error) {
	return t.counted(ctx, search, most, func(_, from string, c *conditions) string {
		return fmt.Sprintf("select 1 from %s%s", from, c.where())
	})
}

// overtakenSQL takes the rows that are searched, the conditions of those that are chosen, the table, whether two keys
// begin with the same bytes, and the conditions again, without "where". Those of a key are found by its index alone: a
// database does not look into a limit.
//
//nolint:unqueryvet // what is asked of the rows within is not known here
const overtakenSQL = `select 1 from (select consumer_id, topic, topic_id, partition, key, kafka_offset from %[1]s%[2]s) c where c.key is not null and exists (
  select 1 from (select * from %[3]s k where %[4]s and k.key = c.key limit 9223372036854775807) e
  where e.consumer_id = c.consumer_id and e.topic = c.topic and e.topic_id = c.topic_id and e.partition = c.partition
    and e.kafka_offset < c.kafka_offset and not (%[5]s))`

// Overtaken implements deadletter.Browser.
func (t *Table[Tx]) Overtaken(ctx context.Context, search deadletter.Search, most int64) (n int64, more bool,
	err error) {
	return t.counted(ctx, search, most, func(name, from string, c *conditions) string {
		for _, kind := range deadletter.Kinds() {
			if search.Holds(kind) {
				c.add("kind <> %s", string(kind))
			}
		}
		same := keyIndexed("k.key") + " = " + keyIndexed("c.key")
		return fmt.Sprintf(overtakenSQL, from, c.where(), name, same, c.all()) //nolint:unqueryvet // see there
	})
}

// counted counts the rows of a query, and ends it when there are more.
func (t *Table[Tx]) counted(ctx context.Context, search deadletter.Search, most int64,
	query func(name, from string, c *conditions) string) (n int64, more bool, err error) {
	if search.Nothing() {
		return 0, false, t.invalid
	}
	err = t.browse(ctx, func(ctx context.Context, c Conn, name string) error {
		w := &walk{base: t.base, conn: c, name: name, search: search}
		if err := w.narrow(ctx); err != nil {
			return err
		}
		where := w.where()
		text := fmt.Sprintf("select count(*) from (%s limit %d) counted", query(name, w.from(where), where), most+1)
		rows, err := c.Query(ctx, text, where.args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		if rows.Next() {
			err = rows.Scan(&n)
		}
		return errors.Join(err, rows.Err(), rows.Close())
	})
	return min(n, most), n > most, err
}

// browse runs f in a transaction that writes nothing and whose statements the server ends in time.
func (t *Table[Tx]) browse(ctx context.Context, f func(ctx context.Context, c Conn, name string) error) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, browseTimeout)
		defer cancel()
	}
	err := t.named(ctx, t.pooled, func(name string) (err error) {
		if t.dialect.limit == "" {
			return f(ctx, t.pool, name)
		}
		tx, end, ok, err := t.pool.begin(ctx)
		switch {
		case !ok:
			return f(ctx, t.pool, name)
		case err != nil:
			return err
		}
		defer func() { end(err) }()
		deadline, _ := ctx.Deadline()
		left := time.Until(deadline) * 9 / 10 // the server's answer, that it was too long, comes before the end of ctx cuts the connection
		if _, err := tx.Exec(ctx, fmt.Sprintf(t.dialect.limit, max(1, left.Milliseconds()))); err != nil {
			return err
		}
		return f(ctx, tx, name)
	})
	switch {
	case err == nil, errors.Is(err, deadletter.ErrUnreadable), t.invalid != nil:
		return err
	case errors.Is(err, deadletter.ErrTooLong):
		return fmt.Errorf("%s: browse: %w", t.pkg, err)
	case tooLong(ctx, err):
		return fmt.Errorf("%s: browse: %w", t.pkg, deadletter.ErrTooLong)
	}
	return t.explain("browse", err)
}

// tooLong reports whether an error says that the time did not suffice.
func tooLong(ctx context.Context, err error) bool {
	return sqlstate.Of(err) == "57014" || errors.Is(ctx.Err(), context.DeadlineExceeded)
}
