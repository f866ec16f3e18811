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

// sqliteTable is what SQLite tells of the table and the connection.
type sqliteTable struct {
	Kind    string         `json:"kind"` // table, view, or empty
	Columns []sqliteColumn `json:"columns"`
	Indexes []sqliteIndex  `json:"indexes"` // unique ones only
	File    string         `json:"file"`    // empty for a database in memory
	Busy    int            `json:"busy"`    // busy_timeout in milliseconds
}

type sqliteColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

type sqliteIndex struct {
	Name    string            `json:"name"`
	Partial bool              `json:"partial"`
	Columns map[string]string `json:"columns"` // collation by name; an expression has the name ""
}

// sqliteCatalogueSQL takes the table's name, and answers with one JSON text.
const sqliteCatalogueSQL = `select json_object(
'kind', coalesce((select type from sqlite_schema where name = ?1 and type in ('table', 'view')), ''),
'columns', json((select json_group_array(json_object('name', name, 'type', type)) from pragma_table_xinfo(?1))),
'indexes', json((select json_group_array(json_object('name', l.name, 'partial', json(iif(l.partial, 'true', 'false')), 'columns', json((
	select json_group_object(coalesce(i.name, ''), i.coll) from pragma_index_xinfo(l.name) i where i.key))))
	from pragma_index_list(?1) l where l."unique")),
'file', (select coalesce(file, '') from pragma_database_list where name = 'main'),
'busy', (select timeout from pragma_busy_timeout))`

// Examine implements Dialect.
func (s *SQLite) Examine(ctx context.Context, ask Query) error {
	text, err := ask(ctx, sqliteCatalogueSQL, s.cfg.Table)
	if err != nil {
		return s.as(dedupstore.Unavailable, "look at the table %s: %w", s.cfg.tableSQL(), err)
	}
	var t sqliteTable
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("%s: look at the table %s: %w", s.store, s.cfg.tableSQL(), err)
	}
	return s.cannotBeUsed(s.problems(&t))
}

func (s *SQLite) problems(t *sqliteTable) []string {
	var list []string
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if t.Busy <= 0 {
		note("the connections do not wait for each other: set busy_timeout for each, by _pragma=busy_timeout(5000) in the DSN of modernc.org/sqlite")
	}
	switch t.Kind {
	case "table":
	case "":
		note("it does not exist; run:\n%s", s.cfg.createSQL(schema.SQLite))
		return list
	default:
		note("it is a %s, the record needs a table; move it away and run:\n%s", t.Kind, s.cfg.createSQL(schema.SQLite))
		return list
	}
	for _, problem := range slices.Concat(s.columnProblems(t), s.indexProblems(t)) {
		note("%s", problem)
	}
	return list
}

func (s *SQLite) columnProblems(t *sqliteTable) []string {
	var list []string
	for _, column := range sqliteColumns {
		i := slices.IndexFunc(t.Columns, func(c sqliteColumn) bool { return strings.EqualFold(c.Name, column.name) })
		switch {
		case i >= 0 && column.text && !hasTextAffinity(t.Columns[i].Type):
			list = append(list, fmt.Sprintf("its column %s is of type %s, which may take different ids for the same: make it text, in a new table", column.name, t.Columns[i].Type))
		case i < 0 && (column.name != "duplicates" || !s.cfg.DoNothing):
			list = append(list, fmt.Sprintf("its column %s is missing; "+column.remedy, column.name, s.cfg.tableSQL()))
		}
	}
	return list
}

func (s *SQLite) indexProblems(t *sqliteTable) []string {
	var list []string
	note := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, index := range t.Indexes {
		switch {
		case !index.ofTheKey():
		case index.folds():
			note("its unique index %s does not compare byte by byte, and takes different ids for the same: make a new table", quote(index.Name))
		case len(index.Columns) == 1:
			note("its unique index %s takes different events for the same: drop it; where it is a primary key, make a new table", quote(index.Name))
		}
	}
	if !slices.ContainsFunc(t.Indexes, sqliteIndex.arbiter) {
		note("it has no unique index on exactly (event_id, consumer_id); run: create unique index %s on %s (event_id, consumer_id);", quote(s.cfg.Table+"_key"), s.cfg.tableSQL())
	}
	return list
}

// sqliteColumns are those of package schema. SQLite adds no column whose default is an expression to a table.
var sqliteColumns = []struct {
	name, remedy string
	text         bool
}{
	{"event_id", "make a new table, %s cannot be altered that far", true},
	{"consumer_id", "make a new table, %s cannot be altered that far", true},
	{"processed_at", "run: alter table %s add column processed_at text;", false},
	{"duplicates", "run: alter table %s add column duplicates integer not null default 0;", false},
}

// hasTextAffinity follows SQLite's rules: other affinities make 1 of '01', or of '1e0'. A column of type blob, or of none, keeps
// what it gets.
func hasTextAffinity(typ string) bool {
	typ = strings.ToUpper(typ)
	if strings.Contains(typ, "INT") {
		return false
	}
	return typ == "" || strings.Contains(typ, "CHAR") || strings.Contains(typ, "CLOB") || strings.Contains(typ, "TEXT") || strings.Contains(typ, "BLOB")
}

// arbiter reports whether ON CONFLICT (event_id, consumer_id) takes the index.
func (i sqliteIndex) arbiter() bool { return !i.Partial && len(i.Columns) == 2 && i.ofTheKey() }

// ofTheKey reports whether the index has columns of the key only.
func (i sqliteIndex) ofTheKey() bool {
	for column := range i.Columns {
		if column != "event_id" && column != "consumer_id" {
			return false
		}
	}
	return true
}

// folds reports whether the index takes different texts for the same.
func (i sqliteIndex) folds() bool {
	for _, collation := range i.Columns {
		if collation != "BINARY" {
			return true
		}
	}
	return false
}
