package record

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// youngest is the age from which on a missing partition may have been dropped. One for younger ids has not been created
// yet.
const youngest = time.Hour

// farthest is how far ahead of the server's clock the time of an id may lie before it is the producer's clock that is
// wrong, not the partition that is missing.
const farthest = 24 * time.Hour

// strategySQL tells how the table is partitioned: r by range, h by hash, l by list, or an empty text.
const strategySQL = `select coalesce((select partstrat::text from pg_partitioned_table where partrelid = to_regclass($1)), '')`

// checkedSQL tells whether a constraint of the table, or of the type of its column, looks at the event's id.
const checkedSQL = `select exists (select from pg_constraint k left join pg_attribute a on a.attrelid = to_regclass($1) and a.attname = 'event_id'
where k.contype = 'c' and (k.conrelid = to_regclass($1) and a.attnum = any (k.conkey) or k.contypid = a.atttypid and k.contypid <> 0))::text`

// checkViolation explains why the record violates a constraint: in a partitioned table, no partition takes the id.
//
// Where the partitions are ranges of UUIDv7 ids, one that was dropped makes its events fail: they are too old. But a
// partition that nobody has created yet makes its events fail too, and those must not be given up. So an event is too
// old only if its id says so, and there is a record of a later one; and it is refused if its id is of a time that has
// not come, by the server's clock.
func (p *Postgres) checkViolation(ctx context.Context, key dedupstore.Key, err error, ask Query) error {
	strategy, askErr := ask(ctx, strategySQL, p.table())
	if askErr != nil {
		return p.notSeen(askErr)
	}
	born, isUUID7 := timeOfUUID7(key.Event)
	switch {
	case strategy == "":
		return p.checkFailed(ctx, err, ask)
	case strategy != "r":
		return p.noPartition("no partition of %s takes this event id: create the missing one", p.table())
	case !isUUID7:
		return p.refused(err)
	}
	age, askErr := ageOf(ctx, born, ask)
	switch {
	case askErr != nil:
		return p.notSeen(askErr)
	case age < -farthest:
		return fmt.Errorf("%s: %w: it is of %s, which is %v ahead of the server's clock, and %s has no partition for that time: correct the producer's clock",
			p.store, dedupstore.ErrInvalidKey, born.UTC().Format(time.DateTime), (-age).Round(time.Minute), p.table())
	case age < youngest:
		return p.noPartition("no partition of %s takes ids of %s: create it, and the next ones in time", p.table(),
			born.UTC().Format(time.DateTime))
	}
	later, askErr := ask(ctx, fmt.Sprintf(`select exists (select from %s where event_id > $1)::text`, p.table()),
		key.Event)
	switch {
	case askErr != nil:
		return p.notSeen(askErr)
	case later != "true":
		return p.noPartition("no partition of %s takes ids of %s, and there is no record of a later event: create it, or record a later event first", p.table(), born.UTC().Format(time.DateTime))
	}
	return fmt.Errorf("%s: %w: it is of %s, and %s has no partition for that time any more", p.store, dedupstore.ErrTooOld,
		born.UTC().Format(time.DateTime), p.table())
}

// ageOf returns how long ago a time was, by the server's clock.
func ageOf(ctx context.Context, born time.Time, ask Query) (time.Duration, error) {
	text, err := ask(ctx, `select (extract(epoch from clock_timestamp()) * 1000)::bigint::text`)
	if err != nil {
		return 0, err
	}
	now, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(now).Sub(born), err
}

// checkFailed explains a violated CHECK of a table that is not partitioned: one of the id is the event's fault, another
// one would refuse every event.
func (p *Postgres) checkFailed(ctx context.Context, err error, ask Query) error {
	checked, askErr := ask(ctx, checkedSQL, p.table())
	switch {
	case askErr != nil:
		return p.notSeen(askErr)
	case checked == "true":
		return p.refused(err)
	}
	return p.as(dedupstore.Misconfigured,
		"record the event: a check of %s that is not about the event's id, or a trigger, refuses it: %w", p.table(), err)
}

func (p *Postgres) notSeen(err error) error {
	return p.as(dedupstore.Unavailable, "look at the constraints of the table: %w", err)
}

// noPartition does not wrap the server's error, whose details repeat the id.
func (p *Postgres) noPartition(format string, args ...any) error {
	return p.as(dedupstore.Misconfigured, format, args...)
}
