package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

// outboxBench measures how fast a backlog is sent, and how soon a single event.
func outboxBench(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("outbox", flag.ContinueOnError)
	rows := fs.Int("rows", 50_000, "rows per round")
	size := fs.Int("size", 200, "bytes of a value")
	rounds := fs.Int("rounds", 3, "rounds; an odd number has a median that was measured")
	only := fs.String("only", "", "a regular expression: measure only the sides whose names it matches")
	seconds := fs.Int("latency", 10, "seconds at 100 events/s for each latency; 0 leaves it out")
	large := fs.Int("large", 0, "instead: a table of so many rows that are sent and a tenth of that which wait, 10000000 for example")
	rtt := fs.Duration("rtt", 0, "network round trip from what sends to the database, made by a proxy")
	if err := fs.Parse(args); err != nil {
		return err
	}
	d, err := openDedup(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	b := &backlog{dedupBench: d, rows: *rows, value: []byte(strings.Repeat("x", *size))}
	if *large > 0 {
		fmt.Printf("outbox: a large table\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\n",
			d.kafka.Origin, d.database.Origin, machine())
		return b.large(ctx, *large)
	}
	fmt.Printf("outbox: a backlog of %d rows of %d bytes, %d keys, 4 partitions, is sent\nbroker    %s\ndatabase  %s, fsync=on, synchronous_commit=on\nmachine   %s\n",
		*rows, *size, keys, d.kafka.Origin, d.database.Origin, machine())
	if *rtt > 0 {
		d.proxy = newProxy(*rtt)
		fmt.Printf("network   %v of round trip to the database\n", *rtt)
	}
	var sides []side
	if *rounds > 0 {
		names, err := regexp.Compile(*only)
		if err != nil {
			return fmt.Errorf("-only: %w", err)
		}
		sides = slices.DeleteFunc(b.sides(), func(s side) bool { return !names.MatchString(s.name) })
		if len(sides) == 0 {
			return fmt.Errorf("-only %s: it matches no side", *only)
		}
		results, err := interleave(ctx, *rounds, sides)
		if err != nil {
			return err
		}
		report(os.Stdout, "events/s", results)
	}
	if *seconds > 0 {
		if err := b.latencies(ctx, time.Duration(*seconds)*time.Second); err != nil {
			return err
		}
	}
	fmt.Printf("\nmachine   %s\n", machine())
	return nil
}

// backlog is what the sides share.
type backlog struct {
	*dedupBench
	rows  int
	value []byte
}

func (b *backlog) sides() []side {
	in := func(run func(context.Context, *outboxRound) error) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return b.round(ctx, run) }
	}
	return []side{
		{"plain loop", in(func(ctx context.Context, r *outboxRound) error { return r.plain(ctx, true, true) })},
		{"producer alone", in(func(ctx context.Context, r *outboxRound) error { return r.plain(ctx, false, true) })},
		{"SQL alone", in(func(ctx context.Context, r *outboxRound) error { return r.plain(ctx, true, false) })},
		{"single-phase", in(func(ctx context.Context, r *outboxRound) error { return r.einmal(ctx, outbox.SinglePhase, 1) })},
		{"single-phase x 4", in(func(ctx context.Context, r *outboxRound) error {
			return r.einmal(ctx, outbox.SinglePhase,
				4)
		})},
		{"two-phase", in(func(ctx context.Context, r *outboxRound) error { return r.einmal(ctx, outbox.TwoPhase, 1) })},
		{"watermill Forwarder", in(func(ctx context.Context, r *outboxRound) error { return r.watermill(ctx) })},
		{"two-phase x 4", in(func(ctx context.Context, r *outboxRound) error { return r.einmal(ctx, outbox.TwoPhase, 4) })},
	}
}

// outboxRound is a table with rows and a topic.
type outboxRound struct {
	*backlog
	pool  *pgxpool.Pool
	url   string
	topic string
	begun time.Time
	took  time.Duration
}

// plainTable is a usual outbox.
const plainTable = `create table plain (id bigint generated always as identity primary key, event_id text not null, topic text not null, key bytea, value bytea, sent boolean not null default false);
create index on plain (id) where not sent`

// round fills both tables and has one of them sent.
func (b *backlog) round(ctx context.Context, run func(context.Context, *outboxRound) error) (rate float64, err error) {
	err = b.onOutbox(ctx, func(r *outboxRound) error {
		if err := r.fill(ctx); err != nil {
			return err
		}
		if err := run(ctx, r); err != nil {
			return err
		}
		rate = float64(b.rows) / r.took.Seconds()
		return nil
	})
	return rate, err
}

// onOutbox calls run with empty tables and a topic of their own.
func (b *backlog) onOutbox(ctx context.Context, run func(*outboxRound) error) (err error) {
	s, err := b.database.NewSchema(ctx, "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Drop(context.WithoutCancel(ctx))) }()
	pool, err := pgxpool.New(ctx, s.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = schema.Postgres.Apply(ctx, func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}, nil, schema.Outbox)
	if err != nil {
		return err
	}
	return withTopic(b.kafka.Addrs, 4, 0, nil, func(topic string) error {
		return run(&outboxRound{backlog: b, pool: pool, url: s.URL, topic: topic})
	})
}

func (r *outboxRound) fill(ctx context.Context) error {
	for _, sql := range []string{
		plainTable,
		"insert into plain (event_id, topic, key, value) select n::text, $1::text, ('key-' || n % 1000)::bytea, $2::bytea from generate_series(1, $3::int) n",
		"insert into outbox_event (event_id, topic, partition_key, payload) select n::text, $1::text, ('key-' || n % 1000)::bytea, $2::bytea from generate_series(1, $3::int) n",
	} {
		var args []any
		if strings.HasPrefix(sql, "insert") {
			args = []any{r.topic, r.value, r.rows}
		}
		if _, err := r.pool.Exec(ctx, sql, args...); err != nil {
			return err
		}
	}
	_, err := r.pool.Exec(ctx, "vacuum analyze plain, outbox_event")
	if err == nil {
		_, err = r.pool.Exec(ctx, "checkpoint")
	}
	return err
}

// plain is the usual loop: 200 rows, SKIP LOCKED, SendMessages, UPDATE, COMMIT; or one half of it.
func (r *outboxRound) plain(ctx context.Context, sql, kafka bool) error {
	cfg := clientConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(r.kafka.Addrs, cfg)
	if err != nil {
		return err
	}
	defer producer.Close()
	pool, err := openPool(ctx, r.url, r.proxy)
	if err != nil {
		return err
	}
	defer pool.Close()
	r.begun = time.Now()
	for done := 0; done < r.rows; done += 200 {
		if !sql {
			if err := producer.SendMessages(r.messages(done)); err != nil {
				return err
			}
			continue
		}
		if err := pgx.BeginFunc(ctx, pool,
			func(tx pgx.Tx) error { return r.plainBatch(ctx, tx, producer, kafka) }); err != nil {
			return err
		}
	}
	r.took = time.Since(r.begun)
	return nil
}

// messages are made up, for the producer alone.
func (r *outboxRound) messages(from int) (msgs []*sarama.ProducerMessage) {
	for i := from; i < from+200; i++ {
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: r.topic, Key: sarama.StringEncoder(fmt.Sprint("key-", i%keys)), Value: sarama.ByteEncoder(r.value),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, i)}},
		})
	}
	return msgs
}

func (r *outboxRound) plainBatch(ctx context.Context, tx pgx.Tx, producer sarama.SyncProducer, kafka bool) error {
	rows, err := tx.Query(ctx, "select id, event_id, topic, key, value from plain where not sent order by id limit 200 for update skip locked")
	if err != nil {
		return err
	}
	var ids []int64
	var msgs []*sarama.ProducerMessage
	var id int64
	var event, topic string
	var key, value []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &event, &topic, &key, &value}, func() error {
		ids = append(ids, id)
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.ByteEncoder(key), Value: sarama.ByteEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(event)}},
		})
		return nil
	})
	if err != nil {
		return err
	}
	if kafka {
		if err := producer.SendMessages(msgs); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "update plain set sent = true where id = any($1)", ids)
	return err
}

// einmal runs relays, each with a pool and connections of its own, until the table is empty.
func (r *outboxRound) einmal(ctx context.Context, mode outbox.Mode, relays int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	stop, end := context.WithCancel(ctx)
	defer end()
	var all sync.WaitGroup
	errs := make(chan error, relays)
	running := make([]*relay.Relay, relays)
	r.begun = time.Now()
	for i := range running {
		sender, pool, err := r.relay(ctx, relay.Config{Mode: mode})
		if err != nil {
			return err
		}
		running[i] = sender
		all.Go(func() {
			defer pool.Close()
			errs <- sender.Run(stop)
		})
	}
	for published(running) < int64(r.rows) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	r.took = time.Since(r.begun)
	end()
	all.Wait()
	return errors.Join(<-errs, r.allSent(context.WithoutCancel(ctx)))
}

// published is what the relays have sent and committed. The table itself is not asked while it is measured: a look at
// rows by their status reads all that are dead or marked, again and again, on the processors that the relays need.
func published(relays []*relay.Relay) (n int64) {
	for _, r := range relays {
		n += r.Status().Published
	}
	return n
}

// allSent checks that nothing is left.
func (r *outboxRound) allSent(ctx context.Context) error {
	var left int
	if err := r.pool.QueryRow(ctx,
		"select count(*) from outbox_event where status <> 'PUBLISHED'").Scan(&left); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d rows are left", left)
	}
	return nil
}

func (r *outboxRound) relay(ctx context.Context, cfg relay.Config) (*relay.Relay, *pgxpool.Pool, error) {
	pool, err := openPool(ctx, r.url, r.proxy)
	if err != nil {
		return nil, nil, err
	}
	cfg.Database, cfg.Brokers, cfg.Logger = pgxoutbox.NewDatabase(pool), r.kafka.Addrs, quiet
	sender, err := relay.New(cfg)
	return sender, pool, err
}
