package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// perPage is how many rows a table has.
const perPage = 100

// partitionsView is the table of partitions, and the messages that fail.
type partitionsView struct {
	Group, Topic, Only string // what is chosen; "" for all
	Groups, Topics     []string
	Rows               []partitionRow
	Failing            []partitionRow // of all that is chosen, not of this page alone
	MoreFailing        int
	Pager              pager
	Asked              []processState // that do not answer
	At                 time.Time
}

// partitionRow is a partition in the table.
type partitionRow struct {
	*partitionState

	Known   bool // a process has told of it
	Trouble []problem
}

// partitions is the page of all partitions.
func (c *Console) partitions(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	v := &partitionsView{Group: query.Get("group"), Topic: query.Get("topic"), Only: query.Get("only")}
	s := c.look(r.Context())
	v.At = s.At
	for _, p := range s.Processes {
		if p.Answer.Err != nil {
			v.Asked = append(v.Asked, p)
		}
	}
	var rows []partitionRow
	for _, g := range s.Groups {
		v.Groups = append(v.Groups, g.Name)
		for _, p := range g.Partitions {
			if !slices.Contains(v.Topics, p.Topic) {
				v.Topics = append(v.Topics, p.Topic)
			}
			row := partitionRow{p, p.partitionFacts != nil, p.problems(s.At)}
			if v.chooses(&row) {
				rows = append(rows, row)
			}
			if v.chooses(&row) && row.Known && p.Failing != nil {
				v.Failing = append(v.Failing, row)
			}
		}
	}
	slices.SortStableFunc(v.Failing, func(a, b partitionRow) int {
		return a.partitionFacts.Failing.Since.Compare(b.partitionFacts.Failing.Since)
	})
	if n := len(v.Failing) - perPage; n > 0 {
		v.Failing, v.MoreFailing = v.Failing[:perPage], n
	}
	v.Rows, v.Pager = paged(rows, query)
	return "Partitions", v, nil
}

func (v *partitionsView) chooses(row *partitionRow) bool {
	return (v.Group == "" || v.Group == row.Group) && (v.Topic == "" || v.Topic == row.Topic) &&
		(v.Only != "trouble" || len(row.Trouble) > 0)
}

// Link is the page of a message of the partition.
func (p *partitionState) Link(offset int64) string {
	return address("message", "topic", p.Topic, "partition", strconv.Itoa(int(p.Partition)), "offset",
		strconv.FormatInt(offset, 10))
}

// pager is where in a long table a page is.
type pager struct {
	From, To, All  int    // rows, from 1
	Earlier, Later string // what differs in the address; "" if there is no such page
}

// paged cuts the page out of rows that the parameter page of the query names, from 1.
func paged[T any](rows []T, query url.Values) ([]T, pager) {
	last := max(1, (len(rows)+perPage-1)/perPage)
	n, err := strconv.Atoi(query.Get("page"))
	if err != nil {
		n = 1
	}
	n = min(max(n, 1), last)
	from, to := (n-1)*perPage, min(n*perPage, len(rows))
	p := pager{From: from + 1, To: to, All: len(rows)}
	if n > 1 {
		p.Earlier = atPage(query, n-1)
	}
	if n < last {
		p.Later = atPage(query, n+1)
	}
	return rows[from:to], p
}

func atPage(query url.Values, n int) string {
	other := maps.Clone(query)
	other.Set("page", strconv.Itoa(n))
	return "?" + other.Encode()
}

// State is what the partition does, in a word or two.
func (r *partitionRow) State() string {
	switch {
	case len(r.Trouble) > 0:
		return r.Trouble[0].Rank.Word()
	case !r.Known && r.Owner == "" && r.Kafka != nil && r.Kafka.Member == "":
		return "no owner"
	case !r.Known:
		return "not told"
	case r.Paused:
		return "full"
	}
	return "well"
}

// About is why it is paused, in words.
func (r *partitionRow) About() string {
	if !r.Known || r.PausedBy == "" {
		return ""
	}
	return fmt.Sprintf("paused by the limit of %s: what is held is worked off first", r.PausedBy)
}
