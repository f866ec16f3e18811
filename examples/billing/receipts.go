package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/bunstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

const receiptsDoc = `
billing receipts writes a receipt of each charge, by bun. It creates its tables where the database's search_path begins. Ctrl-C or
SIGTERM drains it.`

// Receipt is a row of the table receipt, which has no unique constraint: the database would let a customer get two.
type Receipt struct {
	bun.BaseModel `bun:"table:receipt"`

	ID        int64  `bun:"id,pk,autoincrement"`
	OrderID   string `bun:"order_id"`
	Reference string `bun:"reference"`
	Cents     int64  `bun:"cents"`
	PaymentID string `bun:"payment_id"`
}

const receiptTable = `
CREATE TABLE IF NOT EXISTS receipt (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_id   text   NOT NULL,
	reference  text   NOT NULL,
	cents      bigint NOT NULL,
	payment_id text   NOT NULL
)`

// receiptsCommand is the service's main: ctx ends with SIGTERM. Then the consumer takes no more messages, finishes
// those in work within its budget, and leaves the group; then the pool is closed.
func receiptsCommand(ctx context.Context, args []string, stdout io.Writer) error {
	var t target
	fs := newFlags("receipts", receiptsDoc)
	t.addBrokers(fs)
	t.addDatabase(fs)
	t.addTopic(fs, "payments.charged")
	t.addGroup(fs, "receipts-service")
	share := addShare(fs)
	opsAddr := addOps(fs)
	if err := t.parse(fs, args, stdout); err != nil {
		return err
	}
	inside, err := story.Enter(ctx, stdout)
	if err != nil {
		return err
	}
	defer inside.Leave()
	o, err := openOps(ctx, "receipts", *opsAddr)
	if err != nil {
		return err
	}
	defer o.start(ctx)()

	db, err := openBun(ctx, &t)
	if err != nil {
		return err
	}
	switch {
	case inside.Is(story.Careful):
		defer db.Close()
		return carefulReceipts(ctx, t, db, inside)
	case inside.Is(story.Plain):
		defer db.Close()
		return naiveReceipts(ctx, t, db, inside)
	}
	store := bunstore.New(db, &sqlstore.Config{Group: *share})
	chain := middleware.Standard(store, &middleware.StandardConfig[bun.Tx]{Tracing: oneTrace, MeterProvider: o.meters()})
	c, err := consumer.New(consumer.Config{
		Brokers:    t.addrs(),
		Group:      t.group,
		Middleware: inside.Links(),
		Topics:     map[string]consumer.Topic{t.topic: chain.Topic(consumer.JSONTx(writeReceipt))},
		Sarama:     inside.Hurry(),
	})
	if err == nil {
		err = o.addConsumer(c)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if err = c.Run(ctx); errors.Is(err, consumer.ErrHandlersStuck) { // it holds a connection, for which Close would wait
		return err
	}
	return errors.Join(err, db.Close())
}

// writeReceipt is the handler.
func writeReceipt(ctx context.Context, tx bun.Tx, charge Charge) error {
	_, err := tx.NewInsert().Model(receiptOf(charge)).Exec(ctx)
	return err
}

func receiptOf(charge Charge) *Receipt {
	return &Receipt{OrderID: charge.OrderID, Reference: charge.Reference, Cents: charge.Cents, PaymentID: charge.PaymentID}
}

// openBun opens the database, and makes the tables that are missing.
func openBun(ctx context.Context, t *target) (*bun.DB, error) {
	pool, err := openPool(ctx, t.database)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := t.createTables(ctx, pool, receiptTable, schema.Dedup); err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig(t.database)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // bun writes values into its texts: to prepare each would fill the server's memory
	std := stdlib.OpenDB(*cfg)
	std.SetMaxOpenConns(connections)
	std.SetMaxIdleConns(connections)
	return bun.NewDB(std, pgdialect.New()), nil
}
