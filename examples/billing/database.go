package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/schema"
)

// connections is one for each message or request in work (four partitions, twelve customers), one that a store leaves
// to the rest of the service, and room for more. pgx's own default is 4 on a small machine.
const connections = 14

func openPool(ctx context.Context, database string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	cfg.MaxConns = max(cfg.MaxConns, connections)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// createTables makes a service's table and einmal's in the first schema of the search_path, if they are missing. A
// service that has migrations puts the output of schema.Postgres.SQL(nil, components...) there instead, and needs no
// right to make tables: so does one with -tables=false.
func (t *target) createTables(ctx context.Context, pool *pgxpool.Pool, own string,
	components ...schema.Component) error {
	if !t.tables {
		return nil
	}
	return createTables(ctx, pool, own, components...)
}

func createTables(ctx context.Context, pool *pgxpool.Pool, own string, components ...schema.Component) error {
	exec := func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
	if err := schema.Postgres.Apply(ctx, exec, nil, components...); err != nil {
		return fmt.Errorf("create the tables in the database: %w", err)
	}
	return createOwn(ctx, pool, own)
}

// createOwn makes what is the service's own.
func createOwn(ctx context.Context, pool *pgxpool.Pool, own string) error {
	// CREATE TABLE IF NOT EXISTS fails when two processes start at the same time: so one waits for the other.
	if _, err := pool.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('billing')); `+own); err != nil {
		return fmt.Errorf("create the tables in the database: %w", err)
	}
	return nil
}
