package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
)

// overviewView is the first page: what is wrong, then what there is.
type overviewView struct {
	*state

	Topics     []topicRow
	Relays     []relayRow
	DeadTables []deadRow
	Past       string // how long the past is that graphs show
	Unknown    bool   // nothing is configured that could be shown
}

type topicRow struct {
	topicState

	Owners int // partitions that a process or member has
	Rate   *float64
	Graph  *graph
}

type relayRow struct {
	outboxState

	Backlog, Blocked *int64
	Graph            *graph
}

type deadRow struct {
	deadState

	Graph *graph
}

// overview is the first page.
func (c *Console) overview(r *http.Request) (title string, body any, err error) {
	s := c.look(r.Context())
	v := &overviewView{state: s, Past: pastText(c.history.span(s.At)), Unknown: len(c.processes) == 0 &&
		len(c.cfg.Groups) == 0 && len(c.tables) == 0}
	for _, g := range s.Groups {
		for _, t := range g.Topics() {
			row := topicRow{topicState: t, Rate: c.history.latest(rateKey(g.Name, t.Topic), s.At)}
			row.Graph = c.graph(lagKey(g.Name, t.Topic), s.At, "lag of "+t.Topic, "messages")
			for _, p := range t.Partitions {
				if p.Process != "" || p.Owner != "" {
					row.Owners++
				}
			}
			v.Topics = append(v.Topics, row)
		}
	}
	for _, o := range s.Outboxes {
		row := relayRow{outboxState: o, Backlog: o.Count(o.outboxFacts.Backlog), Blocked: o.Count(o.outboxFacts.Blocked)}
		row.Graph = c.graph(backlogKey(o.Process, o.Section), s.At, "backlog of "+o.Process, "rows")
		v.Relays = append(v.Relays, row)
	}
	for _, d := range s.Dead {
		v.DeadTables = append(v.DeadTables,
			deadRow{d, c.graph(deadKey(d.Process, d.Section), s.At, "dead letters of "+d.Process, "letters")})
	}
	return "Overview", v, nil
}

func (c *Console) graph(key string, now time.Time, about, unit string) *graph {
	return graphOf(c.history.of(key), now, c.history.span(now), about, unit)
}

// Worst is the rank of the most urgent problem; "well" if there is none.
func (v *overviewView) Worst() string {
	if len(v.Problems) == 0 {
		return "well"
	}
	return v.Problems[0].Rank.Class()
}

// Verdict is the first sentence.
func (v *overviewView) Verdict() string {
	switch n := len(v.Problems); {
	case v.Unknown:
		return "Nothing is shown here yet"
	case n == 0:
		return "All is well"
	case n == 1:
		return "One thing to look at"
	default:
		return fmt.Sprintf("%d things to look at", n)
	}
}

// State is how a process is, in a word.
func (p processState) State() string {
	switch {
	case p.Answer.Err != nil:
		return "no answer"
	case !p.Answer.Value.Healthy:
		return "trouble"
	}
	return "well"
}

// Holds counts the partitions of the process; nil if it has no consumer, or does not answer.
func (p processState) Holds() *int64 {
	if p.Answer.Err != nil || len(p.Answer.Value.Consumers) == 0 {
		return nil
	}
	var n int64
	for _, f := range p.Answer.Value.Consumers {
		n += int64(len(f.Partitions))
	}
	return &n
}

// Sections names the parts that the process tells of.
func (p processState) Sections() (names []string) {
	if p.Answer.Err != nil {
		return nil
	}
	for name := range p.Answer.Value.Sections {
		names = append(names, redact.Line(name))
	}
	slices.Sort(names)
	return names
}

// KindList has the kinds of dead letters, the most frequent first.
func (d deadState) KindList() (list []kindCount) {
	for kind, n := range d.Kinds {
		list = append(list, kindCount{kind, n})
	}
	slices.SortFunc(list, func(a, b kindCount) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Kind, b.Kind)) })
	return list
}

type kindCount struct {
	Kind string
	N    int64
}
