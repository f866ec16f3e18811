package record

import (
	"context"
	"strconv"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/schema"
)

// Examine implements Dialect.
func (p *Postgres) Examine(ctx context.Context, ask Query) error {
	problems, err := p.examine(ctx, schema.Postgres, p.schema(), ask)
	if err != nil {
		return p.as(max(sqlclass.Of(err), dedupstore.Unavailable), "%w", err)
	}
	return p.cannotBeUsed(p.table(), problems)
}

// Examine implements Dialect. SQLite's connections are looked at too.
func (s *SQLite) Examine(ctx context.Context, ask Query) error {
	problems, err := s.examine(ctx, schema.SQLite, "", ask)
	if err != nil {
		return s.as(dedupstore.Unavailable, "%w", err)
	}
	busy, err := ask(ctx, "select timeout from pragma_busy_timeout")
	if err != nil {
		return s.as(dedupstore.Unavailable, "look at the connection: %w", err)
	}
	if milliseconds, err := strconv.Atoi(busy); err != nil || milliseconds <= 0 {
		problems = append([]string{"the connections do not wait for each other: set busy_timeout for each, by _pragma=busy_timeout(5000) in the DSN of modernc.org/sqlite"}, problems...)
	}
	return s.cannotBeUsed(s.table(), problems)
}

// examine returns what makes the table unfit, with what to run.
func (e *explainer) examine(ctx context.Context, dialect schema.Dialect, in string, ask Query) (problems []string,
	err error) {
	found, err := dialect.Check(ctx, schema.Query(ask), e.cfg.inSchema(in), schema.Dedup)
	for _, f := range found {
		if f.Level == schema.LevelError && !e.doesWithout(f) {
			problems = append(problems, f.String())
		}
	}
	return problems, err
}

// doesWithout reports whether a record that counts nothing does without what was found.
func (e *explainer) doesWithout(f schema.Finding) bool {
	return e.cfg.DoNothing && (f.About == "column duplicates" || f.About == "privilege update")
}

// cannotBeUsed makes one error of all problems.
func (e *explainer) cannotBeUsed(table string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return e.as(dedupstore.Misconfigured, "the table %s cannot be used: %s", table,
		strings.ReplaceAll(strings.Join(problems, "; "), ";; ", "; "))
}

// inSchema is where package schema finds the table.
func (c Config) inSchema(in string) *schema.Config {
	return &schema.Config{Schema: in, Tables: map[string]string{defaultTable: c.Table}}
}
