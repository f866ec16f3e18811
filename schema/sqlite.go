package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
)

// sqliteSQL takes the table's name. A table's integer primary key is its row's number, and has no index.
const sqliteSQL = `select json_object(
'found', json(iif(exists (select 1 from sqlite_schema where name = ?1 and type in ('table', 'view')), 'true', 'false')),
'schema_found', json('true'),
'kind', (select iif(type = 'table', 'r', 'v') from sqlite_schema where name = ?1 and type in ('table', 'view')),
'triggers', json((select json_group_array(json_object('name', '"' || replace(name, '"', '""') || '"', 'on', tbl_name, 'insert', json('true'),
	'drops', json(iif(upper(sql) glob '*RAISE*(*IGNORE*', 'true', 'false'))))
	from sqlite_schema where type = 'trigger' and tbl_name = ?1 collate nocase and upper(sql) glob '*BEFORE*INSERT*')),
'columns', json((select json_group_array(json_object('name', name, 'type', type,
	'not_null', json(iif("notnull", 'true', 'false')),
	'default', coalesce(dflt_value, ''), 'generated', json(iif(hidden in (2, 3), 'true', 'false')),
	'filled', json(iif(coalesce(dflt_value, 'null') <> 'null' collate nocase or hidden or pk and type = 'INTEGER' collate nocase, 'true', 'false')))) from pragma_table_xinfo(?1))),
'indexes', json((select json_group_array(json_object('name', '"' || replace(l.name, '"', '""') || '"',
	'unique', json(iif(l."unique", 'true', 'false')), 'valid', json('true'), 'partial', json(iif(l.partial, 'true', 'false')),
	'folds', json(iif(exists (select 1 from pragma_index_xinfo(l.name) x where x.key and x.coll <> 'BINARY'), 'true', 'false')),
	'triggers', json((select json_group_array(json_object('name', '"' || replace(name, '"', '""') || '"', 'on', tbl_name, 'insert', json('true'),
	'drops', json(iif(upper(sql) glob '*RAISE*(*IGNORE*', 'true', 'false'))))
	from sqlite_schema where type = 'trigger' and tbl_name = ?1 collate nocase and upper(sql) glob '*BEFORE*INSERT*')),
'columns', json((select json_group_array(coalesce(i.name, '')) from (select name, key from pragma_index_xinfo(l.name) order by seqno) i where i.key))))
	from pragma_index_list(?1) l)),
'row_number', (select name from pragma_table_xinfo(?1) where pk and type = 'INTEGER' collate nocase
	and not exists (select 1 from pragma_index_list(?1) where origin = 'pk')))`

func lookAtSQLite(ctx context.Context, ask Query, names *namer, t *table) (*seen, error) {
	text, err := ask(ctx, sqliteSQL, cmp.Or(names.other[t.name], t.name))
	if err != nil {
		return nil, err
	}
	var s struct {
		seen
		RowNumber string `json:"row_number"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	if s.RowNumber != "" {
		s.Indexes = append(s.Indexes, seenIndex{Name: "primary key", Unique: true, Valid: true,
			Columns: []string{s.RowNumber}})
	}
	for i, c := range s.Columns { // SQLite does not care for the case of names
		s.Columns[i].Name = strings.ToLower(c.Name)
	}
	return &s.seen, nil
}

// hasTextAffinity follows SQLite's rules: other affinities make 1 of '01', or of '1e0'. A column of type blob, or of
// none, keeps what it gets.
func hasTextAffinity(typ string) bool {
	typ = strings.ToUpper(typ)
	if strings.Contains(typ, "INT") {
		return false
	}
	return typ == "" || strings.Contains(typ, "CHAR") || strings.Contains(typ, "CLOB") || strings.Contains(typ, "TEXT") ||
		strings.Contains(typ, "BLOB")
}
