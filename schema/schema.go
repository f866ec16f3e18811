// Package schema holds the tables that einmal's stores need, as numbered SQL files, to be printed, applied, or copied
// into a service's own migrations. Nothing applies them by itself: a store whose table is missing says so and names the
// command that prints the SQL.
//
// The package imports the standard library only.
//
//	_, err := db.ExecContext(ctx, schema.Postgres.SQL(nil, schema.Dedup)) // once, by the owner of the tables
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Dialect names a database and the SQL files for it.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres" // PostgreSQL, tested from version 15 on
	SQLite   Dialect = "sqlite"   // SQLite from 3.38 on
)

// Component is a part of einmal that has tables of its own, for those who use it. The first line of each file names its
// component.
type Component string

// The components.
const (
	Dedup      Component = "dedup"      // the dedup stores: processed_event
	DeadLetter Component = "deadletter" // dead letters: dead_message
	CrashLoop  Component = "crashloop"  // middleware.CrashLoop: started_message
	Outbox     Component = "outbox"     // package outbox: outbox_event, outbox_lease, outbox_mode

	Idempotency Component = "idempotency" // the server of package idempotency: idempotency_key
	Console     Component = "console"     // what people have done by a console: console_action
)

// File is one SQL file: one or more statements that do nothing where they have been run before.
type File struct {
	Name      string // "001_processed_event.sql"; the order of the names is the order to run them in
	SQL       string
	Component Component
}

// Config changes where the tables stand. A nil Config is the zero Config. Names are spelled as in the catalogue,
// without quotes.
type Config struct {
	// Schema is the schema of the tables. It must exist. By default they stand in the first schema of the search_path.
	// SQLite has no schemas: there it is ignored.
	Schema string

	// Tables gives other names to tables, by the names in the files: {"processed_event": "seen"}. A table's constraints
	// and indexes begin with its name.
	Tables map[string]string

	// For says what the user is for who asks Check: which tables are looked at, and which privileges are missing. By
	// default all tables are, and the user is taken for one who consumes and cleans up. On SQLite, which has no users, it
	// says which tables are looked at.
	For []Purpose
}

// Components returns those that have files for d, in the order of their files.
func (d Dialect) Components() []Component {
	var list []Component
	for _, file := range d.all() {
		if !slices.Contains(list, file.Component) {
			list = append(list, file.Component)
		}
	}
	return list
}

// Files returns the files of the components, or of all if none is named, in the order to run them in. Table names are
// as they are in the repository, unqualified. It panics for a Dialect, or a Component of it, that there is not.
func (d Dialect) Files(components ...Component) []File {
	list, err := d.files(components)
	if err != nil {
		panic(err)
	}
	return list
}

// Tables returns the names in the files of the components' tables, or of all if no component is named. It panics as
// Files does.
func (d Dialect) Tables(components ...Component) []string { return tablesOf(d.Files(components...)) }

func (d Dialect) files(components []Component) ([]File, error) {
	list := d.all()
	if len(components) == 0 {
		return list, nil
	}
	known := d.Components()
	for _, component := range components {
		if !slices.Contains(known, component) {
			return nil, fmt.Errorf("schema: no files of the component %q for the dialect %q: it has %q", component, d, known)
		}
	}
	return slices.DeleteFunc(list, func(f File) bool { return !slices.Contains(components, f.Component) }), nil
}

func (d Dialect) all() []File {
	entries, err := fs.ReadDir(files, string(d))
	if err != nil {
		panic(fmt.Sprintf("schema: no files for the dialect %q", string(d)))
	}
	list := make([]File, 0, len(entries))
	for _, entry := range entries { // in the order of their names
		sql, err := fs.ReadFile(files, string(d)+"/"+entry.Name())
		if err != nil {
			panic(err) // an embedded file can be read
		}
		list = append(list, File{entry.Name(), string(sql), componentOf(string(sql))})
	}
	return list
}

var firstLine = regexp.MustCompile(`\A-- (\w+): `)

func componentOf(sql string) Component {
	if m := firstLine.FindStringSubmatch(sql); m != nil {
		return Component(m[1])
	}
	return ""
}

// SQL returns the files of the components, or of all if none is named, as one text to run. It panics for a Dialect, a
// Component of it, or a table in cfg that there is not.
func (d Dialect) SQL(cfg *Config, components ...Component) string {
	named, err := d.named(cfg, components)
	if err != nil {
		panic(err)
	}
	var texts []string
	for _, file := range named {
		texts = append(texts, "-- "+file.Name+"\n"+file.SQL)
	}
	return strings.Join(texts, "\n")
}

// Apply runs the files of the components, or of all if none is named, one call of exec for each. Running them again is
// harmless, and so are several Apply at once: each waits for the other. exec must take a text of several statements,
// and run it in one transaction in PostgreSQL, as that does with a text that has no parameters:
//
//	err := schema.Postgres.Apply(ctx, func(ctx context.Context, sql string) error {
//		_, err := pool.Exec(ctx, sql)
//		return err
//	}, nil, schema.Dedup)
//
// The error is that of exec, with the name of the file, or says which component or table of cfg there is not.
func (d Dialect) Apply(ctx context.Context, exec func(ctx context.Context, sql string) error, cfg *Config,
	components ...Component) error {
	named, err := d.named(cfg, components)
	if err != nil {
		return err
	}
	for _, file := range named {
		if err := exec(ctx, oneAtATime[d]+file.SQL); err != nil {
			return fmt.Errorf("schema: %s: %w", file.Name, err)
		}
	}
	return nil
}

// oneAtATime takes a lock until the end of the transaction: "if not exists" alone fails where two create the same
// table. SQLite lets one write at a time.
var oneAtATime = map[Dialect]string{
	Postgres: "select pg_advisory_xact_lock(hashtext('einmal'), hashtext('schema'));\n",
}

// named returns the files with the names of cfg.
func (d Dialect) named(cfg *Config, components []Component) ([]File, error) {
	list, err := d.files(components)
	if err != nil || cfg == nil {
		return list, err
	}
	names := d.namer(cfg)
	for _, table := range slices.Sorted(maps.Keys(cfg.Tables)) {
		if !slices.Contains(names.tables, table) {
			return nil, fmt.Errorf("schema: no table %q in Config.Tables: the dialect %q has %q", table, d, names.tables)
		}
	}
	for i := range list {
		list[i].SQL = names.in(list[i].SQL)
	}
	return list, nil
}

func (d Dialect) namer(cfg *Config) namer {
	names := namer{tables: tablesOf(d.all()), other: cfg.Tables}
	if d != SQLite {
		names.schema = cfg.Schema
	}
	return names
}
