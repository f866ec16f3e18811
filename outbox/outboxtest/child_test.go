package outboxtest_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// envOrders holds what a child is told, as JSON. Its presence makes a process a child.
const envOrders = "EINMAL_OUTBOX_ORDERS"

// orders are what a relay is told.
type orders struct {
	Name     string
	Database string
	Brokers  []string
	Mode     outbox.Mode
	Step     step // at which it dies
	Rows     int  // in a batch
	Workers  int
}

// childMain runs a relay until SIGTERM, until it strikes itself, or until its standard input ends: it does not outlive
// its parent.
func childMain(ctx context.Context, o orders) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	return o.run(ctx)
}

// process is a child as its parent sees it.
type process = childtest.Process

func start(t testing.TB, o orders) *process {
	t.Helper()
	return childtest.Start(t, envOrders, o.Name, o)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (o *orders) run(ctx context.Context) error {
	s := &striker{step: o.Step}
	cfg, err := pgxpool.ParseConfig(o.Database)
	if err != nil {
		return err
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = o.Name
	cfg.ConnConfig.DialFunc = s.dialPostgres
	cfg.MaxConns = int32(o.Workers) + 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := relay.New(relay.Config{
		Database: &database{pgxoutbox.NewDatabase(pool), s}, Brokers: o.Brokers, Mode: o.Mode, Name: o.Name, Keep: -1,
		BatchRows: o.Rows, Workers: o.Workers, PublishTimeout: publishTimeout, LeaseTTL: leaseTTL,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Sarama: func(c *sarama.Config) {
			c.Producer.Timeout, c.Net.Proxy.Enable, c.Net.Proxy.Dialer = publishTimeout, true, s
			c.Producer.MaxMessageBytes = 3000 // several record batches for a partition
		},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// Short, so that what a dead relay held comes back soon.
const (
	publishTimeout = time.Second
	leaseTTL       = 12 * time.Second
)
