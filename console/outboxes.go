package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/einmal-go/einmal/outbox"
)

// outboxTable is an outbox through which people look.
type outboxTable struct {
	Outbox

	asking oneQuestion
}

func newOutboxTables(list []Outbox) (tables []*outboxTable) {
	for _, o := range list {
		tables = append(tables, &outboxTable{o, newOneQuestion()})
	}
	return tables
}

// ask has f ask the table, soon.
func (t *outboxTable) ask(ctx context.Context, c *Console,
	f func(ctx context.Context, o *outbox.Operator) error) error {
	return t.asking.ask(ctx, c.cfg.Timeout, fmt.Sprintf("the outbox %q", t.Name),
		func(ctx context.Context) error { return f(ctx, t.Operator) })
}

// outboxTable returns the one that the arguments name, or the only one.
func (c *Console) outboxTable(args url.Values) (*outboxTable, error) {
	t, ok := named(c.outboxes, args.Get("outbox"), func(t *outboxTable) string { return t.Name })
	if !ok {
		return nil, &refusal{http.StatusNotFound, "There is no such outbox.", "The console's configuration does not name it."}
	}
	return t, nil
}

func hasOutbox(c *Console) bool { return len(c.outboxes) > 0 }

// stateCount is how many rows are in a state.
type stateCount struct {
	State outbox.State
	Name  string
	N     int64
	More  bool
	Why   string // it could not be told
}

// statesShown are those that people look for, as they call them. What was sent is of no concern.
var statesShown = []stateCount{
	{State: outbox.Blocked, Name: "blocked"}, {State: outbox.Pending, Name: "pending"},
	{State: outbox.Publishing, Name: "being sent"}, {State: outbox.Dead, Name: "discarded"},
}

// outboxState is what the page shows of an outbox.
type outboxShown struct {
	Name    string
	Mode    outbox.Mode
	Counts  []stateCount
	Keys    []outbox.BlockedKey
	Next    string // the page of the keys that follow; "" if there are none
	Leases  []leaseShown
	Problem string
}

// leaseShown are the buckets of a relay.
type leaseShown struct {
	Owner   string
	Buckets int
	First   outbox.Lease // the one that ends first
}

// Events is the list of rows in a state.
func (o *outboxShown) Events(s outbox.State) string {
	return address("events", "outbox", o.Name, "state", string(s))
}

// Event is the page of a row.
func (o *outboxShown) Event(r outbox.Row) string {
	return address("event", "outbox", o.Name, "number", strconv.FormatInt(r.Number, 10))
}

// keysShown is how many blocked keys stand on a page.
const keysShown = 50

// outboxPage is all outboxes.
func (c *Console) outboxPage(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	tables := c.outboxes
	if query.Get("outbox") != "" {
		one, err := c.outboxTable(query)
		if err != nil {
			return "", nil, err
		}
		tables = []*outboxTable{one}
	}
	beyond, _ := strconv.ParseInt(query.Get("beyond"), 10, 64) // none, then
	shown := make([]outboxShown, len(tables))
	var all sync.WaitGroup
	for i, t := range tables {
		all.Go(func() { shown[i] = c.showOutbox(r.Context(), t, beyond) })
	}
	all.Wait()
	return "Outbox", shown, nil
}

func (c *Console) showOutbox(ctx context.Context, t *outboxTable, beyond int64) outboxShown {
	shown := outboxShown{Name: t.Name, Counts: slices.Clone(statesShown)}
	err := t.ask(ctx, c, func(ctx context.Context, o *outbox.Operator) (err error) {
		if shown.Mode, err = o.Mode(ctx); err != nil {
			return err
		}
		leases, err := o.Leases(ctx)
		if err != nil {
			return err
		}
		shown.Leases = leasesOf(leases)
		shown.Keys, err = o.BlockedKeys(ctx, beyond, keysShown+1)
		return err
	})
	if err != nil {
		shown.Problem = shownError(err)
	}
	if len(shown.Keys) > keysShown {
		shown.Keys = shown.Keys[:keysShown]
		shown.Next = address("outbox", "outbox", t.Name, "beyond", strconv.FormatInt(shown.Keys[keysShown-1].First.Number,
			10))
	}
	for i := range shown.Counts {
		n := &shown.Counts[i]
		err := t.ask(ctx, c, func(ctx context.Context, o *outbox.Operator) (err error) {
			n.N, n.More, err = o.CountUpTo(ctx, n.State)
			return err
		})
		if err != nil {
			n.Why = shownError(err)
		}
	}
	return shown
}

// leasesOf sums leases up by their owners.
func leasesOf(list []outbox.Lease) (shown []leaseShown) {
	for _, l := range list {
		i := slices.IndexFunc(shown, func(s leaseShown) bool { return s.Owner == l.Owner })
		if i < 0 {
			shown = append(shown, leaseShown{l.Owner, 1, l})
			continue
		}
		shown[i].Buckets++
		if l.Until.Before(shown[i].First.Until) {
			shown[i].First = l
		}
	}
	return shown
}
