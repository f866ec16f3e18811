package record

import (
	"fmt"
	"time"
)

// Statements are the texts that a store sends in each transaction. They are constant, so that they are prepared once.
type Statements struct {
	// Record takes the event's id and the consumer as its two parameters, and answers with one row of two columns, the first
	// of which is whether the event was inserted, or with none if it was not.
	Record string

	// Guarded is whether Record sets the time-outs until the end of the transaction too, as it does where the dialect has them. They are
	// set before the row is inserted, but after the table itself was locked: a wait for a migration has to be ended by the client.
	Guarded bool

	// Unkeyed begins a transaction without a record: it sets the time-out of an idle transaction, and marks the transaction for
	// Same. Empty where the dialect has neither.
	Unkeyed string

	// Forget takes the event's id, the consumer, and what the consumers of its hand-ons begin with, and deletes their records.
	Forget string

	// Same answers with a text that is empty, or with null, unless the transaction of Record is the current one still. In one in
	// which a statement failed it fails. Empty where COMMIT tells, and Begin fails within a transaction.
	Same string
}

func postgresStatements(cfg *Config, form Form) Statements {
	consumer := fmt.Sprintf(guardedSQL, milliseconds(cfg.LockTimeout), milliseconds(cfg.IdleTimeout))
	return Statements{
		Record:  fmt.Sprintf(recordSQL[form], cfg.tableSQL(), consumer, restoreSQL),
		Guarded: true,
		Unkeyed: fmt.Sprintf(unkeyedSQL, milliseconds(cfg.IdleTimeout)),
		Same:    "select current_setting('" + keptSetting + "', true)",
		Forget:  fmt.Sprintf("delete from %s where event_id = $1 and (consumer_id = $2 or starts_with(consumer_id::text, $3))", cfg.tableSQL()),
	}
}

func milliseconds(d time.Duration) int64 { return d.Milliseconds() }

// keptSetting keeps the session's own lock_timeout until the end of the transaction, and marks the transaction.
const keptSetting = "einmal.lock_timeout"

// guardedSQL is the second value of the record, the consumer, which is computed before the row is inserted and waited for: on the way
// it sets the time-outs, in milliseconds, until the end of the transaction. The case keeps them in this order: the session's own
// lock_timeout is read before it is set. A statement of its own for this costs the server about 15 µs more for each message.
const guardedSQL = `case when set_config('` + keptSetting + `', current_setting('lock_timeout'), true) is null then null
when set_config('lock_timeout', '%d', true) is null then null
when set_config('idle_in_transaction_session_timeout', '%d', true) is null then null
else $2 end`

// unkeyedSQL leaves the session's lock_timeout alone.
const unkeyedSQL = `select set_config('` + keptSetting + `', current_setting('lock_timeout'), true), set_config('idle_in_transaction_session_timeout', '%d', true)`

// restoreSQL brings back the session's own lock_timeout, for the function's statements. What RETURNING lists is evaluated after
// the row, and any wait for it.
const restoreSQL = `set_config('lock_timeout', current_setting('` + keptSetting + `'), true)`

// recordSQL takes the table, the consumer's value, and restoreSQL.
var recordSQL = map[Form]string{
	// The counter has no index. xmax is zero in a row that was inserted, and names the updating transaction in one that was
	// there. Both lock the row until the end of the transaction.
	Upsert: `insert into %s as p (event_id, consumer_id) values ($1, %s)
on conflict (event_id, consumer_id) do update set duplicates = p.duplicates + 1
returning (xmax = 0) as inserted, %s`,

	DoNothing: `insert into %s (event_id, consumer_id) values ($1, %s)
on conflict (event_id, consumer_id) do nothing
returning true as inserted, %s`,
}

func sqliteStatements(cfg *Config, form Form) Statements {
	record := map[Form]string{
		// SQLite has no xmax. The counter is 0 in a row that was inserted, and nowhere else.
		Upsert: `insert into %s (event_id, consumer_id) values (?1, ?2)
on conflict (event_id, consumer_id) do update set duplicates = duplicates + 1
returning duplicates = 0, null`,

		DoNothing: `insert into %s (event_id, consumer_id) values (?1, ?2)
on conflict (event_id, consumer_id) do nothing
returning 1, null`,
	}[form]
	return Statements{
		Record: fmt.Sprintf(record, cfg.tableSQL()),
		Forget: fmt.Sprintf("delete from %s where event_id = ?1 and (consumer_id = ?2 or substr(consumer_id, 1, length(?3)) = ?3)", cfg.tableSQL()),
	}
}
