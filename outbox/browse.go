package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/sqlstate"
)

// Page is a part of what Browse finds. The zero Page is the rows with the highest numbers.
type Page struct {
	OldestFirst bool
	Beyond      int64 // the number of the last row of the page before; 0 for the first page
	Limit       int   // defaults to DefaultLimit
}

const (
	// MaxBrowsedKey is how much of a key Browse and BlockedKeys return, in bytes.
	MaxBrowsedKey = 1024
	// MaxCount is up to which rows are counted for people who look.
	MaxCount = 10_000

	maxBrowsed = 10_000
	// browseTimeout is how long a question may take whose ctx has no deadline.
	browseTimeout = 5 * time.Second
)

// states are all states.
var states = []State{Pending, Publishing, Published, Blocked, Dead}

// ErrTooLong is wrapped where the outbox was not looked through in the time that there was.
var ErrTooLong = errors.New("the outbox is too large for this question in the time that there is: narrow it, by a state and a topic")

// Browse returns a page of the rows of the filter, without values and headers, and with the first MaxBrowsedKey bytes
// of their keys. Filter.Limit does not count. It ends soon after the deadline of ctx, as do the other functions for
// those who look: BlockedKeys, CountUpTo and Leases.
func (o *Operator) Browse(ctx context.Context, f Filter, page Page) (list []Row, err error) {
	order, beyond := "desc", " and id < %d"
	if page.OldestFirst {
		order, beyond = "asc", " and id > %d"
	}
	state := f.State
	f.State = ""
	where, args := f.sql()
	if state != "" {
		if !slices.Contains(states, state) {
			return nil, fmt.Errorf("outbox: there is no state %q: they are %v", state, states)
		}
		where += in([]State{state}) // a literal, which the planner compares with the conditions of partial indexes
	}
	if page.Beyond > 0 {
		where += fmt.Sprintf(beyond, page.Beyond)
	}
	err = o.browse(ctx, func(ctx context.Context, tx Tx) error {
		sql := fmt.Sprintf(`select %s from {event} where %s order by id %s limit %d`, browsedColumns, where, order,
			min(maxBrowsed, cmp.Or(max(0, page.Limit), DefaultLimit)))
		return tx.Query(ctx, o.tables.In(sql), args, func(scan func(...any) error) error {
			r, err := scanRow(scan)
			list = append(list, r)
			return err
		})
	})
	return list, err
}

// browsedColumns are rowColumns of what may be large without what is not shown.
var browsedColumns = fmt.Sprintf(`id, event_id, topic, substr(partition_key, 1, %d), partition::bigint, ''::bytea, status, bucket::bigint, created_at, attempts::bigint, claims::bigint, coalesce(last_error, ''), null::bytea`, MaxBrowsedKey)

// BlockedKey is a key of a topic of which an event is blocked, so that the later ones wait. Events without a key have
// no order: each is one of its own.
type BlockedKey struct {
	First   Row   // the blocked row with the lowest number
	Blocked int64 // rows of the key that are blocked, of the first MaxCount of the outbox
	Waiting int64 // rows of the key that wait behind the first one: MaxCount if More
	More    bool  // there are more than that
}

// BlockedKeys returns keys of which events are blocked, in the order of their first blocked rows, those whose first row
// is beyond a number; at most limit of them. Rows beyond the first MaxCount blocked ones are not looked at.
func (o *Operator) BlockedKeys(ctx context.Context, beyond int64, limit int) (list []BlockedKey, err error) {
	err = o.browse(ctx, func(ctx context.Context, tx Tx) error {
		sql := fmt.Sprintf(blockedSQL, MaxCount, beyond, min(maxBrowsed, cmp.Or(max(0, limit), DefaultLimit)), browsedColumns,
			MaxCount+1)
		return tx.Query(ctx, o.tables.In(sql), nil, func(scan func(...any) error) error {
			var k BlockedKey
			r, err := scanRow(func(dest ...any) error { return scan(append(dest, &k.Blocked, &k.Waiting)...) })
			k.First, k.More = r, k.Waiting > MaxCount
			k.Waiting = min(k.Waiting, MaxCount)
			list = append(list, k)
			return err
		})
	})
	return list, err
}

// blockedSQL reads the blocked rows and, of each key, those of its bucket that wait, by the partial indexes of these
// states.
const blockedSQL = `with blocked as (select id, topic, partition_key from {event} where status = 'BLOCKED' order by bucket, id limit %[1]d),
keys as (select min(id) as first, count(*) as blocked from blocked group by topic, partition_key, case when partition_key is null then id end),
page as (select first, blocked from keys where first > %[2]d order by first limit %[3]d)
select %[4]s, blocked,
  (select count(*) from (select 1 from {event} w where w.status = 'PENDING' and w.bucket = e.bucket and w.id > e.id
    and w.topic = e.topic and w.partition_key = e.partition_key limit %[5]d) waiting)
from page join {event} e on e.id = page.first order by e.id`

// CountUpTo counts rows in a state: MaxCount and more if there are more than that.
func (o *Operator) CountUpTo(ctx context.Context, s State) (n int64, more bool, err error) {
	if !slices.Contains(states, s) {
		return 0, false, fmt.Errorf("outbox: there is no state %q: they are %v", s, states)
	}
	err = o.browse(ctx, func(ctx context.Context, tx Tx) error {
		sql := fmt.Sprintf(`select count(*) from (select 1 from {event} where true%s limit %d) counted`, in([]State{s}),
			MaxCount+1)
		return tx.Query(ctx, o.tables.In(sql), nil, func(scan func(...any) error) error { return scan(&n) })
	})
	return min(n, MaxCount), n > MaxCount, err
}

// Lease says which two-phase relay may send what is in a bucket.
type Lease struct {
	Bucket int
	Owner  string // the name of the relay
	Epoch  int64
	Until  time.Time
}

// Leases returns the leases that hold now, by bucket. In single-phase mode there are none: locks of transactions stand
// for them.
func (o *Operator) Leases(ctx context.Context) (list []Lease, err error) {
	err = o.browse(ctx, func(ctx context.Context, tx Tx) error {
		sql := o.tables.In(`select bucket::bigint, coalesce(owner, ''), epoch, leased_until from {lease} where leased_until > clock_timestamp() order by bucket`)
		return tx.Query(ctx, sql, nil, func(scan func(...any) error) error {
			var l Lease
			var bucket int64
			err := scan(&bucket, &l.Owner, &l.Epoch, &l.Until)
			l.Bucket = int(bucket)
			list = append(list, l)
			return err
		})
	})
	return list, err
}

// browse runs f in a transaction that writes nothing, and whose statements the server ends in time.
func (o *Operator) browse(ctx context.Context, f func(ctx context.Context, tx Tx) error) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, browseTimeout)
		defer cancel()
	}
	err := o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		deadline, _ := ctx.Deadline()
		left := max(1, (time.Until(deadline) * 9 / 10).Milliseconds()) // before the end of ctx cuts the connection
		sql := fmt.Sprintf(`select set_config('statement_timeout', '%d', true), set_config('transaction_read_only', 'on', true)`, left)
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		return f(ctx, tx)
	})
	if sqlstate.Of(err) == "57014" || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("outbox: browse: %w", ErrTooLong)
	}
	return err
}
