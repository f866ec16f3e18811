package main

import (
	"context"
	"io"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

const relayDoc = `
billing relay sends the events that the order service has written to Kafka, at least once, each order's in order. Run as many as you
like. Ctrl-C or SIGTERM drains it.`

// relayCommand is the main of a relay that runs beside its service. When ctx ends, Run finishes the batch that it has
// begun and returns; the pool is closed then.
func relayCommand(ctx context.Context, args []string, stdout io.Writer) error {
	var t target
	fs := newFlags("relay", relayDoc)
	t.addBrokers(fs)
	t.addDatabase(fs)
	opsAddr := addOps(fs)
	if err := t.parse(fs, args, stdout); err != nil {
		return err
	}
	inside, err := story.Enter(ctx, stdout)
	if err != nil {
		return err
	}
	defer inside.Leave()
	o, err := openOps(ctx, "relay", *opsAddr)
	if err != nil {
		return err
	}
	defer o.start(ctx)()

	pool, err := openPool(ctx, t.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := t.createTables(ctx, pool, orderTable, schema.Outbox); err != nil {
		return err
	}
	r, err := relay.New(relay.Config{
		Database: pgxoutbox.NewDatabase(pool),
		Brokers:  t.addrs(),
		Listener: pgxoutbox.NewListener(pool, ""),
	})
	if err != nil {
		return err
	}
	if err := o.addRelay(r, pgxoutbox.NewDatabase(pool)); err != nil {
		return err
	}
	return r.Run(ctx)
}
