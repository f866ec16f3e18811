package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/middleware"
)

const consumeDoc = `
billing consume charges the orders of a topic: one row in the table charge for each, whatever is killed or delivered again.
It creates its tables, charge and processed_event, where the database's search_path begins. Ctrl-C or SIGTERM drains it.`

// consumeCommand is the service's main: ctx ends with SIGTERM (see main), the pool is opened first and closed last.
func consumeCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var t target
	fs := newFlags("consume", consumeDoc)
	t.addBrokers(fs)
	t.addDatabase(fs)
	t.addTopic(fs)
	t.addGroup(fs)
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	if err := t.complete(fs); err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, nil)))

	pool, err := openPool(ctx, t.database)
	if err != nil {
		return err
	}
	if err := createTables(ctx, pool); err != nil {
		pool.Close()
		return err
	}
	err = consumer.Run(ctx, service(t, pool, consumer.JSONTx(charge)))
	if !errors.Is(err, consumer.ErrHandlersStuck) { // a handler that does not return holds a connection, for which Close would wait
		pool.Close()
	}
	return err
}

// connections is one for each message in work (one a partition here), one that the store leaves to the rest of the service, and room
// for more partitions. pgx's own default is 4 on a small machine.
const connections = 20

func openPool(ctx context.Context, database string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	cfg.MaxConns = max(cfg.MaxConns, connections)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// service is how this service consumes. The story runs the same, with a handler that takes longer.
func service(t target, pool *pgxpool.Pool, handler consumer.TxHandler[pgx.Tx]) consumer.Config {
	return consumer.Config{
		Brokers: t.addrs(),
		Group:   t.group,
		Topics: map[string]consumer.Topic{
			t.topic: {
				Middleware: []consumer.Middleware{middleware.Retry(5, nil), middleware.Recover()},
				Handler:    middleware.Dedup(pgxstore.New(pool, nil), handler, nil),
			},
		},
	}
}
