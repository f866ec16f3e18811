package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// Many are the texts that record several keys at once, in a transaction that has begun. The keys are one parameter: see
// Pairs.
type Many struct {
	// Guard sets the time-outs until the end of the transaction, and marks it as a record does.
	Guard string

	// Record answers with a row for each key that it found or inserted: the key's place, from 1, and whether it was
	// inserted. Rows are inserted in the order of their keys, so that two transactions lock in the same order.
	Record string

	// Seen answers with the place of each key that has a record, and false. Empty unless Record is silent about what was
	// there.
	Seen string

	// Restore brings back the session's own lock_timeout, for the functions' statements, and answers with the Session.
	Restore string

	// TakeBack deletes the records of the keys.
	TakeBack string

	// Xid answers with the transaction's id. Empty where rows do not tell which transaction wrote them.
	Xid string

	// TakeBackOf deletes the records of the keys that the transaction with the id wrote, its second parameter, after its
	// end.
	TakeBackOf string
}

// Pairs are the keys as the parameter of Many's statements: a JSON text, which every driver can send.
func Pairs(keys []dedupstore.Key) string {
	pairs := make([][2]string, len(keys))
	for i, k := range keys {
		pairs[i] = [2]string{k.Event, k.Consumer}
	}
	text, _ := json.Marshal(pairs) //nolint:errchkjson // texts can be encoded
	return string(text)
}

// manyKeys takes the types of the two columns. A cast to a type without its length does not cut a key off; the table
// refuses it.
const manyKeys = `with k as materialized (
select n, (j->>0)::%s as event_id, (j->>1)::%s as consumer_id from json_array_elements($1::text::json) with ordinality as u (j, n))
`

// manyGuardSQL is what guardedSQL is for a single record.
var manyGuardSQL = `select case when set_config('` + keptSetting + `', current_setting('lock_timeout'), true) is null then null
when set_config('lock_timeout', '%d', true) is null then null
when %s is null then null%s
end`

// KeyTypes is the query for the types of the table's two key columns, as regtype spells them, with a tab between them.
func (p *Postgres) KeyTypes() string {
	return fmt.Sprintf(`select max(atttypid::regtype::text) filter (where attname = 'event_id') || e'\t' ||
max(atttypid::regtype::text) filter (where attname = 'consumer_id')
from pg_attribute where attrelid = '%s'::regclass and attname in ('event_id', 'consumer_id')`, literal(p.table()))
}

// Many returns the statements for a table whose key columns have these types.
func (p *Postgres) Many(form Form, eventType, consumerType string) *Many {
	table, keys := p.table(), fmt.Sprintf(manyKeys, eventType, consumerType)
	m := &Many{
		Guard: fmt.Sprintf(manyGuardSQL, milliseconds(p.cfg.LockTimeout),
			fmt.Sprintf(idleSQL, milliseconds(p.cfg.IdleTimeout)), markOf(p.reported)),
		Restore:  "select " + restoreSQL,
		TakeBack: keys + fmt.Sprintf(`delete from %s as p using k where p.event_id = k.event_id and p.consumer_id = k.consumer_id`, table),
	}
	switch form {
	case Upsert:
		m.Xid = `select pg_current_xact_id()::xid::text`
		m.TakeBackOf = m.TakeBack + ` and p.xmin::text = $2`
		m.Record = keys + fmt.Sprintf(`, r as (
insert into %s as p (event_id, consumer_id) select event_id, consumer_id from k order by event_id, consumer_id
on conflict (event_id, consumer_id) do update set duplicates = p.duplicates + 1
returning p.event_id, p.consumer_id, (xmax = 0) as inserted)
select k.n, r.inserted from k join r on r.event_id = k.event_id and r.consumer_id = k.consumer_id`, table)
	case DoNothing:
		m.Record = keys + fmt.Sprintf(`, r as (
insert into %s as p (event_id, consumer_id) select event_id, consumer_id from k order by event_id, consumer_id
on conflict (event_id, consumer_id) do nothing
returning p.event_id, p.consumer_id)
select k.n, true from k join r on r.event_id = k.event_id and r.consumer_id = k.consumer_id`, table)
		m.Seen = keys + fmt.Sprintf(`select k.n, false from k join %s as p on p.event_id = k.event_id and p.consumer_id = k.consumer_id`, table)
	}
	return m
}

// ErrSilent is the error of a group of which the table did not say of each key what became of it. Alone, the key is
// explained.
var ErrSilent = errors.New("the table did not answer for an event")

// Answers collects what Record and Seen say of n keys.
type Answers struct {
	Fresh []bool
	seen  []bool
}

// NewAnswers expects answers for n keys.
func NewAnswers(n int) *Answers { return &Answers{make([]bool, n), make([]bool, n)} }

// Note takes a row.
func (a *Answers) Note(place int, inserted bool) {
	a.seen[place-1] = true
	a.Fresh[place-1] = a.Fresh[place-1] || inserted
}

// Err reports a key for which there was no row: it was neither inserted nor is it there.
func (a *Answers) Err() error {
	for _, seen := range a.seen {
		if !seen {
			return ErrSilent
		}
	}
	return nil
}

// literal doubles the quotes of a text that stands in quotes.
func literal(s string) string { return strings.ReplaceAll(s, "'", "''") }
