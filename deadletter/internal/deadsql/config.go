package deadsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/schema"
)

// Config is the configuration of a table. The packages' own Config types have the same fields, and their documentation.
type Config struct {
	Schema       string
	Table        string
	StartedTable string
	RecordTable  string
	MaxBytes     int64
	LeaveOut     bool
}

const (
	deadMessage     = "dead_message"
	startedMessage  = "started_message"
	processedEvent  = "processed_event"
	defaultMaxBytes = 32 << 20
	maxIdentifier   = 63 // bytes, PostgreSQL's
)

func (c Config) withDefaults() Config {
	c.Table = cmp.Or(c.Table, deadMessage)
	c.StartedTable = cmp.Or(c.StartedTable, startedMessage)
	c.RecordTable = cmp.Or(c.RecordTable, processedEvent)
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	return c
}

func (c Config) validate() error {
	var errs []error
	for _, name := range []struct{ field, value string }{{"Schema", c.Schema}, {"Table", c.Table},
		{"StartedTable", c.StartedTable}, {"RecordTable", c.RecordTable}} {
		if len(name.value) > maxIdentifier || strings.IndexByte(name.value, 0) >= 0 {
			errs = append(errs, fmt.Errorf("invalid Config.%s: %d bytes: PostgreSQL allows names of up to %d bytes, none of them NUL", name.field, len(name.value), maxIdentifier))
		}
	}
	if c.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("invalid Config.MaxBytes: %d: make it positive, or leave it zero for the default",
			c.MaxBytes))
	}
	return errors.Join(errs...)
}

// tables is the configuration for package schema, of tables that are in that schema.
func (c Config) tables(in string) *schema.Config {
	return &schema.Config{Schema: in, Tables: map[string]string{deadMessage: c.Table, startedMessage: c.StartedTable}}
}

// base is what all tables have in common.
type base struct {
	pkg     string // begins each error
	cfg     Config
	dialect *dialect
	pool    shedding
	invalid error // what is wrong with the configuration

	places map[string]*sqltable.Place // of the tables, unless Config.Schema says it
}

func newBase(pkg string, name schema.Dialect, cfg Config, pool Conn, invalid error) *base {
	cfg = cfg.withDefaults()
	d, err := dialectOf(name)
	b := &base{pkg: pkg, cfg: cfg, dialect: d, pool: shedding{pool}, places: map[string]*sqltable.Place{cfg.Table: {},
		cfg.StartedTable: {}, cfg.RecordTable: {}}}
	if err := errors.Join(invalid, err, cfg.validate()); err != nil {
		b.invalid = dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: %w", pkg, err))
	}
	return b
}

// schemaOf returns the schema of a table, which is found out once. c is asked if it is not known.
func (b *base) schemaOf(ctx context.Context, c Conn, table string) (string, error) {
	switch {
	case b.cfg.Schema != "":
		return b.cfg.Schema, nil
	case b.dialect.name == schema.SQLite:
		return sqliteSchema, nil
	}
	in, err := b.places[table].Find(ctx, asker(c), table)
	if err != nil {
		if c == Conn(b.pool) { // a transaction's connection is not given back yet
			b.pool.shed(ctx, err)
		}
		return "", b.unable(ctx, err)
	}
	return in, nil
}

// sqliteSchema is that of the database's own tables: a temporary one would come before one that does not say it.
const sqliteSchema = "main"

// name is a table as it stands in SQL.
func (b *base) name(ctx context.Context, c Conn, table string) (string, error) {
	in, err := b.schemaOf(ctx, c, table)
	return sqltable.Name(in, table), err
}
