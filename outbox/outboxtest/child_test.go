package outboxtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
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

const sayUp = "up"

// childMain runs a relay until SIGTERM, until it strikes itself, or until its standard input ends: it does not outlive its parent.
func childMain(text string) (status int) {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	fmt.Fprintln(os.Stdout, sayUp)
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
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
	relay, err := outbox.New(outbox.Config{
		Database: &database{pgxoutbox.NewDatabase(pool), s}, Brokers: o.Brokers, Mode: o.Mode, Name: o.Name, Keep: -1,
		BatchRows: o.Rows, Workers: o.Workers, PublishTimeout: publishTimeout, LeaseTTL: leaseTTL,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Sarama: func(c *sarama.Config) {
			c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, s
			c.Producer.MaxMessageBytes = 3000 // several record batches for a partition
		},
	})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

// Short, so that what a dead relay held comes back soon.
const (
	publishTimeout = time.Second
	leaseTTL       = 12 * time.Second
)
