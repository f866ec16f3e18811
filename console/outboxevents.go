package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/einmal-go/einmal/outbox"
)

// eventsView is a list of rows of an outbox.
type eventsView struct {
	Outbox  string
	Args    url.Values
	States  []stateCount
	Rows    []outbox.Row
	Next    string // the page of those that follow; "" if there are none
	Problem string
}

// Arg is what was asked for.
func (v *eventsView) Arg(name string) string { return v.Args.Get(name) }

// Event is the page of one.
func (v *eventsView) Event(r outbox.Row) string {
	return address("event", "outbox", v.Outbox, "number", strconv.FormatInt(r.Number, 10))
}

// Can reports whether rows in the state that is shown can be changed so.
func (v *eventsView) Can(change string) bool {
	state := outbox.State(v.Arg("state"))
	return state == "" || outbox.Change(change).Changes(state)
}

// First is the first page.
func (v *eventsView) First() string {
	first := maps.Clone(v.Args)
	first.Del("beyond")
	return "events?" + first.Encode()
}

// All is the page that asks whether to do something with all rows of the state and the topic that are shown; "" where
// that is not possible.
func (v *eventsView) All(verb string) string {
	if v.Arg("state") == "" {
		return ""
	}
	return address("do/"+verb, "outbox", v.Outbox, "state", v.Arg("state"), "topic", v.Arg("topic"))
}

const eventsShown = 50

// eventsPage is the rows of a state, the newest first unless asked otherwise.
func (c *Console) eventsPage(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	t, err := c.outboxTable(query)
	if err != nil {
		return "", nil, err
	}
	v := &eventsView{Outbox: t.Name, Args: query, States: statesShown}
	page := outbox.Page{OldestFirst: query.Get("order") == "oldest", Limit: eventsShown + 1}
	page.Beyond, _ = strconv.ParseInt(query.Get("beyond"), 10, 64) // none, then
	err = t.ask(r.Context(), c, func(ctx context.Context, o *outbox.Operator) (err error) {
		v.Rows, err = o.Browse(ctx, outbox.Filter{State: outbox.State(query.Get("state")), Topic: query.Get("topic")}, page)
		return err
	})
	if err != nil {
		v.Problem = shownError(err)
	}
	if len(v.Rows) > eventsShown {
		v.Rows = v.Rows[:eventsShown]
		next := maps.Clone(query)
		next.Set("beyond", strconv.FormatInt(v.Rows[eventsShown-1].Number, 10))
		v.Next = "?" + next.Encode()
	}
	return "Events of the outbox", v, nil
}

// eventView is one row.
type eventView struct {
	outbox.Row

	Outbox    string
	Key       content
	Headers   []headerRow
	More      int // headers that are not shown
	Value     *content
	Size      int
	Shows     bool // the request may see values
	ValueLink string
}

// Do is the page that asks whether to do something with it.
func (v *eventView) Do(verb string) string {
	return address("do/"+verb, "outbox", v.Outbox, "number", strconv.FormatInt(v.Number, 10))
}

// Can reports whether the row can be changed so.
func (v *eventView) Can(change string) bool { return outbox.Change(change).Changes(v.State) }

// CanEdit reports whether the row can be edited.
func (v *eventView) CanEdit() bool {
	return v.State == outbox.Blocked || v.State == outbox.Pending || v.State == outbox.Dead
}

// eventPage is one row of an outbox.
func (c *Console) eventPage(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	t, row, err := c.outboxRow(r.Context(), query)
	if err != nil {
		return "", nil, err
	}
	v := &eventView{Row: row, Outbox: t.Name, Key: contentOf(row.Event.Key), Size: len(row.Event.Value),
		Shows: c.showsValues(r)}
	for i, h := range row.Event.Headers {
		if i == maxHeaders {
			v.More = len(row.Event.Headers) - maxHeaders
			break
		}
		v.Headers = append(v.Headers, headerRow{h.Key, contentOf(h.Value)})
	}
	number := strconv.FormatInt(row.Number, 10)
	v.ValueLink = address("event", "outbox", t.Name, "number", number, "value", "1")
	if v.Shows && query.Get("value") != "" {
		shown := contentOf(row.Event.Value)
		v.Value = &shown
	}
	return "Event " + number + " of the outbox", v, nil
}

// outboxRow returns the row that the arguments name.
func (c *Console) outboxRow(ctx context.Context, args url.Values) (t *outboxTable, row outbox.Row, err error) {
	if t, err = c.outboxTable(args); err != nil {
		return nil, row, err
	}
	number, err := strconv.ParseInt(args.Get("number"), 10, 64)
	if err != nil || number < 1 {
		return nil, row, wrongArg("%q is no number of an event.", args.Get("number"))
	}
	err = t.ask(ctx, c, func(ctx context.Context, o *outbox.Operator) (err error) {
		row, err = o.Show(ctx, number)
		return err
	})
	if errors.Is(err, outbox.ErrNoRow) {
		err = &refusal{http.StatusNotFound, "There is no such event, or not any more.",
			"It was sent or deleted. Nothing was done."}
	}
	return t, row, asRefusal(err)
}
