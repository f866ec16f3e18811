package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Query runs a query that answers with one row of one text.
type Query func(ctx context.Context, sql string, args ...any) (string, error)

// Level says how bad a Finding is.
type Level string

// The levels.
const (
	LevelError   Level = "error"   // events would be refused, lost or processed twice
	LevelWarning Level = "warning" // it works, and becomes slow, large or fragile
)

// Finding is one thing that is not as the files have it.
type Finding struct {
	Level     Level     `json:"level"`
	Component Component `json:"component,omitempty"` // "" if it is about the server
	Table     string    `json:"table,omitempty"`     // as it stands in SQL; "" if it is about the server

	// About says for programs what it is about: "table", "column NAME", "index", "option NAME", "privilege NAME", "server
	// NAME".
	About string `json:"about"`

	Says string `json:"says"`          // a sentence whose subject is the table
	Run  string `json:"run,omitempty"` // the SQL that puts it right, if there is such

	brief string // where Run is a whole file: what to run, in one line
}

// String is the sentence, and what to run, in one line: where that is a whole file, the command that prints it.
func (f Finding) String() string {
	if run := cmp.Or(f.brief, f.Run); run != "" {
		return f.Says + "; run: " + run
	}
	return f.Says
}

// Check compares the tables of the components, or of all if none is named, with the files, and answers with all that is
// missing or weak: tables, columns, types and collations that take different ids for the same, unique indexes,
// privileges of the user that asks (for cfg.For, if it says what the user is for); storage parameters, other indexes,
// and settings of the server. It reads catalogues only, by one query for each table. The error is that of ask, or about
// a component or a table of cfg that there is not; what is found is no error.
func (d Dialect) Check(ctx context.Context, ask Query, cfg *Config, components ...Component) ([]Finding, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	if _, err := d.named(cfg, components); err != nil {
		return nil, err
	}
	if err := cfg.unknownPurpose(); err != nil {
		return nil, err
	}
	list, _ := d.files(components)
	names := d.namer(cfg)
	var found []Finding
	tables := slices.DeleteFunc(tablesIn(list), func(t *table) bool { return !cfg.concerns(t.name) })
	for i, t := range tables {
		look := lookAtPostgres
		if d == SQLite {
			look = lookAtSQLite
		}
		seen, err := look(ctx, ask, &names, t)
		if err != nil {
			return nil, fmt.Errorf("schema: look at the table %s: %w", names.in(t.name), err)
		}
		if i == 0 {
			found = append(found, seen.server()...)
		}
		c := comparison{table: t, seen: seen, dialect: d, names: &names, cfg: cfg}
		c.compare()
		found = append(found, c.found...)
	}
	return found, nil
}
