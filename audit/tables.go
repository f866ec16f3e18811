package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/schema"
)

// pageRows are read by one statement. Each is a transaction of its own, so that the database's clean-up is not held up
// for long.
const pageRows = 20_000

// tables are those of the service. All statements are sent on one connection, so that a role that was set stays.
type tables struct {
	conn     *sql.Conn
	dialect  schema.Dialect
	consumer string

	record, dead, outbox string // as they stand in SQL; dead and outbox are empty if there are none
	uuid                 bool   // ids are of that type: others have no record, and cannot have one
}

// openTables looks for the tables. That of the records must be there.
func openTables(ctx context.Context, conn *sql.Conn, cfg *Config) (*tables, error) {
	t := &tables{conn: conn, dialect: cfg.Dialect, consumer: cfg.Consumer}
	for _, table := range []struct {
		name string
		into *string
	}{{"processed_event", &t.record}, {"dead_message", &t.dead}, {"outbox_event", &t.outbox}} {
		name, err := t.find(ctx, cfg.Tables.Schema, cmp.Or(cfg.Tables.Tables[table.name], table.name))
		if err != nil {
			return nil, err
		}
		*table.into = name
	}
	if t.record == "" {
		return nil, fmt.Errorf("there is no table %q: say the schema and the table's name as the service's store has them, or connect as its role",
			cmp.Or(cfg.Tables.Tables["processed_event"], "processed_event"))
	}
	if t.dialect == schema.SQLite {
		return t, nil
	}
	kind, err := t.ask(ctx, `select coalesce((select format_type(atttypid, null) from pg_attribute
where attrelid = to_regclass($1) and attname = 'event_id' and not attisdropped), '')`, t.record)
	if err != nil {
		return nil, fmt.Errorf("look at the table %s: %w", t.record, err)
	}
	t.uuid = kind == "uuid"
	if t.outbox != "" {
		may, err := t.ask(ctx, "select has_table_privilege($1, 'select')::text", t.outbox)
		if err != nil {
			return nil, fmt.Errorf("look at the table %s: %w", t.outbox, err)
		}
		if may != "true" {
			t.outbox = ""
		}
	}
	return t, nil
}

// find returns a table as it stands in SQL, or nothing if it is not there.
func (t *tables) find(ctx context.Context, in, name string) (string, error) {
	if t.dialect == schema.SQLite {
		n, err := t.ask(ctx, "select cast(count(*) as text) from main.sqlite_master where type in ('table', 'view') and name = ?1", name)
		if err != nil || n == "0" {
			return "", err
		}
		return sqltable.Name("main", name), nil
	}
	if in == "" {
		found, err := (&sqltable.Place{}).Find(ctx, t.ask, name)
		if errors.Is(err, sqltable.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("look for the table %q: %w", name, err)
		}
		return sqltable.Name(found, name), nil
	}
	qualified := sqltable.Name(in, name)
	there, err := t.ask(ctx, "select (to_regclass($1) is not null)::text", qualified)
	if err != nil || there != "true" {
		return "", err
	}
	return qualified, nil
}

func (t *tables) ask(ctx context.Context, query string, args ...any) (text string, err error) {
	err = t.conn.QueryRowContext(ctx, query, args...).Scan(&text)
	return text, err
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$`)

// takes reports whether an id can be recorded, and is not of the form of a place.
func (t *tables) takes(id string) bool {
	return dedupstore.Key{Consumer: t.consumer, Event: id}.Validate() == nil && !deadletter.Reserved(id) &&
		(!t.uuid || uuid.MatchString(id))
}

// canonical is an id as the table of records has it. A message without an id and the one by which it was published
// again are one event.
func (t *tables) canonical(id string) string {
	if !t.uuid || !uuid.MatchString(id) {
		return deadletter.RedrivenID(id)
	}
	h := strings.ToLower(strings.ReplaceAll(id, "-", ""))
	return deadletter.RedrivenID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// reading runs f in a transaction that cannot write.
func (t *tables) reading(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := t.conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if t.dialect == schema.SQLite { // drivers do not all look at ReadOnly
		if _, err := tx.ExecContext(ctx, "pragma query_only = 1"); err != nil {
			return err
		}
		defer func() { _, _ = tx.ExecContext(context.WithoutCancel(ctx), "pragma query_only = 0") }()
	}
	return f(tx)
}

// rows calls each for the rows of a query, which have n columns of text, and returns their number.
func (t *tables) rows(ctx context.Context, n int, each func(columns []sql.NullString) error, query string,
	args ...any) (count int, err error) {
	err = t.reading(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, dest := make([]sql.NullString, n), make([]any, n)
		for i := range columns {
			dest[i] = &columns[i]
		}
		for rows.Next() {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			count++
			if err := each(columns); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return count, err
}

// param is a parameter of a type of PostgreSQL's.
func (t *tables) param(n int, kind string) string {
	if t.dialect == schema.SQLite {
		return "?" + strconv.Itoa(n)
	}
	return "$" + strconv.Itoa(n) + "::" + kind
}

func (t *tables) idType() string {
	if t.uuid {
		return "uuid"
	}
	return "text"
}

// records calls each for the records of the consumer and of its hand-ons, page by page in the order of the primary key.
func (t *tables) records(ctx context.Context, each func(event string, handOn bool) error) error {
	handOns := dedupstore.Key{Consumer: t.consumer}.HandOns()
	query := fmt.Sprintf("select cast(event_id as text), consumer_id from %s where (consumer_id = %s or substr(consumer_id, 1, %d) = %s)",
		t.record, t.param(1, "text"), len([]rune(handOns)), t.param(2, "text"))
	page := fmt.Sprintf(" order by event_id, consumer_id limit %d", pageRows)
	after := fmt.Sprintf(" and (event_id, consumer_id) > (%s, %s)", t.param(3, t.idType()), t.param(4, "text"))
	var event, consumer string
	for first := true; ; first = false {
		args, text := []any{t.consumer, handOns}, query+page
		if !first {
			args, text = append(args, event, consumer), query+after+page
		}
		n, err := t.rows(ctx, 2, func(columns []sql.NullString) error {
			event, consumer = columns[0].String, columns[1].String
			return each(event, consumer != t.consumer)
		}, text, args...)
		if err != nil {
			return fmt.Errorf("read the records in %s: %w", t.record, err)
		}
		if n < pageRows {
			return nil
		}
	}
}

// deadLetters calls each for those of the consumer.
func (t *tables) deadLetters(ctx context.Context, each func(event string) error) error {
	if t.dead == "" {
		return nil
	}
	return t.byID(ctx, t.dead, "consumer_id = "+t.param(1, "text"), t.consumer, each)
}

// returning calls each for the events of the topic that are in the outbox, and not published.
func (t *tables) returning(ctx context.Context, topic string, each func(event string) error) error {
	if t.outbox == "" {
		return nil
	}
	return t.byID(ctx, t.outbox, "status in ('PENDING', 'PUBLISHING', 'BLOCKED') and topic = "+t.param(1, "text"), topic,
		each)
}

// byID reads the ids of events page by page in the order of a table's numbers.
func (t *tables) byID(ctx context.Context, table, where, value string, each func(event string) error) error {
	query := fmt.Sprintf("select cast(id as text), event_id from %s where %s and id > %s order by id limit %d", table,
		where, t.param(2, "bigint"), pageRows)
	after := "0"
	for {
		from, err := strconv.ParseInt(after, 10, 64)
		if err != nil {
			return fmt.Errorf("read %s: its ids are no numbers: %w", table, err)
		}
		n, err := t.rows(ctx, 2, func(columns []sql.NullString) error {
			after = columns[0].String
			return each(columns[1].String)
		}, query, value, from)
		if err != nil {
			return fmt.Errorf("read %s: %w", table, err)
		}
		if n < pageRows {
			return nil
		}
	}
}

var errNullEffect = errors.New("it returns null: leave out the effects that have no event, by \"where event_id is not null\" for example")

// effects calls each for what the query of effects returns.
func (t *tables) effects(ctx context.Context, query string, each func(event string) error) error {
	_, err := t.rows(ctx, 1, func(columns []sql.NullString) error {
		if !columns[0].Valid {
			return errNullEffect
		}
		return each(columns[0].String)
	}, query)
	if err != nil {
		return fmt.Errorf("the query of effects: %w", err)
	}
	return nil
}

const (
	replicaWait  = time.Minute
	replicaQuiet = 10 * time.Second // that nothing has come may last, for it to be believed
	replicaPause = 200 * time.Millisecond
)

// caughtUp waits, on a replica, until it has what the primary had committed at the time since.
func (t *tables) caughtUp(ctx context.Context, since time.Time) error {
	if t.dialect == schema.SQLite {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, replicaWait, fmt.Errorf(
		"the replica has not replayed within %v what was committed before %s: ask one that is not so far behind, or the primary", replicaWait, since.UTC().Format(time.RFC3339)))
	defer cancel()
	for {
		state, err := t.ask(ctx, `select case
when not pg_is_in_recovery() then 'primary'
when pg_last_xact_replay_timestamp() > $1 then 'replayed'
when pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() then 'quiet' else 'behind' end`, since)
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("ask whether the database is a replica: %w", err)
		case state == "primary", state == "replayed", state == "quiet" && time.Since(since) > replicaQuiet:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(replicaPause):
		}
	}
}
