package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/schema"
)

// Check implements dedupstore.Checker: it reports everything that would make Once fail, with the SQL to run. It connects,
// looks at the table, and has the server plan the record without running it.
func (s *Store) Check(ctx context.Context) error {
	if s.invalid != nil {
		return fmt.Errorf("pgxstore: %w", s.invalid)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return connectError(err)
	}
	defer conn.Release()
	if err := s.examine(ctx, conn.Conn()); err != nil {
		return err
	}
	// The last word is the server's: it plans the statement itself, and checks its privileges column by column.
	if _, err := conn.Exec(ctx, s.sql.plan); err != nil {
		return fmt.Errorf("pgxstore: the record cannot be written: %w", err)
	}
	return nil
}

// connectError says whether asking again may help: a server that does not answer, or that starts, may do so later.
func connectError(err error) error {
	if pgErr := new(pgconn.PgError); errors.As(err, &pgErr) && pgErr.Code != "57P03" && pgErr.Code != "53300" {
		return fmt.Errorf("pgxstore: cannot connect to the database: %s: %w", connectRemedy(err), err)
	}
	return fmt.Errorf("pgxstore: %w: %s: %w", dedupstore.ErrUnavailable, connectRemedy(err), err)
}

// connectRemedy says what to look at.
func connectRemedy(err error) string {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return "check the host and the port, and that the server runs and can be reached"
	}
	switch pgErr.Code {
	case "28P01", "28000":
		return "check the user and the password"
	case "3D000":
		return "check the name of the database, or create it"
	case "53300":
		return "the server has no connection left: lower the pools' sizes, or raise max_connections"
	}
	return "the server refused"
}

// table is what the catalogue tells of processed_event.
type table struct {
	Found, SchemaFound bool
	Kind               string   // pg_class.relkind
	Columns            []string // all of them
	Lossy              []string // the key's columns that may take two ids for one, or cut them off
	Unique             bool     // a unique index that ON CONFLICT can use
	Deferrable         []string // unique constraints that make ON CONFLICT fail, quoted
	Missing            []string // privileges
	ReadOnly           bool
}

// catalogueSQL takes the table's and the schema's name as they stand in SQL. Types and collations are looked at because
// char(n) drops blanks, name cuts off, citext and nondeterministic collations fold: ids that one of them takes for one
// another would be lost.
const catalogueSQL = `
select c.oid is not null as found,
	$2 = '' or to_regnamespace($2) is not null as schema_found,
	coalesce(c.relkind::text, '') as kind,
	array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped) as columns,
	array(select a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod)
		from pg_attribute a left join pg_collation l on l.oid = a.attcollation
		where a.attrelid = c.oid and a.attname in ('event_id', 'consumer_id') and not a.attisdropped
		and (a.atttypid not in ('text'::regtype, 'varchar'::regtype, 'uuid'::regtype) or not l.collisdeterministic)) as lossy,
	exists (select from pg_index i where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate
		and i.indpred is null and i.indexprs is null and i.indnkeyatts = 2
		and (i.indkey::int2[])[0:1] @> keys.attnums) as "unique",
	array(select quote_ident(conname) from pg_constraint k where k.conrelid = c.oid and k.condeferrable
		and k.contype in ('p', 'u') and k.conkey @> keys.attnums and k.conkey <@ keys.attnums) as deferrable,
	array(select p from unnest(array['select', 'insert', 'update']) p where not has_any_column_privilege(c.oid, p)) as missing,
	current_setting('transaction_read_only') = 'on' as readonly
from (select to_regclass($1) as oid) wanted
left join pg_class c on c.oid = wanted.oid
cross join lateral (select array(select attnum from pg_attribute
	where attrelid = c.oid and attname in ('event_id', 'consumer_id') and not attisdropped) as attnums) keys`

// examine reports what is wrong with the table, all of it in one error.
func (s *Store) examine(ctx context.Context, conn *pgx.Conn) error {
	var quotedSchema string
	if s.cfg.Schema != "" {
		quotedSchema = pgx.Identifier{s.cfg.Schema}.Sanitize()
	}
	rows, err := conn.Query(ctx, catalogueSQL, s.sql.table, quotedSchema)
	if err != nil {
		return fmt.Errorf("pgxstore: look at the table %s: %w", s.sql.table, err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return fmt.Errorf("pgxstore: look at the table %s: %w", s.sql.table, err)
	}
	if problems := s.problems(&found); len(problems) > 0 {
		return fmt.Errorf("pgxstore: the table %s cannot be used: %s", s.sql.table, strings.Join(problems, "; "))
	}
	return nil
}

// problems says what is wrong and what to run.
func (s *Store) problems(t *table) []string {
	var list []string
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if t.ReadOnly {
		note("the server, or the session, is read-only: connect to the primary (target_session_attrs=read-write)")
	}
	if !t.Found {
		note("it does not exist; run:\n%s", s.createSQL(!t.SchemaFound))
		return list
	}
	if t.Kind != "r" {
		note("it is %s, the record needs a plain table; move it away and run:\n%s", kindName(t.Kind), s.createSQL(false))
		return list
	}
	for _, column := range columns {
		if !slices.Contains(t.Columns, column.name) {
			note("its column %s is missing; run: alter table %s add column %s %s;", column.name, s.sql.table, column.name, column.definition)
		}
	}
	for _, column := range t.Lossy {
		name, _, _ := strings.Cut(column, " ")
		note(`its column %s may take different ids for the same; run: alter table %s alter column %s type text collate "C";`, column, s.sql.table, name)
	}
	for _, constraint := range t.Deferrable {
		note("its unique constraint %s is deferrable, which the record cannot use; run: alter table %s drop constraint %s;", constraint, s.sql.table, constraint)
	}
	if !t.Unique {
		note("it has no unique index on exactly (event_id, consumer_id); run: create unique index on %s (event_id, consumer_id);", s.sql.table)
	}
	if len(t.Missing) > 0 {
		note("the user may not %s; run as its owner: grant select, insert, update on %s to <the user>;", strings.Join(t.Missing, " or "), s.sql.table)
	}
	return list
}

// columns are those of package schema, as they can be added to a table that has rows.
var columns = []struct{ name, definition string }{
	{"event_id", `text collate "C" not null`},
	{"consumer_id", `text collate "C" not null`},
	{"processed_at", "timestamptz not null default clock_timestamp()"},
	{"duplicates", "integer not null default 0"},
}

func (s *Store) createSQL(andSchema bool) string {
	sql := schema.Postgres.SQL(&schema.Config{Schema: s.cfg.Schema})
	if andSchema {
		sql = "create schema " + pgx.Identifier{s.cfg.Schema}.Sanitize() + ";\n" + sql
	}
	return sql
}

func kindName(relkind string) string {
	switch relkind {
	case "p":
		return "partitioned, and xmax cannot be read there"
	case "v", "m":
		return "a view"
	case "f":
		return "a foreign table"
	}
	return "no table"
}
