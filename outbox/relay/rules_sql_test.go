package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
)

// B3: a transaction that is open elsewhere in the cluster, and has written, hides nothing.
func TestOpenTransactionElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.MustExec("create table elsewhere (n int)")
	tx, err := b.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "insert into elsewhere values (1)")
	must(t, err)
	start(t, b.config(outbox.SinglePhase))
	b.insert("1")
	eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
}

// B5: many rows behind a blocked one hold up nobody else.
func TestHotKeyBehindABlockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("first")
	b.MustExec("update outbox_event set status = 'BLOCKED'")
	b.MustExec("insert into outbox_event (event_id, topic, partition_key) select 'hot', $1::text, 'k' from generate_series(1, 50000)", b.topic)
	cfg := b.config(outbox.SinglePhase)
	start(t, cfg)
	for i := range 64 {
		must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{ID: fmt.Sprint(i), Topic: b.topic,
			Key: []byte(fmt.Sprint(i))}))
	}
	eventually(t, "the others are sent", func() bool { return b.rows("event_id not in ('hot', 'first')") == 0 })
	if b.rows("event_id = 'hot' and status = 'PENDING'") != 50000 {
		t.Error("something of the blocked key was sent")
	}
}

// B10: rows whose relay has died return when their claims have expired, also where nothing new comes to their buckets.
func TestStuckRowsReturn(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2")
	b.MustExec(`update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 1, claimed_until = clock_timestamp() + case event_id when '1' then interval '-1 second' else interval '1 hour' end`)
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "what has expired is sent", func() bool {
		return r.Status().Returned >= 1 &&
			b.rows("event_id = '1'") == 0
	})
	eventually(t, "so is the rest, taken back by the new owner", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2" {
		t.Error(got)
	}
}

// B10: what a relay that is alive has claimed for long stays its own; what has no owner returns.
func TestStuckRowsOfALivingRelayStay(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1")
	must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{ID: "2", Topic: b.topic, Key: []byte("another")}))
	b.MustExec(`update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 1, claimed_until = clock_timestamp() - interval '1 second'`)
	b.MustExec(`insert into outbox_lease (bucket, owner, epoch, leased_until) select bucket, 'alive', 1, clock_timestamp() + interval '1 hour' from outbox_event where event_id = '1'
		on conflict (bucket) do update set owner = excluded.owner, leased_until = excluded.leased_until`)
	r := start(t, b.config(outbox.TwoPhase))
	eventually(t, "what has no owner is sent", func() bool {
		return r.Status().Returned >= 1 &&
			b.rows("event_id = '2'") == 0
	})
	if n := r.Status().Returned; n != 1 || b.rows("event_id = '1' and status = 'PUBLISHING' and claim_epoch = 1") != 1 {
		t.Errorf("%d rows have returned: that of a living relay has", n)
	}
}

// B8: a row that is blocked holds up what comes after it, and nothing that comes before.
func TestABlockedRowHoldsUpWhatFollows(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.insert("1", "2", "3")
			b.MustExec("update outbox_event set status = 'BLOCKED' where event_id = '2'")
			start(t, b.config(mode))
			eventually(t, "what comes before it is sent", func() bool { return b.rows("event_id = '1'") == 0 })
			if b.rows("event_id = '3' and status = 'PENDING'") != 1 || b.topicHas() != "1" {
				t.Errorf("the topic has %s", b.topicHas())
			}
		})
	}
}

// B16, B19: what the relay does often goes by the partial indexes, also with statistics of a moment at which the table
// was empty.
func TestPlansUseTheIndexes(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.MustExec("analyze outbox_event")
			b.MustExec("alter table outbox_event set (autovacuum_enabled = off)")
			b.MustExec("insert into outbox_event (event_id, topic, partition_key, status) select n::text, $1::text, (n % 1000)::text::bytea, 'PUBLISHED' from generate_series(1, 30000) n", b.topic)
			scans := func() int {
				return tabletest.Value[int](b.Fixture,
					"select coalesce(sum(seq_scan), 0)::int from pg_stat_user_tables where relname = 'outbox_event' and schemaname = current_schema()")
			}
			b.MustExec("select pg_stat_force_next_flush()")
			start(t, b.config(mode))
			before := -1
			for i := range 20 {
				b.insert(fmt.Sprint("event ", i))
				eventually(t, "it is sent", func() bool {
					return tabletest.Value[int](b.Fixture,
						"select count(*) from outbox_event where status = 'PENDING' and bucket is not null") == 0
				})
				if i == 3 {
					b.MustExec("select pg_stat_force_next_flush()")
					before = scans()
				}
			}
			b.MustExec("select pg_stat_force_next_flush()")
			if n := scans() - before; n > 5 { // this test's own look at the table may be some
				t.Errorf("%d scans of the whole table", n)
			}
		})
	}
}

// B16: a batch reads the rows that it sends, some times each, and not the table.
func TestBatchesReadWhatTheySend(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			const rows = 20_000
			b.MustExec("insert into outbox_event (event_id, topic, partition_key) select n::text, $1::text, (n % 1000)::text::bytea from generate_series(1, $2::int) n", b.topic, rows)
			b.MustExec("vacuum analyze outbox_event")
			b.MustExec("alter table outbox_event set (autovacuum_enabled = off)")
			cfg := b.config(mode)
			cfg.BatchRows = 500
			r := start(t, cfg)
			eventually(t, "all are sent", func() bool { return r.Status().Published == rows })
			stats := func(columns string) int {
				b.MustExec("select pg_stat_force_next_flush()")
				return tabletest.Value[int](b.Fixture, "select coalesce(sum("+columns+
					"), 0)::int from pg_stat_user_tables where relname = 'outbox_event' and schemaname = current_schema()")
			}
			changes := map[outbox.Mode]int{outbox.SinglePhase: 1, outbox.TwoPhase: 2}[mode]
			eventually(t, "the server has counted all", func() bool { return stats("n_tup_upd + n_tup_del") >= changes*rows })
			if n := stats("idx_tup_fetch"); n > 10*rows {
				t.Errorf("%d rows were read to send %d", n, rows)
			}
		})
	}
}

// What Write takes as the largest event, the relay sends.
func TestLargestEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	largest := func(size int) outbox.Event {
		return outbox.Event{ID: strings.Repeat("i", 300), Topic: b.topic, Key: []byte("k"), Value: make([]byte, size),
			Headers: []outbox.Header{{Key: "h"}}}
	}
	size, over := 0, outbox.DefaultMaxBytes
	for over-size > 1 {
		middle := (size + over) / 2
		if _, _, err := outbox.NewWriter(nil).Statement(t.Context(), []outbox.Event{largest(middle)},
			outbox.TextArrays); err == nil {
			size = middle
		} else {
			over = middle
		}
	}
	if size < outbox.DefaultMaxBytes-1000 {
		t.Errorf("the largest has %d bytes", size)
	}
	must(t, b.write(t.Context(), tabletest.Commit, largest(size)))
	start(t, b.config(outbox.SinglePhase))
	eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
}

// B12, B19: every transaction that waits, or looks for rows, has settings of its own.
func TestSettingsOfATransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			seen := make(chan string, 10)
			cfg := b.config(mode)
			cfg.PublishTimeout = 3 * time.Second
			cfg.Sarama = func(c *sarama.Config) { c.Producer.Timeout = 3 * time.Second }
			cfg.Database = settingsOf{b.db, seen}
			start(t, cfg)
			b.insert("1")
			want := "jit off, seqscan off, lock 1s, idle 13s"
			if mode == outbox.TwoPhase {
				want = "jit off, seqscan off, lock 1s, idle 10s"
			}
			if got := <-seen; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// settingsOf looks at the settings where rows are deleted.
type settingsOf struct {
	outbox.Database
	seen chan string
}

func (s settingsOf) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return s.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, settingsTx{tx, s.seen}) })
}

type settingsTx struct {
	outbox.Tx
	seen chan string
}

func (t settingsTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if strings.Contains(sql, "delete from") && !strings.Contains(sql, "where false") {
		look := `select 'jit ' || current_setting('jit') || ', seqscan ' || current_setting('enable_seqscan') || ', lock ' || current_setting('lock_timeout') || ', idle ' || current_setting('idle_in_transaction_session_timeout')`
		var text string
		if err := t.Query(ctx, look, nil, func(scan func(...any) error) error { return scan(&text) }); err != nil {
			return 0, err
		}
		select {
		case t.seen <- text:
		default:
		}
	}
	return t.Tx.Exec(ctx, sql, args...)
}
