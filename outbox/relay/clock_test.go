package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// shifted returns a Database of which the clock is that of shift: the relay's statements find a clock_timestamp() in
// the schema before they find the server's.
func (b *bench) shifted() outbox.Database {
	b.T.Helper()
	b.MustExec("create table shift (by interval not null)")
	b.MustExec("insert into shift values ('0')")
	schema := tabletest.Value[string](b.Fixture, "select current_schema()")
	b.MustExec(fmt.Sprintf("create function clock_timestamp() returns timestamptz language sql volatile as $$ select pg_catalog.clock_timestamp() + by from %s.shift $$", schema))
	cfg, err := pgxpool.ParseConfig(b.URL)
	must(b.T, err)
	cfg.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	must(b.T, err)
	b.T.Cleanup(pool.Close)
	return pgxoutbox.NewDatabase(pool)
}

func (b *bench) shift(by string) {
	b.T.Helper()
	b.MustExec("update shift set by = $1::text::interval", by)
}

// The database's clock jumps, forth and back by hours, while relays work: nothing is lost, and the first copies are in
// order. Leases that end too soon cost repetitions at most.
func TestDatabaseClockJumps(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			cfg := b.config(mode)
			cfg.Database, cfg.BatchRows = b.shifted(), 3
			for range 2 {
				start(t, cfg)
			}
			var want []string
			for _, by := range []string{"1 hour", "-2 hours", "3 hours", "0"} {
				for range 30 {
					id := fmt.Sprint(len(want))
					want = append(want, id)
					b.insert(id)
				}
				b.shift(by) // while some of them are in work
			}
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			list, err := outboxtest.Records(b.b.Addrs, b.topic)
			must(t, err)
			if got, _ := outboxtest.FirstCopies(list); strings.Join(got["k"], " ") != strings.Join(want, " ") {
				t.Errorf("order %v", got["k"])
			}
		})
	}
}

// The clock is set back while a lease of a relay that has died runs: it runs until the clock is there again. Ending the
// leases by hand is what the documents advise; the rows are sent at once then, in their place.
func TestClockSetBackUnderADeadRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = b.shifted()
	b.insert("1")
	// what a relay leaves that has died before the clock was set back by an hour
	b.MustExec("insert into outbox_lease (bucket, owner, epoch, leased_until) select bucket, 'dead', 7, pg_catalog.clock_timestamp() + interval '45 seconds' from outbox_event")
	b.MustExec("update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 7, claimed_until = pg_catalog.clock_timestamp() + interval '45 seconds'")
	b.shift("-1 hour")
	r := start(t, cfg)
	b.insert("2")
	must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{ID: "other", Topic: b.topic, Key: b.elsewhere()}))
	eventually(t, "other buckets go on", func() bool { return r.Status().Published == 1 })
	if n := b.rows("event_id in ('1', '2')"); n != 2 {
		t.Errorf("%d rows of the leased bucket are left", n)
	}
	b.MustExec("update outbox_lease set leased_until = '-infinity'")
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "other 1 2" {
		t.Error(got)
	}
}

// The clock is set forward: what was sent is swept before its time, and nothing else is.
func TestClockSetForwardSweepsWhatWasSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	cfg := b.config(outbox.TwoPhase)
	cfg.Database, cfg.Keep = b.shifted(), 0 // the default: an hour
	b.insert("1")
	b.MustExec("update outbox_event set status = 'DEAD'")
	b.insert("2")
	start(t, cfg)
	eventually(t, "it is sent and kept", func() bool { return b.rows("status = 'PUBLISHED'") == 1 })
	b.shift("2 hours")
	eventually(t, "it is swept", func() bool { return b.rows("status = 'PUBLISHED'") == 0 })
	if b.rows("status = 'DEAD'") != 1 {
		t.Error("a row that was never sent is gone")
	}
}

// The relay's own clock is wrong, so that Kafka refuses its records' times: it pauses and says so, and no row is
// blamed.
func TestWrongClockOfTheRelay(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			var right atomic.Bool
			b.b.Fake.ControlKey(0, refusing(b.b, func(*kmsg.ProduceRequest) (int16, bool) {
				return codeInvalidTimestamp,
					!right.Load()
			}))
			cfg := b.config(mode)
			r := start(t, cfg)
			b.insert("1", "2")
			eventually(t, "it says what is wrong", func() bool {
				err := r.Status().Error
				return err != nil && strings.Contains(strings.ToLower(err.Error()), "timestamp")
			})
			eventually(t, "the rows are as they were",
				func() bool { return b.rows("status = 'PENDING' and attempts = 0 and claims = 0") == 2 })
			right.Store(true)
			eventually(t, "all are sent when it is right again", func() bool { return b.rows("true") == 0 })
			if got := b.topicHas(); got != "1 2" {
				t.Error(got)
			}
		})
	}
}

// elsewhere is a key that is not in the bucket of the rows that there are.
func (b *bench) elsewhere() []byte {
	b.T.Helper()
	return tabletest.Value[[]byte](b.Fixture, `select k::text::bytea from generate_series(1, 1000) k
		where (hashtextextended($1::text || chr(31) || encode(k::text::bytea, 'hex'), 0) & 63)::smallint not in (select bucket from outbox_event) limit 1`, b.topic)
}
