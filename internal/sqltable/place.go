// Package sqltable finds out where a table of PostgreSQL is, so that statements can say it: what a table's bare name
// stands for depends on the session, and a function, a migration or a temporary table can change that under a running
// service.
package sqltable

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
)

// Query runs a query that answers with one row of one text.
type Query func(ctx context.Context, sql string, args ...any) (string, error)

// ErrNotFound is wrapped, with the name of the table, where no schema of the session's search_path has it.
var ErrNotFound error = notFound{}

type notFound struct{}

func (notFound) Error() string { return "no schema of the search_path has the table" }

// SQLState is the code with which the server refuses a table that is not there.
func (notFound) SQLState() string { return "42P01" }

// ErrNoUsage is wrapped where the role may not look into the schema that has the table. The error has the SQL to run.
var ErrNoUsage error = noUsage{}

type noUsage struct{}

func (noUsage) Error() string { return "the role has no privilege USAGE on the schema" }

// SQLState is the code with which the server refuses what needs a privilege.
func (noUsage) SQLState() string { return "42501" }

// Place is where a table is. It is found once, by the first that asks, and stays. It is safe for concurrent use.
type Place struct{ schema atomic.Pointer[string] }

// findSQL looks along the search_path as PostgreSQL does, but never at temporary tables.
const findSQL = `select coalesce((select n.nspname::text
from unnest(current_schemas(false)) with ordinality as path (name, place)
join pg_catalog.pg_namespace n on n.nspname = path.name
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = $1 and c.relkind in ('r', 'p', 'v', 'm', 'f')
where n.nspname::text not like 'pg\_temp\_%' order by path.place limit 1), '')`

// hiddenSQL finds the statement without which the role cannot look into a schema of the search_path that has the table,
// or, if $2 is not empty, into the schema of that name.
const hiddenSQL = `select coalesce((select format('grant usage on schema %I to %I', n.nspname, current_user)
from pg_catalog.pg_namespace n
where not has_schema_privilege(n.oid, 'usage') and case when $2 <> '' then n.nspname::text = $2 else
(n.nspname::text = any (string_to_array(replace(current_setting('search_path'), '"', ''), ', ')) or n.nspname = current_user)
and exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = $1) end
order by n.nspname limit 1), '')`

// Find returns the schema of the table, both as they are spelled in the catalogue. It asks until the table is found for
// the first time.
func (p *Place) Find(ctx context.Context, ask Query, table string) (string, error) {
	if schema := p.schema.Load(); schema != nil {
		return *schema, nil
	}
	schema, err := ask(ctx, findSQL, table)
	if err != nil {
		return "", err
	}
	if schema == "" {
		if err := Hidden(ctx, ask, "", table); err != nil {
			return "", err
		}
		return "", fmt.Errorf("%w %s", ErrNotFound, Name("", table))
	}
	p.schema.CompareAndSwap(nil, &schema) // one answer for all
	return *p.schema.Load(), nil
}

// Hidden returns an error that wraps ErrNoUsage if the role may not look into the schema, or into that of the
// search_path which has the table if schema is empty.
func Hidden(ctx context.Context, ask Query, schema, table string) error {
	grant, err := ask(ctx, hiddenSQL, table, schema)
	if err != nil || grant == "" {
		return err
	}
	return fmt.Errorf("%w that has the table %s; run: %s", ErrNoUsage, Name("", table), grant)
}

// Name is a table as it stands in SQL. The schema may be empty.
func Name(schema, table string) string {
	if schema == "" {
		return quote(table)
	}
	return quote(schema) + "." + quote(table)
}

// quote makes an identifier of a name as it is spelled in the catalogue.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
