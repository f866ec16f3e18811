package console

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"github.com/einmal-go/einmal/deadletter"
)

// groupsShown is how many groups of a table stand on a page.
const groupsShown = 50

// deadView is what the tables of dead letters have, by consumer, kind and error.
type deadView struct {
	Tables []deadGroups
}

// deadGroups are the groups of a table.
type deadGroups struct {
	Table    string
	Groups   []deadletter.Group
	Next     string // the page of those that follow; "" if there are none
	Problem  string
	Redrives bool // a redrive is configured
}

// Letters is the list of a group's dead letters.
func (d *deadGroups) Letters(g deadletter.Group) string { return address("letters", d.args(g)...) }

// Do is the page that asks whether to do something with all of a group.
func (d *deadGroups) Do(verb string, g deadletter.Group) string {
	return address("do/"+verb, append(d.args(g), "all", "1")...)
}

func (d *deadGroups) args(g deadletter.Group) []string {
	return []string{"table", d.Table, "consumer", g.Consumer, "kind", string(g.Kind), "error", errorArg(g.ErrorType)}
}

// deadPage is the groups of all tables.
func (c *Console) deadPage(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	tables := c.dead
	if query.Get("table") != "" {
		one, err := c.deadTable(query)
		if err != nil {
			return "", nil, err
		}
		tables = []*deadTable{one}
	}
	v := &deadView{Tables: make([]deadGroups, len(tables))}
	var all sync.WaitGroup
	for i, t := range tables {
		all.Go(func() { v.Tables[i] = c.groupsOf(r.Context(), t, behind(query)) })
	}
	all.Wait()
	return "Dead letters", v, nil
}

// behind is the last group of the page before.
func behind(query url.Values) *deadletter.Group {
	if !query.Has("behind") {
		return nil
	}
	return &deadletter.Group{Consumer: query.Get("behind"), Kind: deadletter.Kind(query.Get("kind")),
		ErrorType: query.Get("error")}
}

func (c *Console) groupsOf(ctx context.Context, t *deadTable, behind *deadletter.Group) deadGroups {
	d := deadGroups{Table: t.Name, Redrives: t.Redrive != nil}
	err := t.ask(ctx, c, func(ctx context.Context, b deadletter.Browser) (err error) {
		d.Groups, err = b.Groups(ctx, behind, groupsShown+1)
		return err
	})
	if err != nil {
		d.Problem = shownError(err)
	}
	if len(d.Groups) > groupsShown {
		d.Groups = d.Groups[:groupsShown]
		last := d.Groups[groupsShown-1]
		d.Next = address("dead", "table", d.Table, "behind", last.Consumer, "kind", string(last.Kind), "error",
			last.ErrorType)
	}
	return d
}
