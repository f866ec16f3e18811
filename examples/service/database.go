package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/outbox/relay"
)

// database has what the parts reach PostgreSQL with. Each has connections of its own, so that a part that uses up its
// pool does not stop the others: connections + relayConnections + 1 of the server's max_connections for each process.
type database struct {
	pool    *pgxpool.Pool // requests and messages
	relay   *pgxpool.Pool
	janitor *sql.DB
}

// relayConnections is what a relay asks for: two more than it has workers.
const relayConnections = relay.DefaultWorkers + 2

// openDatabase makes the pools. They connect when they are first used.
func openDatabase(ctx context.Context, c config) (*database, error) {
	pool, err := openPool(ctx, c.databaseURL, c.connections)
	if err != nil {
		return nil, err
	}
	relay, err := openPool(ctx, c.databaseURL, relayConnections)
	if err != nil {
		pool.Close()
		return nil, err
	}
	janitor := stdlib.OpenDB(*pool.Config().ConnConfig)
	janitor.SetMaxOpenConns(1)
	return &database{pool: pool, relay: relay, janitor: janitor}, nil
}

func openPool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(connections) //nolint:gosec // readConfig bounds it
	return pgxpool.NewWithConfig(ctx, cfg)
}

// close waits for all connections to be given back.
func (d *database) close() error {
	d.relay.Close()
	d.pool.Close()
	return d.janitor.Close()
}
