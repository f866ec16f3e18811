package outbox

import (
	"strings"

	"github.com/einmal-go/einmal/schema"
)

// Buckets is into how many buckets the events are divided by topic and key. It is part of the table.
const Buckets = 64

// eventTable is the table's name in the files of package schema.
const eventTable = "outbox_event"

// tables are the names as they stand in SQL.
type tables struct{ event, lease, mode string }

func newTables(cfg *schema.Config) tables {
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
	return tables{event: name(eventTable), lease: name("outbox_lease"), mode: name("outbox_mode")}
}

// quote makes an identifier of a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// in puts the names into a statement.
func (t tables) in(sql string) string {
	return strings.NewReplacer("{event}", t.event, "{lease}", t.lease, "{mode}", t.mode).Replace(sql)
}
