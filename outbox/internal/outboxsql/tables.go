// Package outboxsql has what the writer, the operator's functions and the relay share in their SQL: the names of the
// tables, and the texts of arrays as arguments of statements. It knows no driver.
package outboxsql

import (
	"strings"

	"github.com/einmal-go/einmal/schema"
)

// EventTable is the table's name in the files of package schema.
const EventTable = "outbox_event"

// Buckets is into how many buckets the events are divided by topic and key. It is part of the table.
const Buckets = 64

// Tables are the names as they stand in SQL.
type Tables struct{ Event, Lease, Mode string }

// NewTables returns the names of the tables. A nil cfg leaves it to the search_path to find them.
func NewTables(cfg *schema.Config) Tables {
	name := func(table string) string {
		if cfg == nil {
			return table
		}
		if other := cfg.Tables[table]; other != "" {
			table = quote(other)
		}
		if cfg.Schema != "" {
			table = quote(cfg.Schema) + "." + table
		}
		return table
	}
	return Tables{Event: name(EventTable), Lease: name("outbox_lease"), Mode: name("outbox_mode")}
}

// quote makes an identifier of a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// In puts the names into a statement, in the places of {event}, {lease} and {mode}.
func (t Tables) In(sql string) string {
	return strings.NewReplacer("{event}", t.Event, "{lease}", t.Lease, "{mode}", t.Mode).Replace(sql)
}
