package record

import (
	"context"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// youngest is the age from which on a missing partition may have been dropped. One for younger ids has not been created yet.
const youngest = time.Hour

// strategySQL tells how the table is partitioned: r by range, h by hash, l by list, or an empty text.
const strategySQL = `select coalesce((select partstrat::text from pg_partitioned_table where partrelid = to_regclass($1)), '')`

// checkViolation explains why the record violates a constraint: in a partitioned table, no partition takes the id.
//
// Where the partitions are ranges of UUIDv7 ids, one that was dropped makes its events fail: they are too old. But a partition
// that nobody has created yet makes its events fail too, and those must not be given up. So an event is too old only if its id
// says so, and there is a record of a later one.
func (p *Postgres) checkViolation(ctx context.Context, key dedupstore.Key, err error, ask Query) error {
	strategy, askErr := ask(ctx, strategySQL, p.cfg.tableSQL())
	if askErr != nil {
		return p.as(dedupstore.Unavailable, "look for the partition of an event: %w", askErr)
	}
	born, isUUID7 := timeOfUUID7(key.Event)
	switch {
	case strategy == "":
		return p.refused(err, codeCheckViolation)
	case strategy != "r":
		return p.noPartition("no partition of %s takes this event id: create the missing one", p.cfg.tableSQL())
	case !isUUID7:
		return p.refused(err, codeCheckViolation)
	case time.Since(born) < youngest:
		return p.noPartition("no partition of %s takes ids of %s: create it, and the next ones in time", p.cfg.tableSQL(), born.UTC().Format(time.DateTime))
	}
	later, askErr := ask(ctx, fmt.Sprintf(`select exists (select from %s where event_id > $1)::text`, p.cfg.tableSQL()), key.Event)
	switch {
	case askErr != nil:
		return p.as(dedupstore.Unavailable, "look for the partition of an event: %w", askErr)
	case later != "true":
		return p.noPartition("no partition of %s takes ids of %s, and there is no record of a later event: create it, or record a later event first", p.cfg.tableSQL(), born.UTC().Format(time.DateTime))
	}
	return fmt.Errorf("%s: %w: it is of %s, and %s has no partition for that time any more", p.store, dedupstore.ErrTooOld, born.UTC().Format(time.DateTime), p.cfg.tableSQL())
}

// noPartition does not wrap the server's error, whose details repeat the id.
func (p *Postgres) noPartition(format string, args ...any) error {
	return p.as(dedupstore.Misconfigured, format, args...)
}
