package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// Change is what an operator does to rows.
type Change string

// The changes.
const (
	ToRetry   Change = "retry"   // what Retry does
	ToDiscard Change = "discard" // what Discard does
)

// Group is a part of the rows that a change would change.
type Group struct {
	Topic  string
	State  State
	Rows   int64
	Oldest time.Time // when the oldest was written
}

// states are those of the rows that are changed. What a person has decided, or what is in no need of a decision, is
// only changed when its state or its number is named.
func (c Change) states(f *Filter) ([]State, error) {
	all := []State{Blocked, Dead}
	if c == ToDiscard {
		all = []State{Blocked, Pending}
	}
	switch {
	case c != ToRetry && c != ToDiscard:
		return nil, fmt.Errorf("outbox: there is no change %q", c)
	case f.State != "" && !slices.Contains(all, f.State):
		return nil, fmt.Errorf("outbox: rows that are %s cannot be changed so, only those that are %v", f.State, all)
	case len(f.Numbers) == 0 && f.State == "" && f.Topic == "":
		return nil, errors.New("outbox: the filter chooses all rows: name their numbers, their state or their topic")
	case f.State != "":
		return []State{f.State}, nil
	case len(f.Numbers) > 0:
		return all, nil
	}
	return []State{Blocked}, nil
}

// Changes reports whether rows in that state can be changed so, if they are named.
func (c Change) Changes(s State) bool {
	return s == Blocked || c == ToRetry && s == Dead || c == ToDiscard && s == Pending
}

// Preview says what Retry or Discard would change.
func (o *Operator) Preview(ctx context.Context, c Change, f Filter) (groups []Group, err error) {
	states, err := c.states(&f)
	if err != nil {
		return nil, err
	}
	where, args := f.sql()
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		sql := o.tables.In(`select topic, status, count(*), min(created_at) from {event} where ` + where + in(states) +
			` group by topic, status order by topic, status`)
		return tx.Query(ctx, sql, args, func(scan func(...any) error) error {
			var g Group
			var state string
			err := scan(&g.Topic, &state, &g.Rows, &g.Oldest)
			g.State = State(state)
			groups = append(groups, g)
			return err
		})
	})
	return groups, err
}

// Retry has rows sent again, in their place in the order of their keys, and returns how many: blocked ones, and
// discarded ones if Filter.State or Filter.Numbers name them. A discarded row comes after what was sent of its key
// meanwhile. With an error it returns how many were changed before.
func (o *Operator) Retry(ctx context.Context, f Filter) (int64, error) {
	return o.change(ctx, ToRetry, f, `status = 'PENDING', claims = 0, last_error = null`)
}

// Discard gives rows up, so that the later ones of their keys go on, and returns how many: blocked ones, and those
// that wait if Filter.State or Filter.Numbers name them. They stay in the table, with the reason, which must say who
// and why. With an error it returns how many were changed before.
func (o *Operator) Discard(ctx context.Context, f Filter, reason string) (int64, error) {
	if strings.TrimSpace(reason) == "" {
		return 0, errors.New("outbox: a reason is needed to discard events")
	}
	return o.change(ctx, ToDiscard, f, `status = 'DEAD', last_error = $1::text`, reason)
}

// changeBatch is how many rows are changed at once.
const changeBatch = 5000

// change changes rows in the order of their numbers, in batches, until all that are there when it begins are changed.
func (o *Operator) change(ctx context.Context, c Change, f Filter, set string, args ...any) (n int64, err error) {
	states, err := c.states(&f)
	if err != nil {
		return 0, err
	}
	last, err := o.lastNumber(ctx)
	for after := int64(0); err == nil; {
		limit := int64(changeBatch)
		if f.Limit > 0 {
			limit = min(limit, int64(f.Limit)-n)
		}
		var buckets map[int64][]int64
		if buckets, after, err = o.chosen(ctx, &f, states, after, last, limit); err != nil || len(buckets) == 0 {
			break
		}
		for bucket, ids := range buckets {
			changed, berr := o.inBucket(ctx, bucket, func(ctx context.Context, tx Tx) (int64, error) {
				sql := fmt.Sprintf(`update {event} set %s where id = any($%d::text::bigint[])%s`, set, len(args)+1, in(states))
				return tx.Exec(ctx, o.tables.In(sql), append(slices.Clone(args), outboxsql.BigintArray(ids))...)
			})
			if err = berr; err != nil {
				break
			}
			n += changed
			if o.progress != nil {
				o.progress(n)
			}
		}
	}
	return n, err
}

// lastNumber is the highest in the table.
func (o *Operator) lastNumber(ctx context.Context) (last int64, err error) {
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		return tx.Query(ctx, o.tables.In(`select coalesce(max(id), 0) from {event}`), nil,
			func(scan func(...any) error) error { return scan(&last) })
	})
	return last, err
}

// chosen are the next rows, by bucket, and the number of the last of them.
func (o *Operator) chosen(ctx context.Context, f *Filter, states []State, after, last,
	limit int64) (buckets map[int64][]int64, until int64, err error) {
	if limit <= 0 {
		return nil, after, nil
	}
	buckets = map[int64][]int64{}
	where, args := f.sql()
	sql := fmt.Sprintf(`select bucket::bigint, id from {event} where %s%s and id > %d and id <= %d order by id limit %d`, where, in(states), after, last, limit)
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		return tx.Query(ctx, o.tables.In(sql), args, func(scan func(...any) error) error {
			var bucket int64
			err := scan(&bucket, &until)
			buckets[bucket] = append(buckets[bucket], until)
			return err
		})
	})
	return buckets, until, err
}

// in is the condition for states.
func in(states []State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = "'" + string(s) + "'"
	}
	return " and status in (" + strings.Join(names, ", ") + ")"
}
