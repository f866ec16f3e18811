package schema

import (
	"fmt"
	"slices"
	"strings"
)

// comparison of a table in a database with the files.
type comparison struct {
	table   *table
	seen    *seen
	dialect Dialect
	names   *namer
	cfg     *Config
	found   []Finding
}

func (c *comparison) sql() string { return c.names.in(c.table.name) }

// counts reports whether the record writes the column duplicates: it cannot in a partitioned table.
func (c *comparison) counts() bool { return c.table.component != Dedup || c.seen.Kind != "p" }

func (c *comparison) note(level Level, about, run, format string, args ...any) {
	c.found = append(c.found, Finding{Level: level, Component: c.table.component, Table: c.sql(), About: about, Says: fmt.Sprintf(format, args...), Run: run})
}

func (c *comparison) compare() {
	create := "\n" + c.dialect.SQL(c.cfg, c.table.component)
	switch {
	case !c.seen.Found && !c.seen.SchemaFound:
		c.note(LevelError, "table", "\ncreate schema "+quote(c.cfg.Schema)+";"+create, "it does not exist")
		return
	case !c.seen.Found:
		c.note(LevelError, "table", create, "it does not exist")
		return
	case c.seen.Kind != "r" && c.seen.Kind != "p":
		c.note(LevelError, "table", create, "it is %s, where a table is needed; move it away", kindName(c.seen.Kind))
		return
	case c.seen.Unlogged:
		c.note(LevelError, "table", "alter table "+c.sql()+" set logged;", "it is unlogged: a crash of the server empties it, and keeps the effects")
	}
	c.columns()
	c.keys()
	c.uniqueIndexes()
	c.indexes()
	c.storage()
	c.privileges()
}

func (c *comparison) columns() {
	for _, want := range c.table.columns {
		i := slices.IndexFunc(c.seen.Columns, func(s seenColumn) bool { return s.Name == want.name })
		switch {
		case i >= 0:
			c.column(want, c.seen.Columns[i])
		case want.name != "duplicates" || c.counts():
			c.missing(want)
		}
	}
	for _, column := range c.seen.Columns {
		ours := c.table.has(column.Name)
		if column.Counted && !c.countedByUs(column.Name) {
			c.note(LevelWarning, "column "+column.Name, "", "its column %s takes a number of a sequence for each duplicate too, and fails when it is at its end: leave it out", column.Name)
		}
		if !ours && column.NotNull && !column.Filled {
			c.note(LevelError, "column "+column.Name, fmt.Sprintf("alter table %s alter column %s drop not null;", c.sql(), quote(column.Name)),
				"its column %s must have a value, and einmal gives it none", column.Name)
		}
	}
}

func (c *comparison) countedByUs(name string) bool {
	i := slices.IndexFunc(c.table.columns, func(want column) bool { return want.name == name })
	return i >= 0 && (strings.Contains(c.table.columns[i].definition, "identity") || strings.Contains(c.table.columns[i].typ, "serial"))
}

// missing is about a column that is not there. SQLite adds none to a key, nor one whose default is an expression.
func (c *comparison) missing(want column) {
	definition := want.definition
	if c.dialect == SQLite {
		if c.table.inKey(want.name) {
			c.note(LevelError, "column "+want.name, "", "its column %s is missing; make a new table, %s cannot be altered that far", want.name, c.sql())
			return
		}
		if strings.Contains(definition, "default (") {
			definition = want.typ
		}
	}
	c.note(LevelError, "column "+want.name, fmt.Sprintf("alter table %s add column %s %s;", c.sql(), want.name, definition), "its column %s is missing", want.name)
}

// column looks at the type of a column that is there. char(n) drops blanks, name cuts off, citext and nondeterministic
// collations fold, numbers have several texts: ids that one of them takes for one another would be lost.
func (c *comparison) column(want column, is seenColumn) {
	inKey := want.typ == "text" && c.table.inKey(want.name)
	switch {
	case inKey && c.dialect == SQLite:
		if !hasTextAffinity(is.Type) {
			c.note(LevelError, "column "+want.name, "", "its column %s is of type %s, which may take different ids for the same: make it text, in a new table", want.name, is.Type)
		}
	case inKey:
		if is.Folds || is.Type != "text" && is.Type != "uuid" && !strings.HasPrefix(is.Type, "character varying") {
			c.note(LevelError, "column "+want.name, fmt.Sprintf(`alter table %s alter column %s type text collate "C";`, c.sql(), want.name),
				"its column %s %s may take different ids for the same", want.name, is.Type)
		}
	case c.dialect == Postgres && is.Type != typeName(want.typ):
		c.note(LevelWarning, "column "+want.name, "", "its column %s is of type %s, and %s in the files", want.name, is.Type, want.typ)
	}
}

// typeName is a type's name as the catalogue spells it.
func typeName(typ string) string {
	if typ == "timestamptz" {
		return "timestamp with time zone"
	}
	return typ
}

// keys looks for the unique indexes that ON CONFLICT needs.
func (c *comparison) keys() {
	for _, key := range c.table.keys {
		for _, i := range c.seen.Indexes {
			if i.Unique && i.Deferrable && len(i.Columns) == len(key) && i.covers(key) {
				c.note(LevelError, "index", fmt.Sprintf("alter table %s drop constraint %s;", c.sql(), i.Constraint),
					"its unique constraint %s is deferrable, which ON CONFLICT cannot use", i.Constraint)
			}
		}
		if slices.ContainsFunc(c.seen.Indexes, func(i seenIndex) bool { return i.arbiter(key) }) {
			continue
		}
		name := ""
		if c.dialect == SQLite {
			name = " " + quote(suffixed(orElse(c.names.other[c.table.name], c.table.name), "_"+strings.Join(key, "_")+"_key"))
		}
		columns := strings.Join(key, ", ")
		c.note(LevelError, "index", fmt.Sprintf("create unique index%s on %s (%s);", name, c.sql(), columns), "it has no unique index on exactly (%s)", columns)
	}
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
		case i.Folds && ofKeys && !c.foldsItself(i): // else the column's type is to be changed, and takes the index with it
			c.note(LevelError, "index", c.drop(i), "its unique index %s does not compare byte by byte, and takes different events for the same", i.Name)
		case slices.ContainsFunc(c.table.keys, i.arbiter):
			if arbiters[columns] {
				c.note(LevelWarning, "index", c.drop(i), "its unique index %s is there twice: each row is written to both", i.Name)
			}
			arbiters[columns] = true
		case ofKeys && !slices.ContainsFunc(c.table.keys, i.covers):
			c.note(LevelError, "index", c.drop(i), "its unique index %s takes different events for the same%s", i.Name, c.whereConstraint())
		case !c.ownNumbers(i):
			c.note(LevelWarning, "index", c.drop(i), "its unique index %s is one that ON CONFLICT does not look at: what is there already fails%s", i.Name, c.whereConstraint())
		}
	}
}

// foldsItself reports whether it is a column of the index that folds, and not the index alone.
func (c *comparison) foldsItself(i seenIndex) bool {
	return slices.ContainsFunc(c.seen.Columns, func(column seenColumn) bool { return column.Folds && i.mentions(column.Name) })
}

// ownNumbers reports whether the index is of a column that fills itself, and so never has a value twice.
func (c *comparison) ownNumbers(i seenIndex) bool {
	return slices.ContainsFunc(c.seen.Columns, func(column seenColumn) bool {
		return column.Filled && i.mentions(column.Name) && !c.table.has(column.Name)
	})
}

func (c *comparison) drop(i seenIndex) string {
	switch {
	case c.dialect == SQLite:
		return ""
	case i.Constraint != "":
		return fmt.Sprintf("alter table %s drop constraint %s;", c.sql(), i.Constraint)
	}
	return fmt.Sprintf("drop index %s;", i.Name)
}

func (c *comparison) whereConstraint() string {
	if c.dialect == SQLite {
		return ": drop it; where it is a primary key, make a new table"
	}
	return ""
}

func (c *comparison) indexes() {
	for _, want := range c.table.indexes {
		if !slices.ContainsFunc(c.seen.Indexes, func(i seenIndex) bool { return i.beginsWith(want.columns) }) {
			c.note(LevelWarning, "index", c.names.in(want.sql)+";", "it has no index on (%s)", strings.Join(want.columns, ", "))
		}
	}
}

func (c *comparison) storage() {
	for _, part := range c.seen.Storage {
		set := map[string]string{}
		for _, text := range part.Options {
			name, value, _ := strings.Cut(text, "=")
			set[name] = value
		}
		if slices.Contains([]string{"false", "off", "no", "0"}, set["autovacuum_enabled"]) {
			c.note(LevelWarning, "option autovacuum_enabled", fmt.Sprintf("alter table %s reset (autovacuum_enabled);", part.Name), "autovacuum is off for %s: it grows with each redelivery and deletion", part.Name)
		}
		for _, want := range c.table.options {
			if _, ok := set[want.name]; !ok {
				c.note(LevelWarning, "option "+want.name, fmt.Sprintf("alter table %s set (%s = %s);", part.Name, want.name, want.value), "%s has no %s of its own, the files have %s", part.Name, want.name, want.value)
			}
		}
	}
}

// privileges looks at what the user that asks may do. The stores need no delete, what cleans up does.
func (c *comparison) privileges() {
	for _, privilege := range c.seen.Missing {
		grant := fmt.Sprintf("grant %s on %s to %s;", privilege, c.sql(), c.seen.User)
		switch {
		case privilege == "delete":
			c.note(LevelWarning, "privilege delete", grant, "the user %s may not delete, which a clean-up needs", c.seen.User)
		case privilege != "update" || c.counts():
			c.note(LevelError, "privilege "+privilege, grant, "the user %s may not %s", c.seen.User, privilege)
		}
	}
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
