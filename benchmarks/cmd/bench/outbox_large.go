package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// large has a relay send what waits in a table of ten times as many rows that are sent, with the statistics that
// PostgreSQL may have of it; and has one look at a table of which 300,000 rows wait behind one that is blocked.
func (b *backlog) large(ctx context.Context, sent int) error {
	return b.onOutbox(ctx, func(r *outboxRound) error {
		r.rows = sent / 10 // in each round
		if err := r.exec(ctx, "alter table outbox_event set (autovacuum_enabled = off)"); err != nil {
			return err
		}
		if err := r.write(ctx, "PUBLISHED", sent); err != nil {
			return err
		}
		for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
			for _, s := range statistics {
				if err := r.largeRound(ctx, mode, s.name, s.sql); err != nil {
					return err
				}
			}
		}
		for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
			if err := r.blocked(ctx, mode, 300_000); err != nil {
				return err
			}
		}
		return nil
	})
}

// statistics are what PostgreSQL may know of the table. autovacuum is off.
var statistics = []struct {
	name string
	sql  []string
}{
	{"none", []string{"delete from pg_statistic where starelid = 'outbox_event'::regclass",
		"update pg_class set reltuples = -1, relpages = 0 where oid = 'outbox_event'::regclass"}},
	{"of an empty table", []string{"delete from pg_statistic where starelid = 'outbox_event'::regclass",
		"update pg_class set reltuples = 0, relpages = 0 where oid = 'outbox_event'::regclass"}},
	{"of this table", []string{"analyze outbox_event"}},
}

func (r *outboxRound) exec(ctx context.Context, sql string, args ...any) error {
	if _, err := r.pool.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// write inserts n rows.
func (r *outboxRound) write(ctx context.Context, status string, n int) error {
	return r.exec(ctx, "insert into outbox_event (event_id, topic, partition_key, payload, status, published_at) select n::text, $1::text, ('key-' || n % 1000)::bytea, $2::bytea, $3::text, "+
		"case when $3::text = 'PUBLISHED' then clock_timestamp() end from generate_series(1, $4::int) n", r.topic, r.value,
		status, n)
}

// rowsRead is how many rows of the table were read, by an index or without.
func (r *outboxRound) rowsRead(ctx context.Context) (n int64, err error) {
	if err := r.exec(ctx, "select pg_stat_clear_snapshot()"); err != nil {
		return 0, err
	}
	err = r.pool.QueryRow(ctx, "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relid = 'outbox_event'::regclass").Scan(&n)
	return n, err
}

// sending runs a relay until done, and returns how many rows it has sent and how many of the table were read.
func (r *outboxRound) sending(ctx context.Context, mode outbox.Mode, done func(relay.Status) bool) (sent, read int64,
	err error) {
	if err := outbox.NewOperator(pgxoutbox.NewDatabase(r.pool), nil).SwitchMode(ctx, mode); err != nil {
		return 0, 0, err
	}
	before, err := r.rowsRead(ctx)
	if err != nil {
		return 0, 0, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	sender, pool, err := r.relay(ctx, relay.Config{Mode: mode, Keep: time.Hour})
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	ended := make(chan error, 1)
	r.begun = time.Now()
	go func() { ended <- sender.Run(ctx) }()
	for !done(sender.Status()) {
		time.Sleep(5 * time.Millisecond)
	}
	r.took = time.Since(r.begun)
	sent = sender.Status().Published
	end()
	if err := <-ended; err != nil {
		return 0, 0, err
	}
	time.Sleep(time.Second) // the server's sessions tell their counts when they end
	after, err := r.rowsRead(context.WithoutCancel(ctx))
	return max(sent, sender.Status().Published), after - before, err
}

func (r *outboxRound) largeRound(ctx context.Context, mode outbox.Mode, name string, sql []string) error {
	if err := r.write(ctx, "PENDING", r.rows); err != nil {
		return err
	}
	for _, text := range sql {
		if err := r.exec(ctx, text); err != nil {
			return err
		}
	}
	sent, read, err := r.sending(ctx, mode, func(s relay.Status) bool { return s.Published >= int64(r.rows) })
	if err != nil {
		return err
	}
	fmt.Printf("%-13s statistics %-18s %8.0f events/s, %.2f rows read per event\n", mode, name,
		float64(r.rows)/r.took.Seconds(), float64(read)/float64(sent))
	return nil
}

// blocked puts n rows of one key behind one that is blocked, and has a relay that finds nothing else look for 20 s.
func (r *outboxRound) blocked(ctx context.Context, mode outbox.Mode, n int) error {
	if err := errors.Join(r.exec(ctx, "delete from outbox_event where status in ('PENDING', 'BLOCKED')"),
		r.exec(ctx, "insert into outbox_event (event_id, topic, partition_key, status, last_error) values ('blocked', $1, 'one', 'BLOCKED', 'too large')", r.topic),
		r.exec(ctx, "insert into outbox_event (event_id, topic, partition_key) select 'behind-' || n, $1::text, 'one' from generate_series(1, $2::int) n", r.topic, n)); err != nil {
		return err
	}
	for _, span := range []time.Duration{8 * time.Second, 20 * time.Second} {
		_, read, err := r.sending(ctx, mode, func(relay.Status) bool { return time.Since(r.begun) > span })
		if err != nil {
			return err
		}
		fmt.Printf("%-13s %d rows behind a blocked one: a relay reads %d rows in its first %v\n", mode, n, read, span)
	}
	return nil
}
