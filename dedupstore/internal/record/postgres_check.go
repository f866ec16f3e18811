package record

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/schema"
)

// catalogue is what PostgreSQL's catalogue tells of the table.
type catalogue struct {
	Found       bool     `json:"found"`
	SchemaFound bool     `json:"schema_found"`
	Kind        string   `json:"kind"`       // pg_class.relkind
	Columns     []string `json:"columns"`    // all of them
	Lossy       []string `json:"lossy"`      // the key's columns that may take two ids for one, or cut them off
	Unique      bool     `json:"unique"`     // a unique index that ON CONFLICT can use
	Narrow      []string `json:"narrow"`     // unique indexes of one of the key's columns alone, quoted
	Deferrable  []string `json:"deferrable"` // unique constraints that make ON CONFLICT fail, quoted
	Missing     []string `json:"missing"`    // privileges
	ReadOnly    bool     `json:"readonly"`
}

// catalogueSQL takes the table's and the schema's name as they stand in SQL. Types and collations are looked at because
// char(n) drops blanks, name cuts off, citext and nondeterministic collations fold: ids that one of them takes for one
// another would be lost.
const catalogueSQL = `
select row_to_json(answer)::text from (
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
	array(select i.indexrelid::regclass::text from pg_index i where i.indrelid = c.oid and i.indisunique
		and i.indexprs is null and (i.indkey::int2[])[0:i.indnkeyatts - 1] <@ keys.attnums
		and not (i.indkey::int2[])[0:i.indnkeyatts - 1] @> keys.attnums) as narrow,
	array(select quote_ident(conname) from pg_constraint k where k.conrelid = c.oid and k.condeferrable
		and k.contype in ('p', 'u') and k.conkey @> keys.attnums and k.conkey <@ keys.attnums) as deferrable,
	array(select p from unnest(array['select', 'insert', 'update']) p where not has_any_column_privilege(c.oid, p)) as missing,
	current_setting('transaction_read_only') = 'on' as readonly
from (select to_regclass($1) as oid) wanted
left join pg_class c on c.oid = wanted.oid
cross join lateral (select array(select attnum from pg_attribute
	where attrelid = c.oid and attname in ('event_id', 'consumer_id') and not attisdropped) as attnums) keys
) answer`

// Examine implements Dialect.
func (p *Postgres) Examine(ctx context.Context, ask Query) error {
	var quotedSchema string
	if p.cfg.Schema != "" {
		quotedSchema = quote(p.cfg.Schema)
	}
	text, err := ask(ctx, catalogueSQL, p.cfg.tableSQL(), quotedSchema)
	if err != nil {
		return p.as(max(classOfState(StateOf(err)), dedupstore.Unavailable), "look at the table %s: %w", p.cfg.tableSQL(), err)
	}
	var c catalogue
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("%s: look at the table %s: %w", p.store, p.cfg.tableSQL(), err)
	}
	return p.cannotBeUsed(p.problems(&c))
}

// cannotBeUsed makes one error of all problems.
func (e *explainer) cannotBeUsed(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return e.as(dedupstore.Misconfigured, "the table %s cannot be used: %s", e.cfg.tableSQL(), strings.Join(problems, "; "))
}

// problems says what is wrong and what to run.
func (p *Postgres) problems(c *catalogue) []string {
	var list []string
	table := p.cfg.tableSQL()
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if c.ReadOnly {
		note("the server, or the session, is read-only: connect to the primary (target_session_attrs=read-write)")
	}
	if !c.Found {
		note("it does not exist; run:\n%s", p.createSQL(!c.SchemaFound))
		return list
	}
	if c.Kind != "r" && c.Kind != "p" {
		note("it is %s, the record needs a table; move it away and run:\n%s", kindName(c.Kind), p.createSQL(false))
		return list
	}
	counts := !p.cfg.DoNothing && c.Kind == "r" // the record writes the column duplicates
	for _, column := range columns {
		if !slices.Contains(c.Columns, column.name) && (column.name != "duplicates" || counts) {
			note("its column %s is missing; run: alter table %s add column %s %s;", column.name, table, column.name, column.definition)
		}
	}
	for _, column := range c.Lossy {
		name, _, _ := strings.Cut(column, " ")
		note(`its column %s may take different ids for the same; run: alter table %s alter column %s type text collate "C";`, column, table, name)
	}
	for _, constraint := range c.Deferrable {
		note("its unique constraint %s is deferrable, which the record cannot use; run: alter table %s drop constraint %s;", constraint, table, constraint)
	}
	for _, index := range c.Narrow {
		note("its unique index %s takes different events for the same (where it belongs to a constraint, drop that); run: drop index %s;", index, index)
	}
	if !c.Unique {
		note("it has no unique index on exactly (event_id, consumer_id); run: create unique index on %s (event_id, consumer_id);", table)
	}
	if missing := needed(c.Missing, counts); len(missing) > 0 {
		note("the user may not %s; run as its owner: grant select, insert, update on %s to <the user>;", strings.Join(missing, " or "), table)
	}
	return list
}

// needed leaves out the privilege that a record which counts nothing does without.
func needed(privileges []string, counts bool) []string {
	return slices.DeleteFunc(slices.Clone(privileges), func(p string) bool { return p == "update" && !counts })
}

// columns are those of package schema, as they can be added to a table that has rows.
var columns = []struct{ name, definition string }{
	{"event_id", `text collate "C" not null`},
	{"consumer_id", `text collate "C" not null`},
	{"processed_at", "timestamptz not null default clock_timestamp()"},
	{"duplicates", "integer not null default 0"},
}

func (p *Postgres) createSQL(andSchema bool) string {
	sql := p.cfg.createSQL(schema.Postgres)
	if andSchema {
		sql = "create schema " + quote(p.cfg.Schema) + ";\n" + sql
	}
	return sql
}

func kindName(relkind string) string {
	switch relkind {
	case "v", "m":
		return "a view"
	case "f":
		return "a foreign table"
	}
	return "no table"
}
