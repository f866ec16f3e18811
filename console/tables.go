package console

import (
	"context"
	"time"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/outbox"
)

// tableState is what the overview has of a table of the configuration: dead letters, or an outbox's blocked events.
type tableState struct {
	Name string
	What string // "dead letters" or "blocked events"
	Link string

	answer[tableSeen]
}

// tableSeen is what a table has told.
type tableSeen struct {
	N      int64
	More   bool      // there are more than that
	Newest time.Time // when the last dead letter died; zero if there is none
	Why    string    // why the first event is blocked
}

// maxSeen is up to which rows are counted for the overview, which is asked for often.
const maxSeen = 1_000

// newTableSources are the questions to all tables, in the order of the configuration.
func (c *Console) newTableSources() (list []*source[tableSeen]) {
	for _, t := range c.dead {
		list = append(list, newSource(c.cfg.Timeout, func(ctx context.Context) (seen tableSeen, err error) {
			return seen, t.ask(ctx, c, func(ctx context.Context, b deadletter.Browser) error {
				newest, err := b.Browse(ctx, deadletter.Search{}, deadletter.Page{Limit: 1})
				if err != nil || len(newest) == 0 {
					return err
				}
				seen.Newest = newest[0].Died
				seen.N, seen.More, err = b.CountUpTo(ctx, deadletter.Search{}, maxSeen)
				return err
			})
		}))
	}
	for _, t := range c.outboxes {
		list = append(list, newSource(c.cfg.Timeout, func(ctx context.Context) (seen tableSeen, err error) {
			return seen, t.ask(ctx, c, func(ctx context.Context, o *outbox.Operator) error {
				first, err := o.BlockedKeys(ctx, 0, 1)
				if err != nil || len(first) == 0 {
					return err
				}
				seen.Why = first[0].First.LastError
				seen.N, seen.More, err = o.CountUpTo(ctx, outbox.Blocked)
				return err
			})
		}))
	}
	return list
}

// newTableStates are the tables, of which nothing is told yet.
func (c *Console) newTableStates() (list []tableState) {
	for _, t := range c.dead {
		list = append(list, tableState{Name: t.Name, What: "dead letters", Link: address("dead", "table", t.Name)})
	}
	for _, t := range c.outboxes {
		list = append(list, tableState{Name: t.Name, What: "blocked events", Link: address("outbox", "outbox", t.Name)})
	}
	return list
}

// recent is how long ago a message may have died of which somebody should know.
const recent = time.Hour

// problems are what a table tells. Blocked events are told by relays too, where there are any.
func (t *tableState) problems(s *state) (list []problem) {
	add := func(r rank, what, why string, since time.Time) {
		list = append(list, problem{Rank: r, What: what, Why: why, Since: since, Link: t.Link, key: t.Link})
	}
	switch seen := t.Value; {
	case t.Err != nil:
		add(down, t.Name+": "+t.What+" cannot be looked at", shownError(t.Err), t.Since)
	case !seen.Newest.IsZero() && s.At.Sub(seen.Newest) < recent:
		add(watched, t.Name+": messages were given up",
			atLeast(seen.N, seen.More)+" dead letters, the newest of the last hour", seen.Newest)
	case seen.Why != "" && !s.relaysTellOfBlocked():
		add(stuck, t.Name+": events are blocked",
			atLeast(seen.N, seen.More)+" of them, the first because "+redact.Text(seen.Why, redact.MaxError), time.Time{})
	}
	return list
}

func (s *state) relaysTellOfBlocked() bool {
	for _, o := range s.Outboxes {
		if n := o.Count(o.outboxFacts.Blocked); n != nil && *n > 0 {
			return true
		}
	}
	return false
}
