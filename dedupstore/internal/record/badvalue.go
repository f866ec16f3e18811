package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// takesSQL makes the statement that converts a text, its $1, to the type of a column, and answers with the text true if
// it fits into it. The triggers of the table have no part in that.
const takesSQL = `select coalesce((select format('select (($1::text)::%s is not null and char_length($1::text) <= %s)::text',
case when atttypid = 'bpchar'::regtype then 'bpchar' else format_type(atttypid, null) end,
case when atttypid in ('varchar'::regtype, 'bpchar'::regtype) and atttypmod > 4 then atttypmod - 4 else 2147483647 end)
from pg_catalog.pg_attribute where attrelid = to_regclass($1) and attname = $2 and not attisdropped), '')`

// badValue explains a value that was refused: the column does not take this id, which is the event's fault, or this
// consumer, or it was not a value of ours, but a trigger's.
func (p *Postgres) badValue(ctx context.Context, key dedupstore.Key, err error, ask Query) error {
	for _, part := range []struct{ column, value string }{{"consumer_id", key.Consumer}, {"event_id", key.Event}} {
		takes, askErr := p.takes(ctx, part.column, part.value, ask)
		switch {
		case askErr != nil:
			return p.as(dedupstore.Unavailable, "look at the types of %s: %w", p.table(), askErr)
		case takes:
		case part.column == "consumer_id":
			return p.as(dedupstore.Misconfigured,
				"the column consumer_id of %s does not take the consumer's name (SQLSTATE %s): change its type to text, or set a shorter Topic.Consumer", p.table(), StateOf(err))
		default:
			return p.refused(err)
		}
	}
	text := fmt.Sprintf("%s: record the event: the columns of %s take its key, so a trigger of the table fails, or another column (SQLSTATE %s)", p.store, p.table(), StateOf(err))
	return dedupstore.WithClass(dedupstore.Misconfigured, &silent{text, err}) // a trigger's text may repeat the id
}

// takes reports whether the type of a column takes a value.
func (p *Postgres) takes(ctx context.Context, column, value string, ask Query) (bool, error) {
	text, err := ask(ctx, takesSQL, p.table(), column)
	if err != nil || text == "" {
		return true, err
	}
	answer, err := ask(ctx, text, value)
	if code := StateOf(err); strings.HasPrefix(code, "22") || code == codeCheckViolation {
		return false, nil
	}
	return answer == "true", err
}

// refused is the error of a key that the columns do not take. The server's text repeats the id.
func (p *Postgres) refused(err error) error {
	return &silent{fmt.Sprintf("%s: %v: the columns of %s do not take this event id (SQLSTATE %s)",
		p.store, dedupstore.ErrInvalidKey, p.table(), StateOf(err)), errors.Join(dedupstore.ErrInvalidKey, err)}
}
