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
	c.found = append(c.found, Finding{Level: level, Component: c.table.component, Table: c.sql(), About: about,
		Says: fmt.Sprintf(format, args...), Run: run})
}

// noteFile notes that a table is missing. The file that creates it is much for a line of a log: there the command
// stands that prints it.
func (c *comparison) noteFile(run, brief, format string, args ...any) {
	c.note(LevelError, "table", "\n"+run, format, args...)
	c.found[len(c.found)-1].brief = brief + c.printedBy()
}

func (c *comparison) compare() {
	create := c.renames() + c.dialect.SQL(c.cfg, c.table.component)
	switch {
	case !c.seen.Found && !c.seen.SchemaFound:
		first := "create schema " + quote(c.cfg.Schema) + ";"
		c.noteFile(first+"\n"+create, first+" and then what this prints: ", "it does not exist")
		return
	case !c.seen.Found && c.seen.Hidden != "":
		c.note(LevelError, "privilege usage", fmt.Sprintf("grant usage on schema %s to %s;", c.seen.Hidden, c.seen.User),
			"the user %s may not look into the schema %s, in which it is, or should be", c.seen.User, c.seen.Hidden)
		return
	case !c.seen.Found:
		for _, taken := range c.seen.Taken {
			c.note(LevelError, "name "+taken.Name, c.rename(taken),
				"the name %s, which it needs, is that of %s: creating it fails", taken.Name, taken.what())
		}
		c.noteFile(create, "what this prints: ", "it does not exist")
		return
	case c.seen.Kind != "r" && c.seen.Kind != "p":
		c.noteFile(create, "what this prints: ", "it is %s, where a table is needed; move it away", kindName(c.seen.Kind))
		return
	case c.seen.Unlogged:
		c.note(LevelError, "table", "alter table "+c.sql()+" set logged;",
			"it is unlogged: a crash of the server empties it, and keeps the effects")
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
		c.note(LevelError, "rule", fmt.Sprintf("drop rule %s on %s;", rule, c.sql()),
			"its rule %s rewrites what is inserted or updated, and ON CONFLICT fails", rule)
	}
	for _, trigger := range c.seen.Triggers {
		level, says := LevelWarning, "its trigger %s runs before each row is written: where it leaves a row out, or changes it, the event is refused"
		if trigger.Drops {
			level, says = LevelError, "its trigger %s leaves rows out (RAISE(IGNORE)): drop it"
		}
		c.note(level, "trigger", "", says, trigger.Name)
	}
	if c.seen.RowSecurity {
		c.note(LevelWarning, "row security", "",
			"row-level security decides which rows the user %s sees and writes: what a policy refuses fails, and what it hides is not deleted", c.seen.User)
	}
}

func (c *comparison) storage() {
	for _, part := range c.seen.Storage {
		if part.Unlogged && !c.seen.Unlogged {
			c.note(LevelError, "table", "alter table "+part.Name+" set logged;",
				"its partition %s is unlogged: a crash of the server empties it, and keeps the effects", part.Name)
		}
		set := map[string]string{}
		for _, text := range part.Options {
			name, value, _ := strings.Cut(text, "=")
			set[name] = value
		}
		if slices.Contains([]string{"false", "off", "no", "0"}, set["autovacuum_enabled"]) {
			c.note(LevelWarning, "option autovacuum_enabled", fmt.Sprintf("alter table %s reset (autovacuum_enabled);",
				part.Name), "autovacuum is off for %s: it grows with each redelivery and deletion", part.Name)
		}
		for _, want := range c.table.options {
			if _, ok := set[want.name]; !ok {
				c.note(LevelWarning, "option "+want.name, fmt.Sprintf("alter table %s set (%s = %s);", part.Name, want.name,
					want.value), "%s has no %s of its own, the files have %s", part.Name, want.name, want.value)
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
