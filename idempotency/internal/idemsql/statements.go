package idemsql

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/schema"
)

// Step is a statement.
type Step struct {
	SQL  string
	Args []any

	Dest  []any // of the only row, if there may be one
	Found *bool // set to true if there is

	// Skip says that the step is not needed after those before it. A driver that sends all at once need not ask.
	Skip func() bool
}

// dialect has the texts of one database. They are constant, so that they are prepared once.
type dialect struct {
	located bool // the table was looked for, and found

	lock string // takes the locks, and returns a lock: null if none was tried
	full string // scope, limit: whether as many answers are kept
	find string // scope, key
	save string // scope, key, fingerprint, status, headers, body, time to keep: whether what was stored has this key
	look string // scope, key: the text true if an answer is kept
	keep func(time.Duration) any
	args func(req *idempotency.Request) []any
}

// lock is what became of the locks of a request.
type lock int64

const (
	lockSame  lock = iota // a request with this key and fingerprint is in progress
	lockTaken             // taken
	lockOther             // a request with this key and another fingerprint is in progress
)

const lockNone lock = -1 // none was tried: there was an answer

const (
	savepointSQL = "savepoint einmal_request"
	rollbackSQL  = "rollback to savepoint einmal_request"
	releaseSQL   = "release savepoint einmal_request"
)

// postgresLock tries the locks unless there is an answer: that of the request, and then that of the key. Who has the
// key's has that of its own request, too: so where the first is free and the second is not, another request with the
// key is in progress. Locks are the whole database's: the table's own number keeps those of another table, in another
// schema perhaps, apart.
const postgresLock = `select case when exists (select from %[1]s where scope = $3 and key = $4 and expires_at > clock_timestamp()) then null
when not pg_try_advisory_xact_lock($2::bigint # (%[2]s::regclass::oid::bigint << 32)) then 0
when pg_try_advisory_xact_lock($1::bigint # (%[2]s::regclass::oid::bigint << 32)) then 1 else 2 end`

const postgresFull = `select count(*) >= $2::bigint from (select 1 from %[1]s where scope = $1 and expires_at > clock_timestamp() limit $2::bigint) as kept`

// postgresFind locks the row where there are synchronous replicas, so that the COMMIT of a replay writes, and waits for
// them: the COMMIT of the first request may have been cut short while it waited, and a failover may lose what a replay
// has confirmed.
const postgresFind = `select fingerprint, status_code, response_headers, response_body,
(select count(*) from (select 1 from %[1]s where scope = $1 and key = $2 and current_setting('synchronous_standby_names') <> '' for key share) as durable)
from %[1]s where scope = $1 and key = $2 and expires_at > clock_timestamp()`

// postgresSave answers with no row if there is another answer, or if a trigger leaves it out.
const postgresSave = `insert into %[1]s as k (scope, key, fingerprint, status_code, response_headers, response_body, expires_at)
values ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::bigint * interval '1 microsecond')
on conflict (scope, key) do update set fingerprint = excluded.fingerprint, status_code = excluded.status_code,
response_headers = excluded.response_headers, response_body = excluded.response_body, created_at = clock_timestamp(), expires_at = excluded.expires_at
where k.expires_at <= clock_timestamp()
returning k.scope = $1 and k.key = $2`

// postgresLook is sent behind a save that says nothing, outside of its transaction.
const postgresLook = `select exists (select from %[1]s where scope = $1 and key = $2 and expires_at > clock_timestamp())::text`

const sqliteNow = `strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`

// sqliteLock takes the place of the one that writes.
const sqliteLock = `delete from {table} where scope = ?1 and key = ?2 and expires_at <= ` + sqliteNow

const sqliteFull = `select count(*) >= ?2 from (select 1 from {table} where scope = ?1 and expires_at > ` + sqliteNow +
	` limit ?2) as kept`

const sqliteFind = `select fingerprint, status_code, response_headers, response_body, 0
from {table} where scope = ?1 and key = ?2 and expires_at > ` + sqliteNow

// sqliteSave takes the place of an answer that has expired since sqliteLock looked.
const sqliteSave = `insert into {table} (scope, key, fingerprint, status_code, response_headers, response_body, expires_at)
values (?1, ?2, ?3, ?4, ?5, ?6, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?7))
on conflict (scope, key) do update set fingerprint = excluded.fingerprint, status_code = excluded.status_code,
response_headers = excluded.response_headers, response_body = excluded.response_body, created_at = excluded.created_at,
expires_at = excluded.expires_at where expires_at <= ` + sqliteNow + `
returning scope = ?1 and key = ?2`

const sqliteLook = `select case when exists (select 1 from {table} where scope = ?1 and key = ?2 and expires_at > ` +
	sqliteNow + `) then 'true' else 'false' end`

func dialectOf(name schema.Dialect, table string) *dialect {
	if name == schema.SQLite {
		in := func(text string) string { return strings.ReplaceAll(text, "{table}", table) }
		return &dialect{
			lock: in(sqliteLock), find: in(sqliteFind), save: in(sqliteSave),
			keep: func(d time.Duration) any { return fmt.Sprintf("+%.3f seconds", d.Seconds()) },
			args: func(req *idempotency.Request) []any { return []any{req.Scope, req.Key} },
			full: in(sqliteFull), look: in(sqliteLook),
		}
	}
	return &dialect{
		lock: fmt.Sprintf(postgresLock, table, literal(table)), find: fmt.Sprintf(postgresFind, table),
		save: fmt.Sprintf(postgresSave, table),
		keep: func(d time.Duration) any { return d.Microseconds() },
		args: func(req *idempotency.Request) []any {
			return []any{lockOf(req.Scope, req.Key), lockOf(req.Scope, req.Key, string(req.Fingerprint[:])), req.Scope, req.Key}
		},
		full: fmt.Sprintf(postgresFull, table), look: fmt.Sprintf(postgresLook, table),
	}
}

// lockOf is the number of the lock of a key, or of a request with one. Two that share it are told that the other one is
// in progress, and no worse.
func lockOf(parts ...string) int64 {
	h := sha256.New()
	for _, part := range append([]string{"einmal idempotency"}, parts...) {
		_ = binary.Write(h, binary.BigEndian, int64(len(part))) // a hash takes all
		_, _ = h.Write([]byte(part))
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil))) //nolint:gosec // a number like any other
}

// tableSQL is the table as it stands in SQL.
func tableSQL(in, table string) string {
	if in == "" {
		return quote(table)
	}
	return quote(in) + "." + quote(table)
}

// literal makes a text of one, whatever standard_conforming_strings says.
func literal(s string) string {
	return "e'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// quote makes an identifier of a name as it is spelled in the catalogue.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
