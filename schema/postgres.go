package schema

import (
	"context"
	"encoding/json"
)

// postgresSQL takes the table's and the schema's name as they stand in SQL.
const postgresSQL = `
select row_to_json(answer)::text from (
select c.oid is not null as found,
	$2 = '' or to_regnamespace($2) is not null as schema_found,
	coalesce(c.relkind::text, '') as kind,
	coalesce(c.relpersistence <> 'p', false) as unlogged,
	quote_ident(current_user) as "user",
	array(select p from unnest(array['select', 'insert', 'update', 'delete']) p where not
		case p when 'delete' then has_table_privilege(c.oid, p) else has_any_column_privilege(c.oid, p) end) as missing,
	json_build_object('transaction_read_only', current_setting('transaction_read_only'), 'fsync', current_setting('fsync'),
		'synchronous_commit', current_setting('synchronous_commit')) as settings,
	array(select row_to_json(x) from (select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type,
		not coalesce(l.collisdeterministic, true) as folds, a.attnotnull as not_null,
		a.atthasdef or a.attidentity <> '' as filled,
		a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid) like 'nextval(%', false) as counted
		from pg_attribute a left join pg_collation l on l.oid = a.attcollation
		left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
		where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum) x) as columns,
	array(select row_to_json(x) from (select i.indexrelid::regclass::text as name,
		coalesce((select quote_ident(conname) from pg_constraint where conindid = i.indexrelid and conrelid = c.oid and contype in ('p', 'u')), '') as constraint,
		i.indisunique as unique, i.indisvalid as valid, not i.indimmediate as deferrable, i.indpred is not null as partial,
		exists (select from unnest(i.indcollation::oid[]) o join pg_collation l on l.oid = o and not l.collisdeterministic) as folds,
		array(select coalesce(a.attname::text, '') from unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) with ordinality k (number, place)
			left join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number and k.number <> 0 order by place) as columns
		from pg_index i where i.indrelid = c.oid order by 1) x) as indexes,
	array(select row_to_json(x) from (select l.oid::regclass::text as name, coalesce(l.reloptions, '{}') as options from pg_class l
		where l.oid = c.oid and c.relkind = 'r'
		or c.relkind = 'p' and l.oid in (select relid from pg_partition_tree(c.oid) where isleaf) order by 1) x) as storage
from (select to_regclass($1) as oid) wanted left join pg_class c on c.oid = wanted.oid
) answer`

func lookAtPostgres(ctx context.Context, ask Query, names *namer, t *table) (*seen, error) {
	var schema string
	if names.schema != "" {
		schema = quote(names.schema)
	}
	text, err := ask(ctx, postgresSQL, names.in(t.name), schema)
	if err != nil {
		return nil, err
	}
	var s seen
	return &s, json.Unmarshal([]byte(text), &s)
}
