package schema

import (
	"context"
	"encoding/json"
	"fmt"
)

// roleSettingSQL is what a setting is in the sessions of the current user. SET ROLE does not bring it, so it is read as
// a login would: for the user in this database, the user, this database, all. A value that the session has of another
// user says nothing.
const roleSettingSQL = `case when current_user = session_user then current_setting('%[1]s') else coalesce(
		(select substr(v, %[2]d) from pg_db_role_setting s, unnest(s.setconfig) v where v like '%[1]s=%%'
			and s.setrole in (0, (select oid from pg_roles where rolname = current_user)) and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
			order by s.setrole <> 0 desc, s.setdatabase <> 0 desc limit 1),
		(select case when source like '%%user' then boot_val else setting end from pg_settings where name = '%[1]s')) end`

func roleSetting(name string) string { return fmt.Sprintf(roleSettingSQL, name, len(name)+2) }

// postgresSQL takes the table's and the schema's name as they stand in SQL, and the names of its indexes as a list in
// JSON.
var postgresSQL = `
select row_to_json(answer)::text from (
select c.oid is not null as found,
	$2 = '' or to_regnamespace($2) is not null as schema_found,
	coalesce(wanted.hidden, '') as hidden,
	coalesce(c.relkind::text, '') as kind,
	coalesce(c.relpersistence <> 'p', false) as unlogged,
	quote_ident(current_user) as "user",
	array(select p from unnest(array['select', 'insert', 'update', 'delete']) p where not
		case p when 'delete' then has_table_privilege(c.oid, p) else has_any_column_privilege(c.oid, p) end) as missing,
	json_build_object('transaction_read_only', case when current_user = session_user or pg_is_in_recovery() then current_setting('transaction_read_only')
		else ` + roleSetting("default_transaction_read_only") + ` end, 'fsync', current_setting('fsync'),
		'synchronous_commit', ` + roleSetting("synchronous_commit") + `) as settings,
	array(select row_to_json(x) from (select quote_ident(g.tgname) as name, g.tgrelid::regclass::text as on, false as drops, g.tgtype & 4 <> 0 as insert
		from pg_trigger g where not g.tgisinternal and g.tgenabled not in ('D', 'R') and g.tgtype & 3 = 3 and g.tgtype & 20 <> 0 and (g.tgrelid = c.oid
			or c.relkind = 'p' and g.tgparentid = 0 and g.tgrelid in (select relid from pg_partition_tree(c.oid))) order by 1) x) as triggers,
	array(select quote_ident(rulename) from pg_rewrite where ev_class = c.oid and rulename <> '_RETURN' and ev_enabled not in ('D', 'R') and ev_type in ('2', '3') order by 1) as rules,
	coalesce(c.relkind in ('r', 'p') and row_security_active(c.oid), false) as row_security,
	array(select row_to_json(x) from (select o.relname as name, o.relkind as kind, coalesce(i.indrelid::regclass::text, '') as table,
		o.relnamespace::regnamespace::text || '.' || quote_ident(o.relname) as sql
		from pg_class o left join pg_index i on i.indexrelid = o.oid
		where o.relname in (select json_array_elements_text($3::text::json)) and i.indrelid is distinct from c.oid and o.oid is distinct from c.oid
		and o.relnamespace = coalesce(c.relnamespace, to_regnamespace(coalesce(nullif($2, ''), quote_ident(current_schema())))) order by 1) x) as taken,
	array(select row_to_json(x) from (select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type,
		not coalesce(l.collisdeterministic, true) as folds, a.attnotnull as not_null,
		a.atthasdef or a.attidentity <> '' as filled, a.attgenerated <> '' as generated, coalesce(pg_get_expr(d.adbin, d.adrelid), '') as default,
		(select row_to_json(q) from (select s.seqrelid::regclass::text as name, s.seqcache as cache, s.seqincrement as increment, s.seqcycle as cycle
			from pg_sequence s join pg_depend p on p.refclassid = 'pg_class'::regclass and p.classid = 'pg_attrdef'::regclass and p.objid = d.oid and p.refobjid = s.seqrelid
				or p.classid = 'pg_class'::regclass and p.objid = s.seqrelid and p.refclassid = 'pg_class'::regclass and p.refobjid = a.attrelid and p.refobjsubid = a.attnum and p.deptype = 'i'
			limit 1) q) as sequence,
		a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid) like 'nextval(%', false) as counted
		from pg_attribute a left join pg_collation l on l.oid = a.attcollation
		left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
		where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum) x) as columns,
	array(select row_to_json(x) from (select i.indexrelid::regclass::text as name,
		coalesce((select quote_ident(conname) from pg_constraint where conindid = i.indexrelid and conrelid = c.oid and contype in ('p', 'u')), '') as constraint,
		i.indisunique as unique, i.indisvalid as valid, not i.indimmediate as deferrable, i.indpred is not null as partial, coalesce(pg_get_expr(i.indpred, i.indrelid), '') as where,
		exists (select from unnest(i.indcollation::oid[]) o join pg_collation l on l.oid = o and not l.collisdeterministic) as folds,
		array(select coalesce(a.attname::text, '') from unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) with ordinality k (number, place)
			left join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number and k.number <> 0 order by place) as columns
		from pg_index i where i.indrelid = c.oid order by 1) x) as indexes,
	array(select row_to_json(x) from (select l.oid::regclass::text as name, coalesce(l.reloptions, '{}') as options, l.relpersistence <> 'p' as unlogged from pg_class l
		where l.oid = c.oid and c.relkind = 'r'
		or c.relkind = 'p' and l.oid in (select relid from pg_partition_tree(c.oid) where isleaf) order by 1) x) as storage
from (select case when $2 = '' or coalesce(has_schema_privilege(to_regnamespace($2)::oid, 'usage'), true) then to_regclass($1) end as oid, (
	select quote_ident(n.nspname) from pg_namespace n where not has_schema_privilege(n.oid, 'usage') and case when $2 <> '' then n.oid = to_regnamespace($2) else
		(n.nspname::text = any (string_to_array(replace(current_setting('search_path'), '"', ''), ', ')) or n.nspname = current_user)
		and exists (select from pg_class h where h.relnamespace = n.oid and h.relname = (parse_ident($1))[1]) end
	order by 1 limit 1) as hidden) wanted left join pg_class c on c.oid = wanted.oid
) answer`

func lookAtPostgres(ctx context.Context, ask Query, names *namer, t *table) (*seen, error) {
	var schema string
	if names.schema != "" {
		schema = quote(names.schema)
	}
	indexes, err := json.Marshal(names.suffixes(t))
	if err != nil {
		return nil, err
	}
	text, err := ask(ctx, postgresSQL, names.in(t.name), schema, string(indexes))
	if err != nil {
		return nil, err
	}
	var s seen
	return &s, json.Unmarshal([]byte(text), &s)
}
