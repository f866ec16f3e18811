package relay

import (
	"strconv"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// statements are the texts of a relay. Statuses are literals, so that plans use the partial indexes; where rows are
// found by their ids, an empty text behind the status keeps plans away from those, which statistics may call empty.
// They are found by id = any(an array), not by a join with it: a join may be planned as a scan of the whole table.
// Arrays are text, so that any driver can pass them; an array of epochs has one of each bucket, 0 where there is none.
type statements struct {
	pending, guard, lock      string
	candidates, fetch         string
	delete, publish, block    string
	lease, takeBack, claim    string
	markDelete, markPublish   [2]string // where the rows stand, and by their ids
	giveBack, unlease         string
	cleanUp, sweep, sweepLock string
	declare, mode, seed       string
	rights                    []string
	backlog, oldest           string
}

func newStatements(t outboxsql.Tables, mode outbox.Mode) *statements { //nolint:funlen // one text after the other
	const free = `(o.partition_key is null or not exists (
    select from {event} h where h.status = 'BLOCKED' and h.bucket = o.bucket and h.topic = o.topic and h.partition_key = o.partition_key and h.id < o.id))`
	unleased := ""
	if mode == outbox.TwoPhase {
		unleased = "\nwhere not exists (select from {lease} l where l.bucket = b.bucket and l.leased_until > clock_timestamp())"
	}
	return &statements{
		// LIMIT keeps the planner from joining all rows that wait with the buckets. Of buckets that are parked: the
		// last number that waits, what is blocked, and whether there is a row to be sent behind the last number that
		// was known
		pending: t.In(`select b.bucket::bigint, w.last, h.n, h.sum::text, f.id is not null
from generate_series(0, 63) as b(bucket)
cross join lateral (select from {event} o where o.status = 'PENDING' and ` + inBucket("o") + ` order by o.bucket, o.id limit 1) as p
left join unnest($1::text::bigint[], $2::text::bigint[]) as k(bucket, last) on k.bucket = b.bucket
left join lateral (select o.id as last from {event} o where o.status = 'PENDING' and ` + inBucket("o") + ` and k.bucket is not null
  order by o.bucket desc, o.id desc limit 1) as w on true
left join lateral (select count(*) as n, sum(x.id) as sum from (select h.id from {event} h where h.status = 'BLOCKED' and ` + inBucket("h") + `
  and k.bucket is not null order by h.bucket, h.id limit 100) as x) as h on true
left join lateral (select o.id from {event} o where o.status = 'PENDING' and (o.bucket, o.id) > (k.bucket, k.last) and o.bucket <= k.bucket and ` + free + `
  order by o.bucket, o.id limit 1) as f on true` + unleased),

		// No scan of the whole table, and no join that reads all that waits, whatever the statistics were made of. No
		// JIT: the costs that PostgreSQL adds to what is disabled would make it compile, which takes 100 ms. No
		// bitmaps: rows are locked in the order of their ids. And no role that somebody has left in the session, whose
		// rows might be fewer.
		guard: `select set_config('idle_in_transaction_session_timeout', $1, true), set_config('lock_timeout', $2, true),
  set_config('statement_timeout', $3, true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
  set_config('jit', 'off', true), set_config('role', $4, true)`,

		// a statement before that which reads the rows: read by the same one, they would be as of before the lock
		lock: t.In(`select b.bucket from unnest($1::text::bigint[]) as b(bucket)
where (select m.mode from {mode} m where m.only_row) = '` + string(mode) + `' and pg_try_advisory_xact_lock(hashoid($2::text::regclass), b.bucket::int)`),

		candidates: t.In(`select c.bucket::bigint, c.id, c.topic, c.partition_key, c.size::bigint, c.claims::bigint, c.partition
from unnest($1::text::bigint[], $2::text::bigint[]) as b(bucket, most) cross join lateral (
  select o.bucket, o.id, o.topic, o.partition_key, coalesce(octet_length(o.payload), 0) + octet_length(o.headers) + octet_length(o.event_id) as size, o.claims, o.partition::bigint
  from {event} o
  where o.status = 'PENDING' and ` + inBucket("o") + ` and ` + free + `
  order by o.bucket, o.id limit b.most) as c`),

		fetch: t.In(`select o.id, o.ctid::text, o.topic, o.partition_key, o.event_id, o.payload, o.headers from {event} o
where o.id = any($1::text::bigint[]) and o.status || '' = 'PENDING' for no key update skip locked`),

		// where the rows stand they stay as long as fetch has them locked
		delete:  t.In(`delete from {event} where ctid = any($1::text::tid[])`),
		publish: t.In(`update {event} set status = 'PUBLISHED', published_at = clock_timestamp(), last_error = null where ctid = any($1::text::tid[])`),
		block: t.In(`update {event} o set status = 'BLOCKED', attempts = o.attempts + 1, last_error = e.error, claim_epoch = null, claimed_until = null
from unnest($1::text::bigint[], $2::text::bigint[], $3::text::text[]) as e(id, epoch, error)
where o.id = any($1::text::bigint[]) and o.id = e.id and (o.status || '' = 'PENDING' and e.epoch = 0 or o.status || '' = 'PUBLISHING' and o.claim_epoch = e.epoch)`),

		lease: t.In(`with c as materialized (select bucket from {lease} where bucket = any($1::text::bigint[]) and leased_until < clock_timestamp()
  order by bucket for no key update skip locked)
update {lease} l set owner = $2::text, epoch = l.epoch + 1, leased_until = clock_timestamp() + $3::text::interval from c where l.bucket = c.bucket
returning l.bucket::bigint, l.epoch`),

		// it waits for a predecessor that is just marking them: what that leaves must come back before anything else
		// is claimed
		takeBack: t.In(`with s as materialized (select id from {event} where status = 'PUBLISHING' and bucket = any($1::text::bigint[]) order by id + 0 for no key update)
update {event} o set ` + returned("$2") + ` from s where o.id = s.id and o.status || '' = 'PUBLISHING'`),

		claim: t.In(`with c as materialized (select o.ctid as at from {event} o where o.id = any($1::text::bigint[])
  and o.status || '' = 'PENDING' and ((select $2::text::bigint[]))[o.bucket + 1] > 0 order by o.id for no key update skip locked)
update {event} o set status = 'PUBLISHING', claims = o.claims + 1, claim_epoch = ((select $2::text::bigint[]))[o.bucket + 1],
  claimed_until = clock_timestamp() + $3::text::interval
from c where o.ctid = c.at and o.status || '' = 'PENDING'
returning o.id, o.ctid::text, o.topic, o.partition_key, o.event_id, o.payload, o.headers`),

		// where the claim has left them; those that somebody has moved since are marked by their ids
		markDelete: [2]string{t.In(`delete from {event} o ` + claimedAt), t.In(`delete from {event} o ` + ours)},
		markPublish: [2]string{t.In(`update {event} o set ` + published + ` ` + claimedAt),
			t.In(`update {event} o set ` + published + ` ` + ours)},
		// the claim is undone: nothing was wrong with the row, nor did its relay die
		giveBack: t.In(`update {event} o set status = 'PENDING', claims = o.claims - 1, claim_epoch = null, claimed_until = null ` + ours),
		unlease: t.In(`with c as materialized (select l.bucket from unnest($1::text::bigint[], $2::text::bigint[]) as e(bucket, epoch) join {lease} l using (bucket, epoch)
  order by l.bucket for no key update of l)
update {lease} l set leased_until = '-infinity' from c where l.bucket = c.bucket`),

		// one statement that repeats its conditions: between a look and an update by id the row could have been
		// claimed again
		cleanUp: t.In(`with s as materialized (select o.id from {event} o where o.status = 'PUBLISHING' and o.claimed_until < clock_timestamp()
  and not exists (select from {lease} l where l.bucket = o.bucket and l.leased_until > clock_timestamp()) order by o.bucket, o.id limit 5000 for no key update of o skip locked)
update {event} o set ` + returned("$1") + ` from s where o.id = s.id and o.status || '' = 'PUBLISHING' and o.claimed_until < clock_timestamp()`),

		sweepLock: `select pg_try_advisory_xact_lock(hashoid($1::text::regclass), 64)`,
		// clock_timestamp() alone is no condition of an index: all that was sent would be read each time
		sweep: t.In(`delete from {event} where ctid = any(array(select ctid from {event}
  where status = 'PUBLISHED' and published_at < (select clock_timestamp()) - $1::text::interval order by published_at limit 5000 for update skip locked))`),

		declare: t.In(`insert into {mode} (mode) values ('` + string(mode) + `') on conflict (only_row) do nothing`),
		rights:  rights(t, mode),
		mode:    t.In(`select mode from {mode}`),
		seed:    t.In(`insert into {lease} (bucket) select generate_series(0, 63) on conflict (bucket) do nothing`),

		// a limit of null is none
		backlog: t.In(`select (select count(*) from (select from {event} where status = 'PENDING' order by bucket limit $1::text::bigint) as p),
  (select count(*) from (select from {event} where status = 'BLOCKED' order by bucket limit $1::text::bigint) as b),
  (select count(*) from (select from {event} where status = 'PUBLISHING' order by bucket limit $1::text::bigint) as p),
  current_setting('transaction_read_only') = 'on'`),
		oldest: t.In(`select extract(epoch from clock_timestamp() - min(c.created_at))::float8::text, min(c.id) from generate_series(0, 63) as b(bucket) cross join lateral (
  (select o.id, o.created_at from {event} o where o.status = 'PENDING' and ` + inBucket("o") + ` order by o.bucket, o.id limit 1) union all
  (select o.id, o.created_at from {event} o where o.status = 'PUBLISHING' and ` + inBucket("o") + ` order by o.bucket, o.id limit 1)) as c`),
	}
}

// rights are statements that touch nothing, and need the columns and the rights that the others do.
func rights(t outboxsql.Tables, mode outbox.Mode) []string {
	list := []string{
		t.In(`select partition, claims from {event} where false for no key update`),
		t.In(`update {event} set status = status where false`),
		t.In(`delete from {event} where false`),
	}
	if mode == outbox.TwoPhase {
		list = append(list, t.In(`update {lease} set epoch = epoch where false`))
	}
	return list
}

// inBucket finds the rows of b.bucket. It is no =, by which the planner would know that the order by bucket and id is
// that by id: it could read the whole table in that order, by the primary key, if it takes the rows of the bucket for
// many. So only the partial indexes have it.
func inBucket(table string) string {
	return table + ".bucket >= b.bucket and " + table + ".bucket <= b.bucket"
}

// ours are the rows that are still claimed as they were: the others have been taken back. They are found in the order
// of their ids, in which all lock them: guard forbids the plan that would find them in another.
const ours = `where o.id = any($1::text::bigint[]) and o.status || '' = 'PUBLISHING' and o.claim_epoch = ((select $2::text::bigint[]))[o.bucket + 1]`

// claimedAt are those of ours that stand where they were claimed. The ids are only compared: coalesce keeps the
// planner from a join.
const claimedAt = `where o.ctid = any($1::text::tid[]) and coalesce(o.id in (select unnest($3::text::bigint[])), false)
  and o.status || '' = 'PUBLISHING' and o.claim_epoch = ((select $2::text::bigint[]))[o.bucket + 1]`

const published = `status = 'PUBLISHED', published_at = clock_timestamp(), last_error = null, claim_epoch = null, claimed_until = null`

// returned is what becomes of a row whose relay has died, or lost its lease.
func returned(most string) string {
	return `status = case when o.claims >= ` + most + `::text::int then 'BLOCKED' else 'PENDING' end,
  last_error = case when o.claims >= ` + most + `::text::int then 'its relay ended while it held this row, ' || o.claims || ' times: look for what ends it, then retry the event' else o.last_error end,
  claim_epoch = null, claimed_until = null`
}

// millis is PostgreSQL's text of a time-out, interval of an interval.
func millis(d time.Duration) string   { return strconv.FormatInt(d.Milliseconds(), 10) }
func interval(d time.Duration) string { return millis(d) + " milliseconds" }
