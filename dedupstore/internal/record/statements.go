package record

import (
	"fmt"
	"time"
)

// Statements are the texts that a store sends in each transaction. They are constant, so that they are prepared once.
type Statements struct {
	// Record takes the event's id and the consumer as its two parameters, and answers with one row of two columns: whether
	// the event was inserted, see OutcomeOf, and the Session.
	Record string

	// Look takes the same two, and answers with the text true if the record is there. It is sent behind a Record that says
	// nothing, outside of its transaction, so that it does not see what a trigger of that transaction has written.
	Look string

	// Guarded is whether Record sets the time-outs until the end of the transaction too, as it does where the dialect has
	// them. They are set before the row is inserted, but after the table itself was locked: a wait for a migration has to
	// be ended by the client.
	Guarded bool

	// Unkeyed begins a transaction without a record: it sets the time-out of an idle transaction, and marks the
	// transaction for Same. It answers with the Session. Empty where the dialect has neither.
	Unkeyed string

	// Forget takes the event's id, the consumer, and what the consumers of its hand-ons begin with, and deletes their
	// records.
	Forget string

	// Left takes the same, and answers behind Forget with whether any of the records is still there.
	Left string

	// TakeBack takes the event's id and the consumer, and deletes their record. Empty where Many has its own.
	TakeBack string

	// Mark follows the record, or BEGIN, where a transaction has to be marked by a statement of its own. Empty where it
	// has not.
	Mark string

	// Same answers with two texts, of which the first is empty, or null, unless the transaction of Record is the current
	// one still; the second is the Session. In one in which a statement failed it fails. Where there is a Mark, Same
	// answers with nothing, and fails unless the transaction is the one that was marked.
	Same string
}

func postgresStatements(cfg *Config, table string, form Form, reported bool) Statements {
	mark := markOf(reported)
	consumer := fmt.Sprintf(guardedSQL, milliseconds(cfg.LockTimeout), fmt.Sprintf(idleSQL, milliseconds(cfg.IdleTimeout)),
		mark)
	return Statements{
		Record:  fmt.Sprintf(recordSQL[form], table, consumer, restoreSQL),
		Look:    fmt.Sprintf("select exists (select from %s where event_id = $1 and consumer_id = $2)::text", table),
		Guarded: true,
		Unkeyed: fmt.Sprintf(unkeyedSQL, fmt.Sprintf(idleSQL, milliseconds(cfg.IdleTimeout)), mark),
		Same:    "select current_setting('" + keptSetting + "', true), " + sessionSQL,
		Forget:  fmt.Sprintf("delete from %s where "+forgotten, table),
		Left:    fmt.Sprintf("select exists (select from %s where "+forgotten+")", table),
	}
}

// forgotten are the records of an event and of its hand-ons.
const forgotten = "event_id = $1 and (consumer_id = $2 or starts_with(consumer_id::text, $3))"

// markOf marks a transaction for the client, where it looks.
func markOf(reported bool) string {
	if reported {
		return reportSQL
	}
	return ""
}

func milliseconds(d time.Duration) int64 { return d.Milliseconds() }

// keptSetting keeps the session's own lock_timeout until the end of the transaction, and marks the transaction.
const keptSetting = "einmal.lock_timeout"

// ReportedSetting is one that the server reports to the client whenever it changes, with the answer that it sends
// anyway. It is set until the end of the transaction, so that the client sees, without asking, when that has come. It
// says how transactions begin that name no mode of access, and decides nothing inside of one.
const ReportedSetting = "default_transaction_read_only"

// ReportedValue is its value in the transaction that was begun.
const ReportedValue = "on"

const reportSQL = `
when set_config('` + ReportedSetting + `', '` + ReportedValue + `', true) is null then null`

// idleSQL sets the time-out of an idle transaction, in milliseconds, unless the session's own is stricter.
const idleSQL = `set_config('idle_in_transaction_session_timeout', case current_setting('idle_in_transaction_session_timeout') when '0' then '%[1]d'
else least(%[1]d, extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint::text end, true)`

// guardedSQL is the second value of the record, the consumer, which is computed before the row is inserted and waited
// for: on the way it sets the time-outs, in milliseconds, until the end of the transaction. The case keeps them in this
// order: the session's own lock_timeout is read before it is set. A statement of its own for this costs the server
// about 15 µs more for each message.
const guardedSQL = `case when set_config('` + keptSetting + `', current_setting('lock_timeout'), true) is null then null
when set_config('lock_timeout', '%d', true) is null then null
when %s is null then null%s
else $2 end`

// unkeyedSQL leaves the session's lock_timeout alone.
var unkeyedSQL = `select case when set_config('` + keptSetting + `', current_setting('lock_timeout'), true) is null then null
when %s is null then null%s
else ` + sessionSQL + ` end`

// restoreSQL brings back the session's own lock_timeout, for the function's statements, and reads the Session. What
// RETURNING lists is evaluated after the row, and any wait for it.
var restoreSQL = `case when set_config('lock_timeout', current_setting('` + keptSetting +
	`'), true) is null then null else ` + sessionSQL + ` end`

// recordSQL takes the table, the consumer's value, and restoreSQL. The outcome is null if the row has another key than
// the one that was to be recorded, as a trigger may have it.
var recordSQL = map[Form]string{
	// The counter has no index. xmax is zero in a row that was inserted, and names the updating transaction in one that
	// was there. Both lock the row until the end of the transaction.
	Upsert: `insert into %[1]s as p (event_id, consumer_id) values ($1, %[2]s)
on conflict (event_id, consumer_id) do update set duplicates = p.duplicates + 1
returning case when p.event_id = $1 and p.consumer_id = $2 then xmax = 0 end as inserted, %[3]s as session`,

	// The second half sees what was there when the statement began. It says nothing of a record that another transaction
	// committed meanwhile.
	DoNothing: `with recorded as (insert into %[1]s as p (event_id, consumer_id) values ($1, %[2]s)
on conflict (event_id, consumer_id) do nothing
returning case when p.event_id = $1 and p.consumer_id = $2 then true end as inserted, %[3]s as session)
select inserted, session from recorded
union all select false, %[3]s from %[1]s where event_id = $1 and consumer_id = $2 and not exists (select from recorded)`,
}

// forgottenInSQLite are the same.
const forgottenInSQLite = "event_id = ?1 and (consumer_id = ?2 or substr(consumer_id, 1, length(?3)) = ?3)"

func sqliteStatements(table string, form Form) Statements {
	record := map[Form]string{
		// SQLite has no xmax. The counter is 0 in a row that was inserted, and nowhere else.
		Upsert: `insert into %s (event_id, consumer_id) values (?1, ?2)
on conflict (event_id, consumer_id) do update set duplicates = duplicates + 1
returning case when event_id = ?1 and consumer_id = ?2 then duplicates = 0 end, ''`,

		DoNothing: `insert into %s (event_id, consumer_id) values (?1, ?2)
on conflict (event_id, consumer_id) do nothing
returning case when event_id = ?1 and consumer_id = ?2 then 1 end, ''`,
	}[form]
	return Statements{
		Record:   fmt.Sprintf(record, table),
		Look:     fmt.Sprintf("select case when exists (select 1 from %s where event_id = ?1 and consumer_id = ?2) then 'true' else 'false' end", table),
		Forget:   fmt.Sprintf("delete from %s where "+forgottenInSQLite, table),
		Left:     fmt.Sprintf("select exists (select 1 from %s where "+forgottenInSQLite+")", table),
		TakeBack: fmt.Sprintf("delete from %s where event_id = ?1 and consumer_id = ?2", table),
		Mark:     "savepoint einmal_transaction",
		Same:     "release savepoint einmal_transaction",
	}
}
