package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
			c.note(LevelWarning, "column "+column.Name, "",
				"its column %s takes a number of a sequence for each duplicate too, and fails when it is at its end: leave it out",
				column.Name)
		}
		if !ours && column.NotNull && !column.Filled {
			c.note(LevelError, "column "+column.Name, fmt.Sprintf("alter table %s alter column %s drop not null;", c.sql(),
				quote(column.Name)),
				"its column %s must have a value, and einmal gives it none", column.Name)
		}
	}
}

func (c *comparison) countedByUs(name string) bool {
	i := slices.IndexFunc(c.table.columns, func(want column) bool { return want.name == name })
	return i >= 0 && (strings.Contains(c.table.columns[i].definition, "identity") ||
		strings.Contains(c.table.columns[i].typ, "serial"))
}

// missing is about a column that is not there. SQLite adds none to a key, nor one whose default is an expression.
func (c *comparison) missing(want column) {
	definition := want.definition
	if c.dialect == SQLite {
		if c.table.inKey(want.name) {
			c.note(LevelError, "column "+want.name, "",
				"its column %s is missing; make a new table, %s cannot be altered that far", want.name, c.sql())
			return
		}
		if strings.Contains(definition, "default (") {
			definition = want.typ
		}
	}
	c.note(LevelError, "column "+want.name, fmt.Sprintf("alter table %s add column %s %s;", c.sql(), want.name,
		definition), "its column %s is missing", want.name)
}

// column looks at the type of a column that is there. char(n) drops blanks, name cuts off, citext and nondeterministic
// collations fold, numbers have several texts: ids that one of them takes for one another would be lost.
func (c *comparison) column(want column, is seenColumn) {
	c.preset(want, is)
	c.sequence(want, is)
	if c.dialect == SQLite {
		if want.typ == "text" && c.table.inKey(want.name) && !hasTextAffinity(is.Type) {
			c.note(LevelError, "column "+want.name, "",
				"its column %s is of type %s, which may take different ids for the same: make it text, in a new table", want.name,
				is.Type)
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
		c.note(LevelError, "column "+want.name, fmt.Sprintf(`alter table %s alter column %s type text collate "C";`, c.sql(),
			want.name),
			"its column %s is of type %s: longer values are refused, and blanks at their end are cut off, so that two ids become one", want.name, is.Type)
	case want.typ == "text" && c.table.inKey(want.name):
		if is.Folds || is.Type != "text" && is.Type != "uuid" && !varchar {
			c.note(LevelError, "column "+want.name, fmt.Sprintf(`alter table %s alter column %s type text collate "C";`, c.sql(),
				want.name),
				"its column %s %s may take different ids for the same", want.name, is.Type)
		}
	case want.typ == "text" && varchar:
	case is.Type != typeName(want.typ):
		c.note(LevelWarning, "column "+want.name, "", "its column %s is of type %s, and %s in the files", want.name, is.Type,
			want.typ)
	}
}

// longest are the most bytes that values have: dedupstore.MaxEventLen and MaxConsumerLen, and Kafka's limit for topics.
var longest = map[string]int{"event_id": 1024, "consumer_id": 512, "topic": 249, "status": 10, "mode": 12, "scope": 200,
	"key": 255}

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
	"console_action":  {"id", "begun_at", "error"},
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
		c.note(LevelWarning, "column "+want.name, set,
			"its column %s has the default %s, which may not be the time in UTC: rows are deleted too early, or never",
			want.name, is.Default)
	case strings.Contains(want.definition, "always as (") && !is.Generated:
		c.note(LevelError, "column "+want.name, "",
			"its column %s is not generated from the others, by which rows of a key are kept together: make the table anew",
			want.name)
	case isPlain(want.preset) && !is.Generated && plain(is.Default) != plain(want.preset):
		c.note(LevelError, "column "+want.name, set, "its column %s has the default %s, and %s in the files", want.name,
			is.Default, want.preset)
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
		c.note(LevelError, "column "+want.name, set,
			"its column %s must have a value, has no default, and einmal gives it none", want.name)
	case isTime:
		c.note(LevelWarning, "column "+want.name, set, "its column %s has no default: rows without a time are never deleted",
			want.name)
	default:
		c.note(LevelError, "column "+want.name, set, "its column %s has no default: it stays null, which is no number",
			want.name)
	}
}

// isPresent reports whether a default is the time, as the janitor understands it.
func (c *comparison) isPresent(is seenColumn) bool {
	text := strings.ToLower(strings.Join(strings.Fields(is.Default), ""))
	for strings.HasPrefix(text, "(") && strings.HasSuffix(text, ")") {
		text = text[1 : len(text)-1]
	}
	if c.dialect == SQLite {
		return slices.Contains([]string{"strftime('%y-%m-%dt%h:%m:%fz','now')", "datetime('now')", "datetime()",
			"current_timestamp"}, text)
	}
	inUTC := strings.NewReplacer("timezone('utc'::text,", "", "attimezone'utc'::text", "").Replace(text)
	if inUTC != text && is.Type == "timestamp with time zone" { // off by the zone of the session
		return false
	}
	inUTC = strings.NewReplacer("::timestampwithtimezone", "", "::timestampwithouttimezone", "", "(", "", ")",
		"").Replace(inUTC)
	return slices.Contains([]string{"clock_timestamp", "now", "current_timestamp", "statement_timestamp",
		"transaction_timestamp"}, inUTC)
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
		c.note(LevelError, "sequence", run,
			"each session draws %d numbers of its sequence %s at once (CACHE): a later row gets a lower number, and overtakes",
			seq.Cache, seq.Name)
	case seq.Increment < 0 || seq.Cycle:
		c.note(LevelError, "sequence", run,
			"its sequence %s counts down, or begins again: a later row gets a lower number, and overtakes", seq.Name)
	}
}

// typeName is a type's name as the catalogue spells it.
func typeName(typ string) string {
	if typ == "timestamptz" {
		return "timestamp with time zone"
	}
	return typ
}
