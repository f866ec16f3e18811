// Package schema holds the tables that einmal's stores need, as numbered SQL files, to be printed, applied, or copied into
// a service's own migrations. Nothing applies them by itself: a store whose table is missing says so and shows the SQL.
//
// The package imports the standard library only.
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode/utf8"
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

// File is one SQL file: one or more statements that do nothing where they have been run before.
type File struct {
	Name string // "001_processed_event.sql"; the order of the names is the order to run them in
	SQL  string
}

// Config changes where the tables stand. A nil Config is the zero Config. Names are spelled as in the catalogue, without quotes.
type Config struct {
	// Schema is the schema of the tables. It must exist. By default they stand in the first schema of the search_path. SQLite
	// has no schemas: there it is ignored.
	Schema string

	// ProcessedEvent is the name of the table processed_event. Its constraint and its index begin with it.
	ProcessedEvent string
}

// Files returns the files in the order to run them in, with table names as they are in the repository, unqualified. It
// panics for a Dialect that is not one of this package's constants.
func (d Dialect) Files() []File {
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
		list = append(list, File{entry.Name(), string(sql)})
	}
	return list
}

// SQL returns all files as one text to run.
func (d Dialect) SQL(cfg *Config) string {
	var texts []string
	for _, file := range d.Files() {
		texts = append(texts, "-- "+file.Name+"\n"+d.named(file.SQL, cfg))
	}
	return strings.Join(texts, "\n")
}

// Apply runs all files, one call of exec for each. Running them again is harmless, and so are several Apply at once: each
// waits for the other. exec must take a text of several statements, and run it in one transaction in PostgreSQL, as that does with
// a text that has no parameters:
//
//	err := schema.Postgres.Apply(ctx, func(ctx context.Context, sql string) error {
//		_, err := pool.Exec(ctx, sql)
//		return err
//	}, nil)
//
// The error is that of exec, with the name of the file.
func (d Dialect) Apply(ctx context.Context, exec func(ctx context.Context, sql string) error, cfg *Config) error {
	for _, file := range d.Files() {
		if err := exec(ctx, oneAtATime[d]+d.named(file.SQL, cfg)); err != nil {
			return fmt.Errorf("schema: %s: %w", file.Name, err)
		}
	}
	return nil
}

// oneAtATime takes a lock until the end of the transaction: "if not exists" alone fails where two create the same table. SQLite
// lets one write at a time.
var oneAtATime = map[Dialect]string{
	Postgres: "select pg_advisory_xact_lock(hashtext('einmal'), hashtext('schema'));\n",
}

// tableName finds the places in our own files at which a table is named.
var tableName = regexp.MustCompile(`(?m)^(create table if not exists |create index if not exists \w+ on )(\w+)`)

// named puts the names of cfg into a file. Setting the search_path for the schema instead would outlive the text, in a pooled
// connection or in the caller's transaction.
func (d Dialect) named(sql string, cfg *Config) string {
	if cfg == nil {
		return sql
	}
	if cfg.Schema != "" && d == Postgres {
		sql = tableName.ReplaceAllString(sql, "${1}"+strings.ReplaceAll(quote(cfg.Schema), "$", "$$")+".${2}")
	}
	if cfg.ProcessedEvent == "" {
		return sql
	}
	return processedEvent.ReplaceAllStringFunc(sql, func(name string) string {
		return quote(suffixed(cfg.ProcessedEvent, strings.TrimPrefix(name, "processed_event")))
	})
}

// processedEvent finds the table's name, and those of its constraint and index.
var processedEvent = regexp.MustCompile(`\bprocessed_event(_\w+)?\b`)

// suffixed is a name with a suffix, within the 63 bytes after which PostgreSQL would cut the suffix off.
func suffixed(name, suffix string) string {
	const most = 63
	for len(name)+len(suffix) > most && name != "" {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name + suffix
}

// quote makes an identifier of a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
