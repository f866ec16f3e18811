package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/schema"
)

// State is what a row is.
type State string

// The states.
const (
	Pending    State = "PENDING"    // it waits to be sent
	Publishing State = "PUBLISHING" // a two-phase relay has claimed it
	Published  State = "PUBLISHED"  // it was sent, and is kept for a while
	Blocked    State = "BLOCKED"    // it can never be sent as it is; the later ones of its key wait
	Dead       State = "DEAD"       // an operator has discarded it; it stays until somebody deletes it
)

// Row is a row of the outbox, as an operator sees it.
type Row struct {
	Number    int64 // the order of the rows, and how functions name them
	Event     Event
	State     State
	Bucket    int
	CreatedAt time.Time
	Attempts  int    // failures of the row itself
	Claims    int    // how often a two-phase relay claimed it without giving it back
	LastError string // why it is blocked, or who discarded it
}

// Filter chooses rows. Its fields hold together; those that are zero choose all.
type Filter struct {
	Numbers []int64
	State   State
	Topic   string
	Limit   int // List: DefaultLimit if it is 0. Retry and Discard: all if it is 0
}

// DefaultLimit is how many rows List returns.
const DefaultLimit = 100

// Operator looks at the outbox and repairs it. It is safe for concurrent use, and beside relays: what changes a row
// holds the lock of its bucket, so that nothing of the key is on its way to Kafka meanwhile.
type Operator struct {
	db       Database
	tables   *places
	progress func(changed int64)
}

// NewOperator returns an Operator. Tables says where the tables are; nil is the search_path of the session in which
// they are looked for first: from then on they stay the same.
func NewOperator(db Database, tables *schema.Config) *Operator {
	return &Operator{db: db, tables: newPlaces(tables)}
}

// WithProgress returns an Operator that calls f while Retry and Discard work, with how many rows are changed.
func (o *Operator) WithProgress(f func(changed int64)) *Operator {
	return &Operator{o.db, o.tables, f}
}

// ErrNoRow is wrapped by the errors for a row that is not there, or not in a state that allows what was asked.
var ErrNoRow = errors.New("no such row")

const rowColumns = `id, event_id, topic, partition_key, partition::bigint, headers, status, bucket::bigint, ` +
	`created_at, attempts::bigint, claims::bigint, coalesce(last_error, '')`

// List returns rows in their order, without their values.
func (o *Operator) List(ctx context.Context, f Filter) (list []Row, err error) {
	where, args := f.sql()
	limit := f.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		sql := o.tables.In(`select ` + rowColumns + `, null::bytea from {event} where ` +
			where + fmt.Sprintf(` order by id limit %d`, limit))
		return tx.Query(ctx, sql, args, func(scan func(...any) error) error {
			r, err := scanRow(scan)
			list = append(list, r)
			return err
		})
	})
	return list, err
}

// sql is the condition.
func (f Filter) sql() (where string, args []any) {
	conditions := []string{"true"}
	add := func(condition string, arg any) {
		args = append(args, arg)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if f.Numbers != nil {
		add("id = any($%d::text::bigint[])", outboxsql.BigintArray(f.Numbers))
	}
	if f.State != "" {
		add("status = $%d::text", string(f.State))
	}
	if f.Topic != "" {
		add("topic = $%d::text", f.Topic)
	}
	return strings.Join(conditions, " and "), args
}

func scanRow(scan func(...any) error) (r Row, err error) {
	var headers []byte
	var state string
	var bucket, attempts, claims int64
	var partition *int64
	err = scan(&r.Number, &r.Event.ID, &r.Event.Topic, &r.Event.Key, &partition, &headers, &state, &bucket,
		&r.CreatedAt, &attempts, &claims, &r.LastError, &r.Event.Value)
	if err != nil {
		return r, err
	}
	if partition != nil {
		r.Event.Partition = new(int32(*partition)) //nolint:gosec // the column is an integer
	}
	r.State, r.Bucket, r.Attempts, r.Claims = State(state), int(bucket), int(attempts), int(claims)
	r.Event.Headers, _ = DecodeHeaders(headers) // what cannot be read is why it is blocked
	return r, nil
}

// Show returns a row with its value. The error wraps ErrNoRow if there is none.
func (o *Operator) Show(ctx context.Context, number int64) (row Row, err error) {
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		row, err = o.read(ctx, tx, number)
		return err
	})
	return row, err
}

func (o *Operator) read(ctx context.Context, tx Tx, number int64) (row Row, err error) {
	found := false
	sql := o.tables.In(`select ` + rowColumns + `, payload from {event} where id = any($1::text::bigint[])`)
	args := []any{outboxsql.BigintArray([]int64{number})}
	err = tx.Query(ctx, sql, args, func(scan func(...any) error) error {
		found = true
		row, err = scanRow(scan)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("outbox: %w: number %d is not in the outbox, or not any more", ErrNoRow, number)
	}
	return row, err
}

// inBucket runs f when nobody sends what is in the bucket.
func (o *Operator) inBucket(ctx context.Context, bucket int64,
	f func(ctx context.Context, tx Tx) (int64, error)) (n int64, err error) {
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := o.lock(ctx, tx, bucket); err != nil {
			return err
		}
		n, err = f(ctx, tx)
		return err
	})
	return n, err
}

// lock waits for the bucket's lock, and for the end of its lease.
func (o *Operator) lock(ctx context.Context, tx Tx, bucket int64) error {
	nothing := func(func(...any) error) error { return nil }
	sql := `select pg_advisory_xact_lock(hashoid($1::text::regclass), $2::text::int)`
	if err := tx.Query(ctx, sql, []any{o.tables.names().Event, fmt.Sprint(bucket)}, nothing); err != nil {
		return err
	}
	for {
		leased := false
		sql := o.tables.In(`select exists (select from {lease}
where bucket = $1::text::int and leased_until > clock_timestamp())`)
		args := []any{fmt.Sprint(bucket)}
		err := tx.Query(ctx, sql, args, func(scan func(...any) error) error { return scan(&leased) })
		if err != nil || !leased {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("outbox: a relay still has bucket %d in work: %w", bucket, context.Cause(ctx))
		}
	}
}

// Edit changes the event of a row that is blocked, waits or was discarded, and has it sent: its topic, partition,
// value or headers. Its key must stay, since that is its place in an order, and so must its id, by which consumers
// know it. The error wraps ErrInvalidEvent if it could not be sent.
func (o *Operator) Edit(ctx context.Context, number int64, edit func(e *Event) error) error {
	row, err := o.Show(ctx, number)
	if err != nil {
		return err
	}
	_, err = o.inBucket(ctx, int64(row.Bucket), func(ctx context.Context, tx Tx) (int64, error) {
		now, err := o.read(ctx, tx, number)
		if err != nil {
			return 0, err
		}
		e := now.Event
		if err := edit(&e); err != nil {
			return 0, err
		}
		if e.ID != now.Event.ID || (e.Key == nil) != (now.Event.Key == nil) || !bytes.Equal(e.Key, now.Event.Key) {
			return 0, fmt.Errorf("outbox: %w: its id and its key must stay as they are: discard it and write another event",
				ErrInvalidEvent)
		}
		if err := e.validate(1 << 30); err != nil {
			return 0, fmt.Errorf("outbox: %w", err)
		}
		sql := o.tables.In(`update {event} set topic = $1::text, payload = $2::bytea, headers = $3::bytea,
  partition = $5::text::int, status = 'PENDING', claims = 0, last_error = null
where id = any($4::text::bigint[]) and status in ('PENDING', 'BLOCKED', 'DEAD')`)
		n, err := tx.Exec(ctx, sql, e.Topic, nullable(e.Value), EncodeHeaders(e.Headers),
			outboxsql.BigintArray([]int64{number}), partitionText(e.Partition))
		if err == nil && n == 0 {
			err = fmt.Errorf("outbox: %w: number %d is %s now", ErrNoRow, number, now.State)
		}
		return n, err
	})
	return err
}

// partitionText is an argument for a partition.
func partitionText(p *int32) any {
	if p == nil {
		return nil
	}
	return strconv.Itoa(int(*p))
}

// nullable keeps null from becoming no bytes.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// Mode says how the table is sent, "" if no relay has run yet.
func (o *Operator) Mode(ctx context.Context) (mode Mode, err error) {
	err = o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		return tx.Query(ctx, o.tables.In(`select mode from {mode}`), nil, func(scan func(...any) error) error {
			var text string
			err := scan(&text)
			mode = Mode(text)
			return err
		})
	})
	return mode, err
}

// SwitchMode changes how the table is sent. All relays must have been stopped: the error says which is still at work.
// What a two-phase relay has left is sent again.
func (o *Operator) SwitchMode(ctx context.Context, to Mode) error {
	if to != SinglePhase && to != TwoPhase {
		return fmt.Errorf("outbox: there is no mode %q", to)
	}
	return o.inTx(ctx, func(ctx context.Context, tx Tx) error {
		for bucket := range int64(outboxsql.Buckets) { // no single-phase relay has a batch in work
			nothing := func(func(...any) error) error { return nil }
			sql := `select pg_advisory_xact_lock(hashoid($1::text::regclass), $2::text::int)`
			if err := tx.Query(ctx, sql, []any{o.tables.names().Event, fmt.Sprint(bucket)}, nothing); err != nil {
				return err
			}
		}
		var owner string
		sql := o.tables.In(`select owner from {lease} where leased_until > clock_timestamp() limit 1 for update`)
		if err := tx.Query(ctx, sql, nil, func(scan func(...any) error) error { return scan(&owner) }); err != nil {
			return err
		}
		if owner != "" {
			return fmt.Errorf("outbox: the relay %s is at work: stop all relays, and wait for the leases of those that were killed",
				owner)
		}
		sql = o.tables.In(`update {event} set status = 'PENDING', claim_epoch = null, claimed_until = null
where status = 'PUBLISHING'`)
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		sql = o.tables.In(`insert into {mode} (mode) values ($1::text)
on conflict (only_row) do update set mode = excluded.mode`)
		_, err := tx.Exec(ctx, sql, string(to))
		return err
	})
}
