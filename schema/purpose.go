package schema

import (
	"fmt"
	"slices"
)

// Purpose is what a role of the database is for. It decides which privileges the role needs: see Config.For.
type Purpose string

// The purposes.
const (
	ForConsumer Purpose = "consumer" // a service that consumes: records, dead letters, starts of CrashLoop
	ForWriter   Purpose = "writer"   // a service that writes events into the outbox
	ForRelay    Purpose = "relay"    // a relay.Relay
	ForJanitor  Purpose = "janitor"  // a janitor.Janitor that sweeps all tables
	ForRequests Purpose = "requests" // an idempotency.Handler
	ForReader   Purpose = "reader"   // an operator who looks, and an audit
	ForOperator Purpose = "operator" // an operator who redrives, discards, edits and erases
)

var (
	readOnly = []string{"select"}
	sweeping = []string{"select", "update", "delete"} // update, because a row is locked before it is deleted
)

// needs are the privileges that a purpose takes, by table.
var needs = map[Purpose]map[string][]string{
	ForConsumer: {
		"processed_event": {"select", "insert", "update"},
		"dead_message":    {"insert"},
		"started_message": {"select", "insert", "update", "delete"},
	},
	ForWriter: {"outbox_event": {"insert"}},
	ForRelay: {
		"outbox_event": sweeping,
		"outbox_lease": {"select", "insert", "update"},
		"outbox_mode":  {"select", "insert"},
	},
	ForJanitor: {
		"processed_event": sweeping, "dead_message": sweeping, "started_message": sweeping, "outbox_event": sweeping,
		"idempotency_key": sweeping,
	},
	ForRequests: {"idempotency_key": {"select", "insert", "update"}},
	ForReader: {
		"processed_event": readOnly, "dead_message": readOnly, "started_message": readOnly, "idempotency_key": readOnly,
		"outbox_event": readOnly, "outbox_lease": readOnly, "outbox_mode": readOnly,
		"console_action": readOnly,
	},
	ForOperator: {
		"processed_event": {"select", "delete"},
		"dead_message":    sweeping,
		"started_message": {"select", "delete"},
		"idempotency_key": sweeping,
		"outbox_event":    {"select", "insert", "update", "delete"},
		"outbox_lease":    {"select", "update"},
		"outbox_mode":     {"select", "insert", "update"},
		"console_action":  {"select", "insert", "update"},
	},
}

// Purposes returns all of them.
func Purposes() []Purpose {
	return []Purpose{ForConsumer, ForWriter, ForRelay, ForJanitor, ForRequests, ForReader, ForOperator}
}

// unknownPurpose is an error about one that there is not.
func (cfg *Config) unknownPurpose() error {
	for _, p := range cfg.For {
		if needs[p] == nil {
			return fmt.Errorf("schema: there is no purpose %q: they are %q", p, Purposes())
		}
	}
	return nil
}

// needed returns the privileges on a table that any of the purposes takes. all is whether no purpose was said.
func (cfg *Config) needed(table string) (privileges []string, all bool) {
	for _, p := range cfg.For {
		privileges = append(privileges, needs[p][table]...)
	}
	return privileges, len(cfg.For) == 0
}

// concerns reports whether any of the purposes has to do with a table.
func (cfg *Config) concerns(table string) bool {
	privileges, all := cfg.needed(table)
	return all || len(privileges) > 0
}

// missingFor notes the privileges that a purpose takes and the user has not.
func (c *comparison) missingFor(needed []string) {
	for _, privilege := range c.seen.Missing {
		if slices.Contains(needed, privilege) {
			c.note(LevelError, "privilege "+privilege, fmt.Sprintf("grant %s on %s to %s;", privilege, c.sql(), c.seen.User),
				"the user %s may not %s", c.seen.User, privilege)
		}
	}
}
