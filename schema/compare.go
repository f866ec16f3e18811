package schema

import (
	"fmt"
	"slices"
	"strconv"
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
	create := "\n" + c.renames() + c.dialect.SQL(c.cfg, c.table.component)
	switch {
	case !c.seen.Found && !c.seen.SchemaFound:
		c.note(LevelError, "table", "\ncreate schema "+quote(c.cfg.Schema)+";"+create, "it does not exist")
		return
	case !c.seen.Found && c.seen.Hidden != "":
		c.note(LevelError, "privilege usage", fmt.Sprintf("grant usage on schema %s to %s;", c.seen.Hidden, c.seen.User), "the user %s may not look into the schema %s, in which it is, or should be", c.seen.User, c.seen.Hidden)
		return
	case !c.seen.Found:
		for _, taken := range c.seen.Taken {
			c.note(LevelError, "name "+taken.Name, c.rename(taken), "the name %s, which it needs, is that of %s: creating it fails", taken.Name, taken.what())
		}
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
	c.interference()
	c.privileges()
}

// rename gives what has a name of ours another one.
func (c *comparison) rename(taken seenName) string {
	kind := "table"
	switch taken.Kind {
	case "i", "I":
		kind = "index"
	case "S":
		kind = "sequence"
	case "v":
		kind = "view"
	}
	return fmt.Sprintf("alter %s %s rename to %s;", kind, taken.SQL, quote(suffixed("old_"+taken.Name, "")))
}

func (c *comparison) renames() (text string) {
	for _, taken := range c.seen.Taken {
		text += c.rename(taken) + "\n"
	}
	return text
}

func (n seenName) what() string {
	if n.Table != "" {
		return "an index of " + n.Table
	}
	return "something else"
}

// interference looks at what comes between a statement and the table.
func (c *comparison) interference() {
	for _, rule := range c.seen.Rules {
		c.note(LevelError, "rule", fmt.Sprintf("drop rule %s on %s;", rule, c.sql()), "its rule %s rewrites what is inserted or updated, and ON CONFLICT fails", rule)
	}
	for _, trigger := range c.seen.Triggers {
		level, says := LevelWarning, "its trigger %s runs before each row is written: where it leaves a row out, or changes it, the event is refused"
		if trigger.Drops {
			level, says = LevelError, "its trigger %s leaves rows out (RAISE(IGNORE)): drop it"
		}
		c.note(level, "trigger", "", says, trigger.Name)
	}
	if c.seen.RowSecurity {
		c.note(LevelWarning, "row security", "", "row-level security decides which rows the user %s sees and writes: what a policy refuses fails, and what it hides is not deleted", c.seen.User)
	}
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
	c.preset(want, is)
	c.sequence(want, is)
	if c.dialect == SQLite {
		if want.typ == "text" && c.table.inKey(want.name) && !hasTextAffinity(is.Type) {
			c.note(LevelError, "column "+want.name, "", "its column %s is of type %s, which may take different ids for the same: make it text, in a new table", want.name, is.Type)
		}
		return
	}
	c.typed(want, is)
}

// typed looks at a type of PostgreSQL.
func (c *comparison) typed(want column, is seenColumn) {
	varchar := strings.HasPrefix(is.Type, "character varying")
	switch {
	case want.typ == "text" && tooShort(want.name, is.Type):
		c.note(LevelError, "column "+want.name, fmt.Sprintf(`alter table %s alter column %s type text collate "C";`, c.sql(), want.name),
			"its column %s is of type %s: longer values are refused, and blanks at their end are cut off, so that two ids become one", want.name, is.Type)
	case want.typ == "text" && c.table.inKey(want.name):
		if is.Folds || is.Type != "text" && is.Type != "uuid" && !varchar {
			c.note(LevelError, "column "+want.name, fmt.Sprintf(`alter table %s alter column %s type text collate "C";`, c.sql(), want.name),
				"its column %s %s may take different ids for the same", want.name, is.Type)
		}
	case want.typ == "text" && varchar:
	case is.Type != typeName(want.typ):
		c.note(LevelWarning, "column "+want.name, "", "its column %s is of type %s, and %s in the files", want.name, is.Type, want.typ)
	}
}

// longest are the most bytes that values have: dedupstore.MaxEventLen and MaxConsumerLen, and Kafka's limit for topics.
var longest = map[string]int{"event_id": 1024, "consumer_id": 512, "topic": 249, "status": 10, "mode": 12, "scope": 200, "key": 255}

// tooShort reports whether a type, as the catalogue spells it, does not take all values of a column.
func tooShort(column, typ string) bool {
	text, ok := strings.CutPrefix(typ, "character varying(")
	if !ok {
		return false
	}
	length, err := strconv.Atoi(strings.TrimSuffix(text, ")"))
	least, known := longest[column]
	return err != nil || !known || length < least
}

// leftOut are the columns that no INSERT of einmal's names.
var leftOut = map[string][]string{
	"processed_event": {"processed_at", "duplicates"},
	"dead_message":    {"id", "died_at", "redrives", "redrive_error"},
	"started_message": {"starts", "started_at"},
	"outbox_event":    {"id", "created_at", "bucket", "status", "attempts", "claims"},
	"outbox_lease":    {"epoch", "leased_until"},
	"outbox_mode":     {"only_row"},
	"idempotency_key": {"created_at"},
}

// preset looks at the default of a column that einmal leaves out.
func (c *comparison) preset(want column, is seenColumn) {
	unused := want.name == "duplicates" && !c.counts() && !is.NotNull
	if !slices.Contains(leftOut[c.table.name], want.name) || unused {
		return
	}
	set := c.setDefault(want)
	isTime := strings.Contains(want.preset, "clock_timestamp") || strings.Contains(want.preset, "strftime")
	switch {
	case !is.Filled:
		c.unfilled(want, is, set, isTime)
	case isTime && !c.isPresent(is):
		c.note(LevelWarning, "column "+want.name, set, "its column %s has the default %s, which may not be the time in UTC: rows are deleted too early, or never", want.name, is.Default)
	case strings.Contains(want.definition, "always as (") && !is.Generated:
		c.note(LevelError, "column "+want.name, "", "its column %s is not generated from the others, by which rows of a key are kept together: make the table anew", want.name)
	case isPlain(want.preset) && !is.Generated && plain(is.Default) != plain(want.preset):
		c.note(LevelError, "column "+want.name, set, "its column %s has the default %s, and %s in the files", want.name, is.Default, want.preset)
	}
}

// setDefault is the statement that gives a column its default, where there is one.
func (c *comparison) setDefault(want column) string {
	if c.dialect != Postgres || want.preset == "" {
		return ""
	}
	return fmt.Sprintf("alter table %s alter column %s set default %s;", c.sql(), want.name, want.preset)
}

// unfilled is about a column that has no default, and is given no value.
func (c *comparison) unfilled(want column, is seenColumn, set string, isTime bool) {
	switch {
	case is.NotNull:
		c.note(LevelError, "column "+want.name, set, "its column %s must have a value, has no default, and einmal gives it none", want.name)
	case isTime:
		c.note(LevelWarning, "column "+want.name, set, "its column %s has no default: rows without a time are never deleted", want.name)
	default:
		c.note(LevelError, "column "+want.name, set, "its column %s has no default: it stays null, which is no number", want.name)
	}
}

// isPresent reports whether a default is the time, as the janitor understands it.
func (c *comparison) isPresent(is seenColumn) bool {
	text := strings.ToLower(strings.Join(strings.Fields(is.Default), ""))
	for strings.HasPrefix(text, "(") && strings.HasSuffix(text, ")") {
		text = text[1 : len(text)-1]
	}
	if c.dialect == SQLite {
		return slices.Contains([]string{"strftime('%y-%m-%dt%h:%m:%fz','now')", "datetime('now')", "datetime()", "current_timestamp"}, text)
	}
	inUTC := strings.NewReplacer("timezone('utc'::text,", "", "attimezone'utc'::text", "").Replace(text)
	if inUTC != text && is.Type == "timestamp with time zone" { // off by the zone of the session
		return false
	}
	inUTC = strings.NewReplacer("::timestampwithtimezone", "", "::timestampwithouttimezone", "", "(", "", ")", "").Replace(inUTC)
	return slices.Contains([]string{"clock_timestamp", "now", "current_timestamp", "statement_timestamp", "transaction_timestamp"}, inUTC)
}

// isPlain reports whether a default of the files is a number or a text without a cast.
func isPlain(preset string) bool {
	return preset == "0" || preset == "1" || preset == "'PENDING'"
}

// plain is a constant without the cast that the catalogue adds.
func plain(text string) string {
	text, _, _ = strings.Cut(strings.Trim(text, "()"), "::")
	return text
}

// sequence looks at what draws the numbers of the outbox's rows, whose order is that in which they were drawn.
func (c *comparison) sequence(want column, is seenColumn) {
	seq := is.Sequence
	if c.table.component != Outbox || want.name != "id" || seq.Name == "" {
		return
	}
	run := fmt.Sprintf("alter sequence %s increment 1 cache 1 no cycle;", seq.Name)
	switch {
	case seq.Cache > 1:
		c.note(LevelError, "sequence", run, "each session draws %d numbers of its sequence %s at once (CACHE): a later row gets a lower number, and overtakes", seq.Cache, seq.Name)
	case seq.Increment < 0 || seq.Cycle:
		c.note(LevelError, "sequence", run, "its sequence %s counts down, or begins again: a later row gets a lower number, and overtakes", seq.Name)
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
		if !c.hasIndex(key) {
			name := ""
			if c.dialect == SQLite {
				name = " " + quote(suffixed(orElse(c.names.other[c.table.name], c.table.name), "_"+strings.Join(key, "_")+"_key"))
			}
			columns := strings.Join(key, ", ")
			c.note(LevelError, "index", fmt.Sprintf("create unique index%s on %s (%s);", name, c.sql(), columns), "it has no unique index on exactly (%s)", columns)
		}
		for _, i := range c.seen.Indexes { // behind that: while it is dropped there must be another one
			if i.Unique && i.Deferrable && len(i.Columns) == len(key) && i.covers(key) {
				c.note(LevelError, "index", c.drop(i), "its unique constraint %s is deferrable, which ON CONFLICT cannot use", i.Constraint)
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
			c.note(LevelWarning, "index", c.drop(i), "its unique index %s is invalid, as one is that CREATE INDEX CONCURRENTLY has not finished: rows are written to it for nothing", i.Name)
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

// drop is safe by itself: where the table lacks the index that its rows need, it is one statement that drops nothing before there is
// one, whatever became of the statement that creates it.
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
			return fmt.Sprintf(dropSQL, literal(c.sql()), len(key), strings.Join(columns, ", "), text, strings.Join(key, ", "), literal(i.Name))
		}
	}
	return text
}

// dropSQL takes the table, the columns of a key, what to run, the key, and the index that is dropped. It is one statement on one line.
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
		if slices.ContainsFunc(c.seen.Indexes, func(i seenIndex) bool { return i.beginsWith(want.columns) && i.sameCondition(want.where) }) {
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

func (c *comparison) storage() {
	for _, part := range c.seen.Storage {
		if part.Unlogged && !c.seen.Unlogged {
			c.note(LevelError, "table", "alter table "+part.Name+" set logged;", "its partition %s is unlogged: a crash of the server empties it, and keeps the effects", part.Name)
		}
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
	if needed, all := c.cfg.needed(c.table.name); !all {
		c.missingFor(needed)
		return
	}
	for _, privilege := range c.seen.Missing {
		grant := fmt.Sprintf("grant %s on %s to %s;", privilege, c.sql(), c.seen.User)
		switch {
		case privilege == "delete" && c.table.name != "outbox_event":
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
