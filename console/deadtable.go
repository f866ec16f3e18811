package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/einmal-go/einmal/deadletter"
)

// deadTable is a table of dead letters through which people look.
type deadTable struct {
	DeadLetters

	browser deadletter.Browser // nil if the table is none
	asking  oneQuestion
}

func newDeadTables(list []DeadLetters) (tables []*deadTable) {
	for _, d := range list {
		t := &deadTable{DeadLetters: d, asking: newOneQuestion()}
		t.browser, _ = d.Table.(deadletter.Browser)
		tables = append(tables, t)
	}
	return tables
}

// ask has f ask the table, soon.
func (t *deadTable) ask(ctx context.Context, c *Console,
	f func(ctx context.Context, b deadletter.Browser) error) error {
	if t.browser == nil {
		return fmt.Errorf("the table %q cannot be looked through: it does not implement deadletter.Browser", t.Name)
	}
	return t.asking.ask(ctx, c.cfg.Timeout, fmt.Sprintf("the table %q", t.Name),
		func(ctx context.Context) error { return f(ctx, t.browser) })
}

// deadTable returns the one that the arguments name, or the only one.
func (c *Console) deadTable(args url.Values) (*deadTable, error) {
	t, ok := named(c.dead, args.Get("table"), func(t *deadTable) string { return t.Name })
	if !ok {
		return nil, &refusal{http.StatusNotFound, "There is no such table of dead letters.",
			"The console's configuration does not name it."}
	}
	return t, nil
}

func hasDead(c *Console) bool { return len(c.dead) > 0 }
