package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/einmal-go/einmal/schema"
)

const envURL = "EINMAL_DATABASE_URL"

// tableFlags say which tables are meant.
type tableFlags struct {
	db, schema string
	tables     tableNames
}

func (f *tableFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.db, "db", "", "the `database`: postgres or sqlite. By default the URL tells")
	flags.StringVar(&f.schema, "schema", "",
		"the `schema` of the tables, as it is spelled in the catalogue. By default the search_path's")
	flags.Var(&f.tables, "table", "another name of a table, as `name=other`: processed_event=seen. Can be repeated")
}

// tableNames collects name=other.
type tableNames map[string]string

func (n *tableNames) String() string { return "" }

func (n *tableNames) Set(text string) error {
	name, other, ok := strings.Cut(text, "=")
	if !ok || name == "" || other == "" {
		return errors.New("want name=other")
	}
	if *n == nil {
		*n = tableNames{}
	}
	(*n)[name] = other
	return nil
}

// wanted are the tables that a command is about.
type wanted struct {
	dialect    schema.Dialect
	components []schema.Component
	named      bool // components, by the arguments; else they are all that there are
	cfg        *schema.Config
}

// wants looks at flags and arguments. url is "" if the command needs no database.
func (f *tableFlags) wants(url string, args []string) (*wanted, error) {
	w := &wanted{dialect: schema.Dialect(cmp.Or(f.db, dialectOf(url))),
		cfg: &schema.Config{Schema: f.schema, Tables: f.tables}}
	switch {
	case w.dialect == "":
		return nil, usagef("set -db to postgres or sqlite")
	case w.dialect != schema.Postgres && w.dialect != schema.SQLite:
		return nil, usagef("-db is postgres or sqlite")
	case w.dialect == schema.SQLite && f.schema != "":
		return nil, usagef("SQLite has no schemas: leave -schema out")
	}
	for name, other := range f.tables {
		if tables := w.dialect.Tables(); !slices.Contains(tables, name) {
			return nil, usagef("-table %s=...: there is no such table: they are %s", name, strings.Join(tables, ", "))
		}
		if w.dialect == schema.Postgres && len(other) > maxIdentifier {
			return nil, usagef("-table %s=...: PostgreSQL cuts names off after %d bytes", name, maxIdentifier)
		}
	}
	known := w.dialect.Components()
	for _, arg := range args {
		component := schema.Component(arg)
		if !slices.Contains(known, component) {
			return nil, usagef("%s is no component of %s: they are %s", shown(arg), w.dialect,
				strings.Trim(fmt.Sprint(known), "[]"))
		}
		w.components = append(w.components, component)
	}
	if w.named = len(args) > 0; !w.named {
		w.components = known
	}
	return w, nil
}

const maxIdentifier = 63

var word = regexp.MustCompile(`^[\w-]+$`)

// shown is an argument that was not understood, unless it may be a URL that went astray.
func shown(arg string) string {
	if word.MatchString(arg) {
		return arg
	}
	return "an argument"
}

func dialectOf(url string) string {
	switch {
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		return string(schema.Postgres)
	case strings.HasPrefix(url, "file:"):
		return string(schema.SQLite)
	}
	return ""
}

// urlFlags say which database is meant.
type urlFlags struct {
	url, role string
	timeout   time.Duration
}

func (f *urlFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.url, "url", "",
		"the database's `URL`: postgres://user:password@host/database, or file:path of SQLite. By default what "+
			envURL+" says: there nobody sees the password in the list of processes")
	flags.StringVar(&f.role, "role", "",
		"the PostgreSQL `role` to become (SET ROLE): the service's, to look at its privileges")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long it may take")
}

func (f *urlFlags) get(env *environment) string { return cmp.Or(f.url, env.getenv(envURL)) }

// open connects by one connection. The caller closes db.
func (f *urlFlags) open(ctx context.Context, env *environment, dialect schema.Dialect, create bool) (*sql.DB, error) {
	db, err := f.prepare(env, dialect, create)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // so that the role is that of all statements
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the database: %w", err), db.Close())
	}
	if f.role != "" {
		if _, err := db.ExecContext(ctx, "set role "+pgx.Identifier{f.role}.Sanitize()); err != nil {
			return nil, errors.Join(fmt.Errorf("become the role %s: %w", f.role, err), db.Close())
		}
	}
	return db, nil
}

// prepare returns the database without connecting to it. The caller closes it.
func (f *urlFlags) prepare(env *environment, dialect schema.Dialect, create bool) (*sql.DB, error) {
	url := f.get(env)
	switch {
	case url == "":
		return nil, usagef("which database? Set -url or %s", envURL)
	case dialect == schema.SQLite && f.role != "":
		return nil, usagef("SQLite has no roles: leave -role out")
	case dialect == schema.SQLite:
		return openSQLite(url, create)
	}
	return openPostgres(url)
}

// openPostgres prepares no statements, so that poolers do not matter. An error of the URL could repeat the password.
func openPostgres(url string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, usagef("the URL is none: want postgres://user:password@host:port/database, with what is special in the password as %%40")
	}
	if !strings.Contains(url, "default_query_exec_mode") {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return stdlib.OpenDB(*cfg), nil
}

// openSQLite makes no file unless it is asked to, waits for others, and lets a transaction begin with the lock to
// write.
func openSQLite(url string, create bool) (*sql.DB, error) {
	path, parameters, _ := strings.Cut(strings.TrimPrefix(url, "file:"), "?")
	if _, err := os.Stat(path); err != nil && !create && !strings.Contains(parameters, "mode=memory") {
		return nil, fmt.Errorf("there is no database: %w", err)
	}
	dsn := "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(5000)"
	if parameters != "" {
		dsn += "&" + parameters
	}
	return sql.Open("sqlite", dsn)
}

// asker is a *sql.DB or a *sql.Tx.
type asker interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func ask(db asker) schema.Query {
	return func(ctx context.Context, query string, args ...any) (text string, err error) {
		err = db.QueryRowContext(ctx, query, args...).Scan(&text)
		return text, err
	}
}
