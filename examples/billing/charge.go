package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/schema"
)

// Order is the event "an order was confirmed", the value of a message in JSON.
type Order struct {
	ID    string `json:"order_id"`
	Cents int64  `json:"cents"`
}

// charge is the handler. It writes through tx and knows nothing of Kafka, of repetitions or of crashes: the row below and the
// record that the event was handled are committed together, once.
func charge(ctx context.Context, tx pgx.Tx, order Order) error {
	_, err := tx.Exec(ctx, `INSERT INTO charge (order_id, cents) VALUES ($1, $2)`, order.ID, order.Cents)
	return err
}

// chargeTable has no unique constraint on order_id: the database would let an order be charged twice.
const chargeTable = `
CREATE TABLE IF NOT EXISTS charge (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id text   NOT NULL,
	cents    bigint NOT NULL
)`

// createTables makes the service's table and einmal's in the first schema of the search_path, if they are missing. A service that
// has migrations puts the output of schema.Postgres.SQL(nil, schema.Dedup) there instead.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	exec := func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
	if err := schema.Postgres.Apply(ctx, exec, nil, schema.Dedup); err != nil {
		return fmt.Errorf("create the tables in the database: %w", err)
	}
	if err := exec(ctx, chargeTable); err != nil {
		return fmt.Errorf("create the tables in the database: charge: %w", err)
	}
	return nil
}
