package audit

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/schema"
)

// openOutbox looks for the table of the outbox, which must be there.
func openOutbox(ctx context.Context, conn *sql.Conn, cfg *schema.Config) (*tables, error) {
	t := &tables{conn: conn, dialect: schema.Postgres}
	name := cmp.Or(cfg.Tables["outbox_event"], "outbox_event")
	var err error
	if t.outbox, err = t.find(ctx, cfg.Schema, name); err != nil {
		return nil, err
	}
	if t.outbox == "" {
		return nil, fmt.Errorf("there is no table %q: say the schema and the table's name as the outbox's writers have them, or connect as their role", name)
	}
	return t, nil
}

var rowStates = map[string]rowState{
	"PENDING": rowWaiting, "PUBLISHING": rowWaiting, "BLOCKED": rowBlocked, "DEAD": rowDead, "PUBLISHED": rowPublished,
}

// outboxRows calls each for the rows of the topic. Of those that were published before early only what tells an event
// apart is read: the server computes the hashes, so that no value leaves it. They are made as valueHash does.
func (t *tables) outboxRows(ctx context.Context, topic string, early time.Time, each func(*rowFact) error) error {
	query := fmt.Sprintf(`select cast(id as text), event_id, status, cast(floor(extract(epoch from created_at) * 1000) as bigint)::text,
  cast(floor(extract(epoch from coalesce(published_at, 'epoch')) * 1000) as bigint)::text, encode(substr(sha256(partition_key), 1, 16), 'hex'),
  case when status <> 'PUBLISHED' or published_at >= $2::text::timestamptz then encode(substr(sha256(%s || %s), 1, 16), 'hex') end
from %s where topic = $1::text and id > $3::bigint order by id limit %d`, sized("partition_key"), sized("payload"), t.outbox, pageRows)
	var after int64
	for {
		n, err := t.rows(ctx, 7, func(columns []sql.NullString) error {
			r, err := decodeColumns(columns)
			if err != nil {
				return err
			}
			after = r.number
			return each(r)
		}, query, topic, early.UTC().Format(time.RFC3339Nano), after)
		if err != nil {
			return fmt.Errorf("read %s: %w", t.outbox, err)
		}
		if n < pageRows {
			return nil
		}
	}
}

// sized is a column of bytes behind its length; null has -1 and no bytes.
func sized(column string) string {
	return fmt.Sprintf("int8send(coalesce(octet_length(%[1]s), -1)) || coalesce(%[1]s, '')", column)
}

// decodeColumns reads what outboxRows has asked for.
func decodeColumns(columns []sql.NullString) (*rowFact, error) {
	r := &rowFact{id: columns[1].String, hasKey: columns[5].Valid, hasValue: columns[6].Valid}
	for _, number := range []struct {
		into *int64
		text string
	}{{&r.number, columns[0].String}, {&r.created, columns[3].String}, {&r.published, columns[4].String}} {
		var err error
		if *number.into, err = strconv.ParseInt(number.text, 10, 64); err != nil {
			return nil, err
		}
	}
	state, ok := rowStates[columns[2].String]
	if !ok {
		return nil, fmt.Errorf("row %d is %.20q, which is no state", r.number, columns[2].String)
	}
	r.state = state
	for _, hash := range []struct {
		into *[16]byte
		text string
	}{{&r.key, columns[5].String}, {&r.value, columns[6].String}} {
		if _, err := hex.Decode(hash.into[:], []byte(hash.text)); err != nil {
			return nil, err
		}
	}
	return r, nil
}
