package schema

import (
	"fmt"
	"slices"
	"strings"
)

// keys looks for the unique indexes that ON CONFLICT needs.
func (c *comparison) keys() {
	for _, key := range c.table.keys {
		if !c.hasIndex(key) {
			name := ""
			if c.dialect == SQLite {
				name = " " + quote(suffixed(orElse(c.names.other[c.table.name], c.table.name), "_"+strings.Join(key, "_")+"_key"))
			}
			columns := strings.Join(key, ", ")
			c.note(LevelError, "index", fmt.Sprintf("create unique index%s on %s (%s);", name, c.sql(), columns),
				"it has no unique index on exactly (%s)", columns)
		}
		for _, i := range c.seen.Indexes { // behind that: while it is dropped there must be another one
			if i.Unique && i.Deferrable && len(i.Columns) == len(key) && i.covers(key) {
				c.note(LevelError, "index", c.drop(i), "its unique constraint %s is deferrable, which ON CONFLICT cannot use",
					i.Constraint)
			}
		}
	}
}

// hasIndex reports whether the table has an index for a key that is not to be dropped.
func (c *comparison) hasIndex(key []string) bool {
	return slices.ContainsFunc(c.seen.Indexes, func(i seenIndex) bool {
		return i.arbiter(key) && (!i.Folds || c.dialect == SQLite || c.foldsItself(i)) // SQLite needs a new table then
	})
}

func orElse(name, otherwise string) string {
	if name != "" {
		return name
	}
	return otherwise
}

// uniqueIndexes looks at those that the files do not have.
func (c *comparison) uniqueIndexes() {
	arbiters := map[string]bool{}
	for _, i := range c.seen.Indexes {
		ofKeys := !slices.ContainsFunc(i.Columns, func(column string) bool { return column != "" && !c.table.inKey(column) })
		switch columns := strings.Join(slices.Sorted(slices.Values(i.Columns)), ", "); {
		case !i.Unique || i.Deferrable:
		case !i.Valid:
			c.note(LevelWarning, "index", c.drop(i),
				"its unique index %s is invalid, as one is that CREATE INDEX CONCURRENTLY has not finished: rows are written to it for nothing", i.Name)
		case i.Folds && ofKeys && !c.foldsItself(i): // else the column's type is to be changed, and takes the index with it
			c.note(LevelError, "index", c.drop(i),
				"its unique index %s does not compare byte by byte, and takes different events for the same", i.Name)
		case slices.ContainsFunc(c.table.keys, i.arbiter):
			if arbiters[columns] {
				c.note(LevelWarning, "index", c.drop(i), "its unique index %s is there twice: each row is written to both", i.Name)
			}
			arbiters[columns] = true
		case ofKeys && !slices.ContainsFunc(c.table.keys, i.covers):
			c.note(LevelError, "index", c.drop(i), "its unique index %s takes different events for the same%s", i.Name,
				c.whereConstraint())
		case !c.ownNumbers(i):
			c.note(LevelWarning, "index", c.drop(i),
				"its unique index %s is one that ON CONFLICT does not look at: what is there already fails%s", i.Name,
				c.whereConstraint())
		}
	}
}

// foldsItself reports whether it is a column of the index that folds, and not the index alone.
func (c *comparison) foldsItself(i seenIndex) bool {
	return slices.ContainsFunc(c.seen.Columns, func(column seenColumn) bool {
		return column.Folds &&
			i.mentions(column.Name)
	})
}

// ownNumbers reports whether the index is of a column that fills itself, and so never has a value twice.
func (c *comparison) ownNumbers(i seenIndex) bool {
	return slices.ContainsFunc(c.seen.Columns, func(column seenColumn) bool {
		return column.Filled && i.mentions(column.Name) && !c.table.has(column.Name)
	})
}

// drop is safe by itself: where the table lacks the index that its rows need, it is one statement that drops nothing
// before there is one, whatever became of the statement that creates it.
func (c *comparison) drop(i seenIndex) string {
	if c.dialect == SQLite {
		return ""
	}
	text := fmt.Sprintf("drop index %s;", i.Name)
	if i.Constraint != "" {
		text = fmt.Sprintf("alter table %s drop constraint %s;", c.sql(), i.Constraint)
	}
	for _, key := range c.table.keys {
		if !c.hasIndex(key) {
			columns := slices.Sorted(slices.Values(key))
			for i, column := range columns {
				columns[i] = literal(column)
			}
			return fmt.Sprintf(dropSQL, literal(c.sql()), len(key), strings.Join(columns, ", "), text, strings.Join(key, ", "),
				literal(i.Name))
		}
	}
	return text
}

// dropSQL takes the table, the columns of a key, what to run, the key, and the index that is dropped. It is one
// statement on one line.
const dropSQL = `do $einmal$ begin if exists (select from pg_index i where i.indrelid = %[1]s::regclass and i.indexrelid <> %[6]s::regclass and i.indisunique and i.indisvalid and i.indimmediate ` +
	`and i.indpred is null and i.indnkeyatts = %[2]d and array(select a.attname::text from pg_attribute a where a.attrelid = i.indrelid ` +
	`and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1]) order by 1) = array[%[3]s]) then %[4]s ` +
	`else raise exception 'create the unique index on (%[5]s) first'; end if; end $einmal$;`

// literal is a text as it stands in SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (c *comparison) whereConstraint() string {
	if c.dialect == SQLite {
		return ": drop it; where it is a primary key, make a new table"
	}
	return ""
}

func (c *comparison) indexes() {
	for _, want := range c.table.indexes {
		if slices.ContainsFunc(c.seen.Indexes, func(i seenIndex) bool {
			return i.beginsWith(want.columns) &&
				i.sameCondition(want.where)
		}) {
			continue
		}
		level, about := LevelWarning, "("+strings.Join(want.columns, ", ")+")"
		if want.where != "" {
			about += " where " + want.where
		}
		if c.table.component == Outbox && want.columns[0] == "bucket" { // without it, a relay reads all rows for each batch
			level = LevelError
		}
		c.note(level, "index", c.renames()+c.names.in(want.sql)+";", "it has no index on %s", about)
	}
}
