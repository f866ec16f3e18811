package pgxstore

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

const tableName = "processed_event"

// statements are the texts that the store sends in each transaction. They are constant, so that they are prepared once.
type statements struct {
	table  string // as it stands in SQL
	guard  string
	record string
	plan   string // has the server plan the record, and run nothing
}

func newStatements(cfg *Config) statements {
	table := pgx.Identifier{tableName}.Sanitize()
	if cfg.Schema != "" {
		table = pgx.Identifier{cfg.Schema, tableName}.Sanitize()
	}
	return statements{
		table:  table,
		guard:  fmt.Sprintf(guardSQL, cfg.LockTimeout.Milliseconds(), cfg.IdleTimeout.Milliseconds()),
		record: fmt.Sprintf(recordSQL, table, "$1, $2"),
		plan:   "explain " + fmt.Sprintf(recordSQL, table, "null, null"),
	}
}

// guardSQL sets the time-outs, in milliseconds, until the end of the transaction, and keeps the session's own lock_timeout aside. The case
// makes sure that it is read before it is set.
const guardSQL = `select case when set_config('einmal.lock_timeout', current_setting('lock_timeout'), true) is not null
then set_config('lock_timeout', '%d', true) end, set_config('idle_in_transaction_session_timeout', '%d', true)`

// recordSQL inserts the record, or counts a redelivery in a column that has no index, and says which: xmax is zero in a
// row that was inserted, and names the updating transaction in one that was there. Both lock the row until the end of
// the transaction. What RETURNING lists is evaluated after the row, and any wait for it: there the session's own
// lock_timeout comes back, for the function's statements.
const recordSQL = `insert into %s as p (event_id, consumer_id) values (%s)
on conflict (event_id, consumer_id) do update set duplicates = p.duplicates + 1
returning (xmax = 0) as inserted, set_config('lock_timeout', current_setting('einmal.lock_timeout'), true)`
