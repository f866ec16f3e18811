package janitor_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// Nothing is swept that was not asked for: New refuses what is missing, and lists all of it.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	with := func(change func(*janitor.Table)) janitor.Config {
		table := processed
		change(&table)
		return janitor.Config{Tables: []janitor.Table{table}}
	}
	for name, c := range map[string]struct {
		dialect schema.Dialect
		cfg     janitor.Config
		says    []string
	}{
		"nothing": {schema.Postgres, janitor.Config{}, []string{"Config.Tables is empty"}},
		"no names": {schema.Postgres, janitor.Config{Tables: []janitor.Table{{}}},
			[]string{"Tables[0]: Name is empty", "Column is empty", "Keep is not set"}},
		"no Keep": {schema.Postgres, with(func(t *janitor.Table) { t.Keep = 0 }),
			[]string{"(processed_event): Keep is not set", "DedupConfig.Window", "docs/retention.md"}},
		"negative": {schema.Postgres, with(func(t *janitor.Table) { t.Keep, t.Margin = -1, -1 }),
			[]string{"Keep is -1ns", "Margin is -1ns"}},
		"too long": {schema.Postgres, with(func(t *janitor.Table) { t.Keep = 1 << 62 }), []string{"Keep is 1281023h"}},
		"dialect":  {"mysql", with(func(*janitor.Table) {}), []string{`"mysql" is not known`}},
		"odd name": {schema.Postgres, with(func(t *janitor.Table) { t.Name = "a$1" }),
			[]string{"drivers take for something else"}},
		"sizes": {schema.Postgres, janitor.Config{Batch: -1, Pause: time.Hour, Interval: -1},
			[]string{"Config.Batch is -1", "Config.Pause is 1h", "Config.Interval is -1ns"}},
		"schema": {schema.SQLite, with(func(t *janitor.Table) { t.Schema = "s" }), []string{"Schema is set"}},
		"partitions": {schema.SQLite, with(func(t *janitor.Table) { t.Partitions = &janitor.Partitions{} }),
			[]string{"only PostgreSQL has partitions"}},
		"condition": {schema.Postgres,
			with(func(t *janitor.Table) { t.Partitions, t.Where = &janitor.Partitions{}, "true" }),
			[]string{"Partitions and Where are both set"}},
		"ahead": {schema.Postgres, with(func(t *janitor.Table) { t.Partitions = &janitor.Partitions{Ahead: -1} }),
			[]string{"Partitions.Ahead is -1"}},
		"width": {schema.Postgres, with(func(t *janitor.Table) { t.Partitions = &janitor.Partitions{Width: 1} }),
			[]string{"Partitions.Width is 1ns"}},
		"many": {schema.Postgres,
			with(func(t *janitor.Table) { t.Partitions = &janitor.Partitions{Width: time.Second} }),
			[]string{"more than 1000 partitions of 1s"}},
		"many ahead": {schema.Postgres,
			with(func(t *janitor.Table) { t.Partitions = &janitor.Partitions{Width: time.Hour, Ahead: 990} }),
			[]string{"more than 1000 partitions of 1h"}},
		"no window": {schema.Postgres, with(func(t *janitor.Table) { t.Dedup = []any{dedup(0)} }),
			[]string{"Dedup[0] has no Window", "take effect again"}},
		"long window": {schema.Postgres, with(func(t *janitor.Table) { t.Dedup = []any{dedup(time.Hour), dedup(day + 1)} }),
			[]string{"Keep is 24h0m0s, and Dedup[1] takes events up to"}},
		"a Window": {schema.SQLite, with(func(t *janitor.Table) { t.Dedup = []any{janitor.Window(2 * day)} }),
			[]string{"Keep is 24h0m0s, and Dedup[0] takes events up to an age of 48h"}},
		"no Dedup": {schema.Postgres,
			with(func(t *janitor.Table) { t.Dedup = []any{nil, middleware.Recover()(dedup(day))} }),
			[]string{"Dedup[0] is a <nil>", "Dedup[1] is a *middleware."}},
		"second table": {schema.Postgres, janitor.Config{Tables: []janitor.Table{processed, {Schema: "s", Name: "x"}}},
			[]string{"Tables[1] (s.x): Column is empty"}},
	} {
		j, err := janitor.New(new(sql.DB), c.dialect, c.cfg)
		if err == nil || j != nil {
			t.Errorf("%s: %v, %v, want an error", name, j, err)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", name, err, text)
			}
		}
	}
	if _, err := janitor.New(nil, schema.Postgres, janitor.Config{Tables: []janitor.Table{processed}}); err == nil ||
		!strings.Contains(err.Error(), "the database is nil") {
		t.Errorf("a nil database: %v", err)
	}
	if j, err := janitor.New(new(sql.DB), schema.Postgres,
		janitor.Config{Tables: []janitor.Table{processed}}); err != nil || j == nil {
		t.Errorf("defaults: %v", err)
	}
}

// dedup is a handler with that window.
func dedup(window time.Duration) consumer.Handler {
	return middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil },
		&middleware.DedupConfig{Window: window})
}

// Where records are deleted and nobody has said whose they are, the log says that nobody has compared.
func TestUncomparedWindowIsLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*janitor.Table)
		logged bool
	}{
		"records":           {func(*janitor.Table) {}, true},
		"partitions":        {func(t *janitor.Table) { t.Column, t.Partitions = "", &janitor.Partitions{} }, true},
		"a handler":         {func(t *janitor.Table) { t.Dedup = []any{dedup(day)} }, false},
		"a shorter window":  {func(t *janitor.Table) { t.Dedup = []any{dedup(time.Hour), janitor.Window(day)} }, false},
		"something else":    {func(t *janitor.Table) { t.Name, t.Column = "dead_message", "died_at" }, false},
		"a name of our own": {func(t *janitor.Table) { t.Name = "seen" }, true},
	} {
		var log strings.Builder
		table := processed
		c.change(&table)
		cfg := janitor.Config{Tables: []janitor.Table{table}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := janitor.New(new(sql.DB), schema.Postgres, cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Contains(log.String(), "nobody has compared"); got != c.logged {
			t.Errorf("%s: logged %v, want %v: %s", name, got, c.logged, log.String())
		}
	}
}
