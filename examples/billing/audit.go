package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deliveryTable counts what workers were given. Workers write to it outside of the transaction that is under test.
const deliveryTable = `
CREATE TABLE delivery (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	worker    text   NOT NULL,
	partition int    NOT NULL,
	"offset"  bigint NOT NULL
)`

// audit compares what the database holds with what was sent.
func audit(ctx context.Context, pool *pgxpool.Pool, events []event) (figures, error) {
	f := figures{Messages: len(events)}
	prices := priceList(events)
	f.Expected = total(prices)
	err := pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM delivery), (SELECT coalesce(sum(duplicates), 0) FROM processed_event)`).
		Scan(&f.Deliveries, &f.Duplicates)
	if err != nil {
		return f, fmt.Errorf("count the deliveries: %w", err)
	}
	charges, err := readCharges(ctx, pool)
	if err != nil {
		return f, fmt.Errorf("read the charges: %w", err)
	}
	f.count(charges, prices)
	return f, nil
}

// charges are the rows of the table charge for one order.
type charges struct {
	OrderID string
	Count   int
	Cents   int64
}

func readCharges(ctx context.Context, pool *pgxpool.Pool) ([]charges, error) {
	rows, err := pool.Query(ctx, `SELECT order_id, count(*), sum(cents)::bigint FROM charge GROUP BY order_id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[charges])
}

// count fills in what the charges come to. A charge of an order that nobody sent counts as doubled.
func (f *figures) count(list []charges, prices map[string]int64) {
	charged := 0
	for _, c := range list {
		f.Charges += c.Count
		f.Charged += c.Cents
		f.Doubled += c.Count
		if _, sent := prices[c.OrderID]; sent {
			f.Doubled--
			charged++
		}
	}
	f.Missing = len(prices) - charged
}

func total(prices map[string]int64) (cents int64) {
	for _, price := range prices {
		cents += price
	}
	return cents
}
