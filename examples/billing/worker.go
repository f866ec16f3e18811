package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
)

const workerDoc = `
billing worker is one process of the story, which starts it. It ends when its standard input does, so that it does not outlive the
story, and kills itself after the next COMMIT when it reads a line "` + dieAfterCommit + `".`

// workerOptions are what a worker is told beside its target.
type workerOptions struct {
	name  string
	naive bool
	work  time.Duration
}

func workerCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var t target
	var o workerOptions
	fs := newFlags("worker", workerDoc)
	t.addBrokers(fs)
	t.addDatabase(fs)
	t.addTopic(fs)
	t.addGroup(fs)
	fs.StringVar(&o.name, "name", "worker", "`name` in the table delivery")
	fs.BoolVar(&o.naive, "naive", false, "work without einmal")
	fs.DurationVar(&o.work, "work", 0, "how long an order takes")
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	if err := t.complete(fs); err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, nil)))
	c := &control{out: stdout}
	fmt.Fprintln(stdout, up)
	go c.listen(os.Stdin)
	return work(ctx, t, o, c)
}

// work consumes until ctx ends.
func work(ctx context.Context, t target, o workerOptions, c *control) error {
	d, err := openDeliveries(ctx, t.database, o.name)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	pool, err := openPool(ctx, t.database)
	if err != nil {
		return err
	}
	if o.naive {
		defer pool.Close()
		return consumeNaively(ctx, t, &naive{pool: pool, deliveries: d, control: c, work: o.work})
	}
	cfg := service(t, pool, slowly(o.work, consumer.JSONTx(charge)))
	cfg.Middleware = []consumer.Middleware{c.afterCommit, d.count}
	cfg.Sarama = hurry
	err = consumer.Run(ctx, cfg)
	if !errors.Is(err, consumer.ErrHandlersStuck) {
		pool.Close()
	}
	return err
}

// hurry shortens the time-outs of the group. A rebalance waits for a member that was killed until Rebalance.Timeout is over; with the
// defaults the story would take minutes. 6 s is the shortest session that a Kafka cluster allows by default.
func hurry(c *sarama.Config) {
	c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = time.Second
	c.Net.ReadTimeout = 4 * time.Second
	c.Consumer.Group.Session.Timeout = 6 * time.Second
}

// slowly stands for all else that a handler has to do before and after its statement, so that a kill finds it at work.
func slowly(d time.Duration, h consumer.TxHandler[pgx.Tx]) consumer.TxHandler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if err := pause(ctx, d/2); err != nil {
			return err
		}
		if err := h(ctx, tx, msg); err != nil {
			return err
		}
		return pause(ctx, d/2)
	}
}

// pause waits for d, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// up is what a worker writes to standard output when it is ready for signals.
const up = "up"

// dieAfterCommit is the line on standard input that arms the control.
const dieAfterCommit = "die after commit"

// control is how the story reaches into a worker.
type control struct {
	out   io.Writer
	armed atomic.Bool
}

// listen reads what the story says. At the end of it, the story is gone.
func (c *control) listen(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == dieAfterCommit {
			c.armed.Store(true)
		}
	}
	os.Exit(1)
}

// afterCommit is the outermost link of the chain: when it sees that a charge is committed, the runner does not know yet. No point is
// worse for a consumer to die at.
func (c *control) afterCommit(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		err := next.Handle(ctx, msg)
		if err == nil && !msg.Result.Duplicate {
			c.committed(msg.Partition, msg.Offset)
		}
		return err
	})
}

// committed kills this process if the story asked for it. It does not return then.
func (c *control) committed(partition int32, offset int64) {
	if !c.armed.CompareAndSwap(true, false) {
		return
	}
	fmt.Fprintf(c.out, "partition %d offset %d\n", partition, offset)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// deliveries counts what a worker is given, each before anything is done with it, and outside of the transaction that is under test.
type deliveries struct {
	pool *pgxpool.Pool
	name string
}

// openDeliveries connects without synchronous_commit: these rows survive the worker, and need not survive the database.
func openDeliveries(ctx context.Context, database, name string) (*deliveries, error) {
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &deliveries{pool: pool, name: name}, nil
}

func (d *deliveries) add(ctx context.Context, partition int32, offset int64) error {
	_, err := d.pool.Exec(context.WithoutCancel(ctx), `INSERT INTO delivery (worker, partition, "offset") VALUES ($1, $2, $3)`,
		d.name, partition, offset)
	if err != nil {
		return fmt.Errorf("count a delivery: %w", err)
	}
	return nil
}

// count is a link of the chain, outside of Retry and Dedup.
func (d *deliveries) count(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if err := d.add(ctx, msg.Partition, msg.Offset); err != nil {
			return err
		}
		return next.Handle(ctx, msg)
	})
}
