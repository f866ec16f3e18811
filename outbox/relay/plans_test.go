package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
)

// planned is a Database that has each statement of a relay on outbox_event explained before it runs, and notes the
// nodes of the plans that would read the table as a whole.
type planned struct {
	outbox.Database
	mu   sync.Mutex
	bad  map[string]string // plans by statement
	seen int
	read int64 // rows of the table that batches and polls have read
}

func (p *planned) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return p.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		before, err := rowsRead(ctx, tx)
		if err != nil {
			return err
		}
		mine := plannedTx{tx, p, new(bool)}
		if err := f(ctx, mine); err != nil {
			return err
		}
		after, err := rowsRead(ctx, tx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !*mine.house {
			p.read += after - before
		}
		return err
	})
}

// rowsRead is how many rows of the table this session has read, since it last told the server's statistics.
func rowsRead(ctx context.Context, tx outbox.Tx) (n int64, err error) {
	err = tx.Query(ctx, "select (idx_tup_fetch + seq_tup_read)::bigint from pg_stat_xact_user_tables where relid = 'outbox_event'::regclass", nil, func(scan func(...any) error) error {
		return scan(&n)
	})
	return n, err
}

type plannedTx struct {
	outbox.Tx
	p     *planned
	house *bool // it counts and sweeps
}

func (t plannedTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := t.explain(ctx, sql, args); err != nil {
		return 0, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t plannedTx) Query(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	if err := t.explain(ctx, sql, args); err != nil {
		return err
	}
	return t.Tx.Query(ctx, sql, args, row)
}

func (t plannedTx) explain(ctx context.Context, sql string, args []any) error {
	if !strings.Contains(sql, "outbox_event") || strings.Contains(sql, "where false") ||
		strings.Contains(sql, "advisory") {
		return nil
	}
	*t.house = *t.house || strings.Contains(sql, "count(*) from (select from") || strings.Contains(sql, "claimed_until < ")
	var text strings.Builder
	err := t.Tx.Query(ctx, "explain (format json) "+sql, args, func(scan func(...any) error) error {
		var line string
		err := scan(&line)
		text.WriteString(line)
		return err
	})
	if err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text.String()), &plans); err != nil {
		return err
	}
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	t.p.seen++
	if why := plans[0].Plan.bad(); why != "" {
		t.p.bad[sql] = why + "\n" + text.String()
	}
	return nil
}

type planNode struct {
	Type  string     `json:"Node Type"`
	Table string     `json:"Relation Name"`
	Index string     `json:"Index Name"`
	Cond  string     `json:"Index Cond"`
	Plans []planNode `json:"Plans"`
}

// bad says what reads the table as a whole, or all that was sent.
func (n *planNode) bad() string {
	event := n.Table == "outbox_event"
	switch {
	case event && (n.Type == "Seq Scan" || strings.HasPrefix(n.Type, "Bitmap")), strings.HasPrefix(n.Type, "Hash"),
		strings.HasPrefix(n.Type, "Merge"):
		return n.Type
	case event && n.Index == "outbox_event_pkey" && n.Cond == "":
		return "all of the primary key"
	case event && n.Index == "outbox_event_published" && n.Cond == "":
		return "all that was sent"
	}
	for i := range n.Plans {
		if why := n.Plans[i].bad(); why != "" {
			return why
		}
	}
	return ""
}

// B19: plans, and what a batch reads, are the same with whatever statistics: with none, with those of an empty table,
// of a table in which everything was sent, and of one in which everything waits.
func TestPlansWithAnyStatistics(t *testing.T) {
	t.Parallel()
	const sent, waiting = 30_000, 10_000
	fill := func(b *bench, status string, from, n int) {
		b.MustExec(`insert into outbox_event (event_id, topic, partition_key, status, published_at) select n::text, $1::text, (n % 1000)::text::bytea, $2::text,
			case when $2::text = 'PUBLISHED' then clock_timestamp() end from generate_series($3::int, $4::int) n`, b.topic, status, from, from+n-1)
	}
	for name, prepare := range map[string]func(b *bench){
		"none": func(b *bench) {
			fill(b, "PUBLISHED", 1, sent)
			fill(b, "PENDING", 1, waiting)
		},
		"of an empty table": func(b *bench) {
			b.MustExec("vacuum analyze outbox_event")
			fill(b, "PUBLISHED", 1, sent)
			fill(b, "PENDING", 1, waiting)
		},
		"of what was sent": func(b *bench) {
			fill(b, "PUBLISHED", 1, sent)
			b.MustExec("vacuum analyze outbox_event")
			fill(b, "PENDING", 1, waiting)
		},
		"of what waits": func(b *bench) { // all that the statistics know is sent since
			fill(b, "PENDING", 1, sent)
			b.MustExec("vacuum analyze outbox_event")
			b.MustExec("update outbox_event set status = 'PUBLISHED', published_at = clock_timestamp()")
			fill(b, "PENDING", 1, waiting)
		},
		"of this table": func(b *bench) { // which is small: to read all of it looks cheap
			fill(b, "PENDING", 1, waiting)
			b.MustExec("vacuum analyze outbox_event")
		},
	} {
		for _, mode := range modes {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 1)
				b.MustExec("alter table outbox_event set (autovacuum_enabled = off)")
				prepare(b)
				cfg := b.config(mode)
				p := &planned{Database: b.db, bad: map[string]string{}}
				cfg.Database, cfg.BatchRows, cfg.Keep = p, 500, time.Hour // so that it sweeps
				r := start(t, cfg)
				eventually(t, "all are sent", func() bool { return r.Status().Published == waiting })
				p.mu.Lock()
				defer p.mu.Unlock()
				for sql, why := range p.bad {
					t.Errorf("%s: %s", sql, why)
				}
				// looked at and fetched, and deleted where it stands; looked at, claimed, and marked where it stands
				perRow := float64(p.read) / waiting
				t.Logf("%d plans, %.2f rows read for each that was sent", p.seen, perRow)
				if perRow > 2.5 || perRow < 1 {
					t.Errorf("%.2f rows were read for each that was sent", perRow)
				}
			})
		}
	}
}

// counting counts the looks at all that waits in a bucket.
type counting struct {
	outbox.Database
	looks *atomic.Int64
}

func (c counting) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return c.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, countingTx{tx, c.looks}) })
}

type countingTx struct {
	outbox.Tx
	looks *atomic.Int64
}

func (t countingTx) Query(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	if strings.Contains(sql, "as b(bucket, most)") {
		t.looks.Add(1)
	}
	return t.Tx.Query(ctx, sql, args, row)
}

// B5: rows behind a blocked one cost an idle relay next to nothing, however many they are; it notices at once what can
// be sent, wherever it is.
func TestIdleBehindABlockedRow(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const behind = 20_000
			b := newBench(t, 1)
			b.insert("first")
			b.MustExec("update outbox_event set status = 'BLOCKED'")
			b.MustExec("insert into outbox_event (event_id, topic, partition_key) select 'hot', $1::text, 'k' from generate_series(1, $2::int)", b.topic, behind)
			b.MustExec("vacuum analyze outbox_event")
			cfg := b.config(mode)
			var looks atomic.Int64
			cfg.Database = counting{b.db, &looks}
			r := start(t, cfg)
			eventually(t, "it has looked", func() bool { return r.Status().Running && r.Status().Blocked == 1 })
			time.Sleep(4 * time.Second)
			began, before := time.Now(), looks.Load()
			for range 20 { // a hot key: what comes to it is no reason to look at all of it again
				time.Sleep(100 * time.Millisecond)
				b.insert("hot")
			}
			time.Sleep(2 * time.Second)
			if n := looks.Load() - before; n > 2+int64(time.Since(began)/(2*time.Second)) {
				t.Errorf("%d looks at all of it in %v", n, time.Since(began))
			}
			// another key of the bucket, with a number behind all

			for i := 0; tabletest.Value[int](b.Fixture, "select count(distinct bucket) from outbox_event") > 1 || i == 0; i++ {
				b.MustExec("delete from outbox_event where event_id = 'other'")
				other := fmt.Sprint("other ", i)
				b.MustExec("insert into outbox_event (event_id, topic, partition_key, status) values ('other', $1::text, $2::text::bytea, 'DEAD')", b.topic, other)
			}
			b.MustExec("update outbox_event set status = 'PENDING' where event_id = 'other'")
			eventually(t, "it is sent", func() bool { return b.rows("event_id = 'other'") == 0 })
			n, err := outbox.NewOperator(b.db, nil).Discard(t.Context(), outbox.Filter{State: outbox.Blocked}, "a test")
			if err != nil || n != 1 {
				t.Fatalf("Discard() = %d, %v", n, err)
			}
			eventually(t, "all are sent", func() bool {
				return b.rows("status = 'PENDING'") == 0 &&
					b.rows("status = 'PUBLISHING'") == 0
			})
		})
	}
}

// A row with a lower number than others of a bucket that is parked becomes visible late: it is sent too.
func TestLateCommitInAParkedBucket(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("first")
	b.MustExec("update outbox_event set status = 'BLOCKED'")
	tx, err := b.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for i := 0; ; i++ { // a key of the same bucket
		_, err := tx.Exec(t.Context(),
			"insert into outbox_event (event_id, topic, partition_key) values ('late', $1::text, $2::text::bytea)", b.topic,
			fmt.Sprint("late ", i))
		must(t, err)
		var same bool
		must(t, tx.QueryRow(t.Context(), "select count(distinct bucket) = 1 from outbox_event").Scan(&same))
		if same {
			break
		}
		_, err = tx.Exec(t.Context(), "delete from outbox_event where event_id = 'late'")
		must(t, err)
	}
	b.insert("2", "3")
	r := start(t, b.config(outbox.SinglePhase))
	eventually(t, "the bucket is parked", func() bool { return r.Status().Running && r.Status().Blocked == 1 })
	time.Sleep(500 * time.Millisecond)
	must(t, tx.Commit(t.Context()))
	eventually(t, "it is sent", func() bool { return b.rows("event_id = 'late'") == 0 })
	if n := b.rows("event_id in ('2', '3') and status = 'PENDING'"); n != 2 {
		t.Error("what is behind the blocked row does not wait")
	}
}

// Backlog is exact, or marked as an estimate: while 30,000 rows go, it never says that more wait than do.
func TestLargeBacklog(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("first")
	b.MustExec("update outbox_event set status = 'BLOCKED'")
	b.MustExec("insert into outbox_event (event_id, topic, partition_key) select 'hot', $1::text, 'k' from generate_series(1, 30000)", b.topic)
	r := start(t, b.config(outbox.SinglePhase))
	eventually(t, "it is exact at first", func() bool {
		s := r.Status()
		return s.Backlog == 30_000 && !s.Estimated &&
			s.Blocked == 1
	})
	eventually(t, "it is an estimate then", func() bool { s := r.Status(); return s.Backlog == 30_000 && s.Estimated })
	b.MustExec("delete from outbox_event where id in (select id from outbox_event where event_id = 'hot' limit 25000)")
	eventually(t, "it is exact again below 10,000", func() bool {
		s := r.Status()
		return s.Backlog == 5000 &&
			!s.Estimated
	})
}
