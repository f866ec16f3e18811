package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/redact"
)

// groupView is a group in JSON. What is not known is null.
type groupView struct {
	Group       string         `json:"group"`
	Time        time.Time      `json:"time"`
	State       string         `json:"state"`
	Strategy    string         `json:"strategy"`
	Coordinator string         `json:"coordinator"`
	Lag         int64          `json:"lag"` // of the partitions of which it is known
	LagUnknown  int            `json:"lag_unknown"`
	Members     []groupMember  `json:"members"`
	Partitions  []*groupPart   `json:"partitions"`
	CommitTimes string         `json:"commit_times_unknown,omitempty"` // why
	Database    *groupDatabase `json:"database,omitempty"`
	Problems    []string       `json:"problems,omitempty"`
	short       map[string]int // the number of a member, by its id
	now         time.Time
}

type groupMember struct {
	Number     int    `json:"number"`
	ID         string `json:"id"`
	InstanceID string `json:"instance_id,omitempty"`
	ClientID   string `json:"client_id"`
	Host       string `json:"host"`
	Partitions int    `json:"partitions"`
}

type groupPart struct {
	Topic           string      `json:"topic"`
	Partition       int32       `json:"partition"`
	Member          string      `json:"member,omitempty"`
	Committed       *int64      `json:"committed_offset"`
	Start           *int64      `json:"start_offset"`
	End             *int64      `json:"end_offset"`
	Lag             *int64      `json:"lag"`
	CommittedAt     *time.Time  `json:"committed_at"`
	CommittedBefore *time.Time  `json:"committed_before,omitempty"`
	OutOfRange      bool        `json:"out_of_range"`
	Open            []groupOpen `json:"open,omitempty"`
	Error           string      `json:"error,omitempty"`
}

type groupOpen struct {
	Offset   int64      `json:"offset"`
	Fetched  *time.Time `json:"fetched"`
	Attempts int        `json:"failed_attempts"`
}

func newGroupView(g *consumer.Group, now time.Time) *groupView {
	v := &groupView{
		Group: g.Name, Time: g.Time.UTC(), State: g.State, Strategy: g.Strategy, Coordinator: g.Coordinator,
		Members: []groupMember{}, Partitions: []*groupPart{}, short: map[string]int{}, now: now,
	}
	v.Lag, v.LagUnknown = g.Lag()
	if g.CommitTimesError != nil {
		v.CommitTimes = redact.Text(g.CommitTimesError.Error(), redact.MaxError)
	}
	for i, m := range g.Members {
		v.short[m.ID] = i + 1
		v.Members = append(v.Members, groupMember{i + 1, m.ID, m.InstanceID, m.ClientID, m.Host, len(m.Partitions)})
	}
	for i := range g.Partitions {
		v.Partitions = append(v.Partitions, newGroupPart(&g.Partitions[i]))
	}
	return v
}

func newGroupPart(p *consumer.GroupPartition) *groupPart {
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	out := &groupPart{
		Topic: p.Topic, Partition: p.Partition, Member: p.Member, Committed: known(p.Committed), Start: known(p.Start),
		End: known(p.End),
		Lag: known(p.Lag()), CommittedAt: optionalTime(p.CommittedAt), CommittedBefore: optionalTime(p.CommittedBefore),
		OutOfRange: p.OutOfRange(),
	}
	if p.Err != nil {
		out.Error = redact.Text(p.Err.Error(), redact.MaxError)
	}
	for _, m := range p.Open {
		out.Open = append(out.Open, groupOpen{m.Offset, optionalTime(m.Fetched), m.Attempts})
	}
	return out
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// problems are what -max-lag asks about.
func (v *groupView) problems(maxLag int64) (found []string) {
	unowned, outOfRange := 0, 0
	for _, p := range v.Partitions {
		if p.Member == "" {
			unowned++
		}
		if p.OutOfRange {
			outOfRange++
		}
	}
	add := func(is bool, format string, args ...any) {
		if is {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	add(len(v.Partitions) == 0, "no partitions are known: nothing was committed, and no member has been assigned any")
	add(v.Lag > maxLag, "the lag is %d messages, more than %d", v.Lag, maxLag)
	add(v.LagUnknown > 0, "the lag of %d partitions is not known", v.LagUnknown)
	add(unowned > 0, "%d of %d partitions have no member", unowned, len(v.Partitions))
	add(outOfRange > 0, "the committed offsets of %d partitions are out of the log's range", outOfRange)
	return found
}

// print shows the group as tables. What comes from the brokers is kept from the terminal's control.
func (v *groupView) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "group %s: %s, members %d, strategy %s, coordinator %s, as of %s\n", plain(v.Group), plain(v.State),
		len(v.Members),
		cmp.Or(plain(v.Strategy), "-"), plain(v.Coordinator), v.Time.Format(time.RFC3339))
	fmt.Fprintf(b, "lag %d messages in %d partitions", v.Lag, len(v.Partitions)-v.LagUnknown)
	if v.LagUnknown > 0 {
		fmt.Fprintf(b, ", of %d more not known", v.LagUnknown)
	}
	b.WriteString("\n\n")
	v.printMembers(b)
	v.printPartitions(b)
	if v.CommitTimes != "" {
		fmt.Fprintf(b, "\nlast committed: %s\n", plain(v.CommitTimes))
	}
	if v.Database != nil {
		v.Database.print(b, v.now)
	}
	if len(v.Problems) > 0 {
		fmt.Fprintf(b, "\nproblems:\n  %s\n", strings.Join(v.Problems, "\n  "))
	}
}

func (v *groupView) printMembers(b *bytes.Buffer) {
	if len(v.Members) == 0 {
		b.WriteString("no members: no process of the group runs\n\n")
		return
	}
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "member\thost\tclient\tid\tpartitions")
	for _, m := range v.Members {
		fmt.Fprintf(w, "#%d\t%s\t%s\t%s\t%d\n", m.Number, plain(m.Host), plain(m.ClientID), plain(cmp.Or(m.InstanceID, m.ID)),
			m.Partitions)
	}
	_ = w.Flush() // to memory
	b.WriteByte('\n')
}

func (v *groupView) printPartitions(b *bytes.Buffer) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "topic\tpartition\tmember\tcommitted\tend\tlag\tlast committed\tnote")
	for _, p := range v.Partitions {
		member := "none"
		if n := v.short[p.Member]; n > 0 {
			member = fmt.Sprintf("#%d", n)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", plain(p.Topic), p.Partition, member, number(p.Committed),
			number(p.End), number(p.Lag), v.committed(p), v.note(p))
	}
	_ = w.Flush() // to memory
}

// committed says how long ago.
func (v *groupView) committed(p *groupPart) string {
	switch {
	case p.CommittedAt != nil:
		return ago(max(0, v.now.Sub(*p.CommittedAt).Seconds())) + " ago"
	case p.CommittedBefore != nil:
		return "over " + ago(max(0, v.now.Sub(*p.CommittedBefore).Seconds())) + " ago"
	}
	return "-"
}

func (v *groupView) note(p *groupPart) string {
	var notes []string
	if p.Error != "" {
		notes = append(notes, plain(p.Error))
	}
	if p.OutOfRange {
		notes = append(notes, fmt.Sprintf("the committed offset is not in the log, which is %s to %s", number(p.Start),
			number(p.End)))
	}
	if len(p.Open) > 0 {
		m := p.Open[0]
		note := fmt.Sprintf("@%d open", m.Offset)
		if m.Fetched != nil {
			note += " for " + ago(max(0, v.now.Sub(*m.Fetched).Seconds()))
		}
		if m.Attempts > 0 {
			note += fmt.Sprintf(", failed %d times", m.Attempts)
		}
		if more := len(p.Open) - 1; more > 0 {
			note += fmt.Sprintf(", and %d more", more)
		}
		notes = append(notes, note)
	}
	return strings.Join(notes, "; ")
}
