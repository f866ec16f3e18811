package console

import (
	"context"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/deadletter"
)

// lettersView is a list of dead letters.
type lettersView struct {
	Table    string
	Tables   []string
	Args     url.Values
	Kinds    []deadletter.Kind
	Rows     []*deadletter.Record
	Next     string // the page of those that follow; "" if there are none
	Problem  string
	Partly   *deadletter.PartialError // the time did not suffice for the rest
	Rest     string                   // the page of the rest
	Redrives bool                     // a redrive is configured
}

// Arg is what was asked for.
func (v *lettersView) Arg(name string) string { return v.Args.Get(name) }

// Narrowed reports whether something is asked for that the form has among the seldom fields.
func (v *lettersView) Narrowed() bool {
	return slices.ContainsFunc([]string{"consumer", "kind", "error", "topic", "id", "order"},
		func(name string) bool { return v.Arg(name) != "" })
}

// Letter is the page of one.
func (v *lettersView) Letter(rec *deadletter.Record) string {
	return address("letter", "table", v.Table, "id", strconv.FormatInt(rec.ID, 10))
}

// Do is the page that asks whether to do something with all that the search finds.
func (v *lettersView) Do(verb string) string {
	pairs := []string{"table", v.Table, "all", "1"}
	for _, name := range searchFields {
		if v.Args.Get(name) != "" {
			pairs = append(pairs, name, v.Args.Get(name))
		}
	}
	return address("do/"+verb, pairs...)
}

// First is the first page of the search.
func (v *lettersView) First() string {
	first := maps.Clone(v.Args)
	first.Del("beyond")
	return "letters?" + first.Encode()
}

// lettersPage is the dead letters of a search, the newest first unless asked otherwise.
func (c *Console) lettersPage(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	t, err := c.deadTable(query)
	if err != nil {
		return "", nil, err
	}
	v := &lettersView{Table: t.Name, Args: query, Kinds: deadletter.Kinds(), Redrives: t.Redrive != nil}
	for _, other := range c.dead {
		v.Tables = append(v.Tables, other.Name)
	}
	search, wrong := searchOf(query, time.Now())
	if wrong != nil {
		v.Problem = wrong.Error()
		return "Dead letters", v, nil //nolint:nilerr // the page says it
	}
	page := deadletter.Page{OldestFirst: query.Get("order") == "oldest", Limit: deadletter.DefaultPageLimit + 1}
	page.Beyond, _ = strconv.ParseInt(query.Get("beyond"), 10, 64) // none, then
	err = t.ask(r.Context(), c, func(ctx context.Context, b deadletter.Browser) (err error) {
		v.Rows, err = b.Browse(ctx, search, page)
		return err
	})
	if partly, ok := errors.AsType[*deadletter.PartialError](err); ok {
		v.Partly, v.Rest = partly, beyond(query, partly.Beyond)
	} else if err != nil {
		v.Problem = shownError(err)
	}
	if len(v.Rows) > deadletter.DefaultPageLimit {
		v.Rows = v.Rows[:deadletter.DefaultPageLimit]
		v.Next = beyond(query, v.Rows[len(v.Rows)-1].ID)
	}
	return "Dead letters", v, nil
}

// beyond is the page of what follows a dead letter.
func beyond(query url.Values, id int64) string {
	next := maps.Clone(query)
	next.Set("beyond", strconv.FormatInt(id, 10))
	return "?" + next.Encode()
}

// letterView is one dead letter.
type letterView struct {
	*deadletter.Record

	Table      string
	KeyShown   content
	HeaderMap  []headerRow
	More       int // headers that are not shown
	Shown      *content
	Shows      bool // the request may see values
	ValueLink  string
	CanRedrive bool // a redrive is configured
	Consumed   string
	Trace      template.URL // leads to its trace
}

// Do is the page that asks whether to do something with it.
func (v *letterView) Do(verb string) string {
	return address("do/"+verb, "table", v.Table, "id", strconv.FormatInt(v.ID, 10))
}

// Alike is the list of those that died of the same.
func (v *letterView) Alike() string {
	return address("letters", "table", v.Table, "consumer", v.Consumer, "kind", string(v.Kind), "error",
		errorArg(v.ErrorType))
}

// SameKey is the list of those of its key.
func (v *letterView) SameKey() string {
	if v.Key == nil {
		return ""
	}
	return address("letters", "table", v.Table, "consumer", v.Consumer, "key", keyArg(v.Key), "order", "oldest")
}

// letterPage is one dead letter with its whole history.
func (c *Console) letterPage(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	t, err := c.deadTable(query)
	if err != nil {
		return "", nil, err
	}
	id, err := strconv.ParseInt(query.Get("id"), 10, 64)
	if err != nil {
		return "", nil, wrongArg("%q is no number of a dead letter.", query.Get("id"))
	}
	var rec *deadletter.Record
	err = t.ask(r.Context(), c, func(ctx context.Context, _ deadletter.Browser) (err error) {
		rec, err = t.Table.Get(ctx, id)
		return err
	})
	if err != nil {
		return "", nil, goneOr(err)
	}
	v := &letterView{Record: rec, Table: t.Name, KeyShown: contentOf(rec.Key), Shows: c.showsValues(r),
		CanRedrive: t.Redrive != nil, Trace: c.traceLink(rec.TraceID)}
	for i, h := range rec.Headers {
		if i == maxHeaders {
			v.More = len(rec.Headers) - maxHeaders
			break
		}
		v.HeaderMap = append(v.HeaderMap, headerRow{h.Key, contentOf(h.Value)})
	}
	v.ValueLink = address("letter", "table", t.Name, "id", strconv.FormatInt(id, 10), "value", "1")
	v.Consumed = address("message", "topic", rec.Topic, "partition", strconv.Itoa(int(rec.Partition)), "offset",
		strconv.FormatInt(rec.Offset, 10))
	if v.Shows && query.Get("value") != "" {
		shown := contentOf(rec.Value)
		v.Shown = &shown
	}
	return "Dead letter " + strconv.FormatInt(id, 10), v, nil
}
