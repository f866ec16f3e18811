package console

import (
	"net/http"
	"slices"
)

// groupView is a consumer group.
type groupView struct {
	*groupState

	Members []memberRow
	Topics  []topicRow
	Past    string // how long the past is that graphs show
}

// memberRow is a member, as Kafka knows it.
type memberRow struct {
	Name, ID   string
	Partitions int
}

// group is the page of a consumer group: its members, its topics.
func (c *Console) group(r *http.Request) (title string, body any, err error) {
	s := c.look(r.Context())
	name := r.URL.Query().Get("name")
	i := slices.IndexFunc(s.Groups, func(g *groupState) bool { return g.Name == name })
	if i < 0 {
		return "", nil, &refusal{http.StatusNotFound, "There is no such group.",
			"The console knows those of its configuration, and those of which a process tells that answers."}
	}
	v := &groupView{groupState: s.Groups[i], Past: pastText(c.history.span(s.At))}
	for _, t := range v.groupState.Topics() {
		row := topicRow{topicState: t, Rate: c.history.latest(rateKey(v.Name, t.Topic), s.At)}
		row.Graph = c.graph(lagKey(v.Name, t.Topic), s.At, "lag of "+t.Topic, "messages")
		for _, p := range t.Partitions {
			if p.Process != "" || p.Owner != "" {
				row.Owners++
			}
		}
		v.Topics = append(v.Topics, row)
	}
	if k := v.Kafka; k != nil && k.Err == nil {
		for _, m := range k.Value.Members {
			v.Members = append(v.Members, memberRow{memberName(m), m.ID, len(m.Partitions)})
		}
	}
	return "Group " + name, v, nil
}
