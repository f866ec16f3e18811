package console

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/status"
)

// Rank is how urgent a problem is.
type rank int

// The ranks, the most urgent first.
const (
	down    rank = iota // something does not work
	stuck               // something is held back, or fails
	watched             // somebody should know
)

// Word is what a page calls the rank.
func (r rank) Word() string { return [...]string{"down", "held back", "to know"}[r] }

// Class is the rank's in the style sheet.
func (r rank) Class() string { return [...]string{"down", "stuck", "watched"}[r] }

// problem is something that somebody should look at.
type problem struct {
	Rank  rank
	What  string // names the thing
	Why   string
	Since time.Time
	Seen  bool   // Since is when this console first saw it; it may have been there before
	Link  string // from the console's root
	key   string
}

// maxProblems is how many of a kind in a consumer are listed by themselves.
const maxProblems = 10

// openLong is how long a message may be open before somebody should know, though nothing has failed: a handler that
// takes a minute.
const openLong = time.Minute

// problems are those of all that was told, the most urgent first, and of those the longest.
func (c *Console) problems(s *state) []problem {
	var list []problem
	for _, p := range s.Processes {
		list = append(list, p.problems()...)
	}
	for _, g := range s.Groups {
		list = append(list, g.problems(s.At)...)
	}
	for _, t := range s.Tables {
		list = append(list, t.problems(s)...)
	}
	keys := make([]string, 0, len(list))
	for _, p := range list {
		keys = append(keys, p.key)
	}
	first := c.since.see(keys, s.At)
	for i := range list {
		if list[i].Since.IsZero() {
			list[i].Since, list[i].Seen = first[list[i].key], true
		}
	}
	slices.SortStableFunc(list, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank),
			a.Since.Compare(b.Since))
	})
	return list
}

// problems are what the process says itself, or that it says nothing.
func (p *processState) problems() (list []problem) {
	link := address("process", "name", p.Name)
	if p.Answer.Err != nil {
		why := p.Answer.Why()
		if p.Answer.Well.IsZero() {
			why += "; it has not answered since this console runs"
		}
		return []problem{{Rank: down, What: p.Name + " does not answer", Why: why, Since: p.Answer.Since, Link: link,
			key: "process " + p.Name}}
	}
	r := p.Answer.Value
	for _, name := range slices.Sorted(maps.Keys(r.Sections)) {
		a := r.Sections[name]
		if a.Healthy() {
			continue
		}
		found := problem{Rank: down, What: p.Name + ", " + name, Why: a.Problem, Link: link, key: "section " + p.Name +
			"\x00" + name}
		if a.Error != "" {
			found.What, found.Why = p.Name+", "+name+": no status", a.Error
		}
		found.sinceOf(r.Consumers[name], a)
		if o := r.Outboxes[name]; o != nil && o.Running && !o.Paused && o.Trouble == "" {
			found.Rank = stuck // rows are blocked, the others are sent
		}
		list = append(list, found)
	}
	return list
}

// sinceOf takes the time from what the consumer is without.
func (p *problem) sinceOf(f *consumerFacts, a status.Answer) {
	if f != nil && a.Error == "" && f.NotReady == "" && len(f.Degraded) > 0 {
		p.Since = f.Degraded[0].Since
	}
}

// problems are those of the partitions, and of what Kafka knows.
func (g *groupState) problems(now time.Time) (list []problem) {
	if g.Kafka != nil && g.Kafka.Err != nil {
		list = append(list, problem{
			Rank: down, What: "Kafka does not tell of the group " + g.Name, Why: g.Kafka.Why(), Since: g.Kafka.Since,
			Link: address("group", "name", g.Name), key: "group " + g.Name,
		})
	}
	count := map[rank]int{}
	for _, p := range g.Partitions {
		for _, found := range p.problems(now) {
			if count[found.Rank]++; count[found.Rank] <= maxProblems {
				list = append(list, found)
			}
		}
	}
	for _, r := range []rank{down, stuck, watched} {
		if n := count[r] - maxProblems; n > 0 {
			list = append(list, problem{
				Rank: r, What: fmt.Sprintf("%d more in %s", n, g.Name), Why: "the table of partitions has them",
				Link: address("partitions", "group", g.Name, "only", "trouble"), key: fmt.Sprintf("more %d %s", r, g.Name),
			})
		}
	}
	return list
}

// problems are those of one partition.
func (p *partitionState) problems(now time.Time) []problem {
	list := &partitionProblems{partitionState: p, name: fmt.Sprintf("%s[%d]", p.Topic, p.Partition)}
	if p.Kafka != nil {
		list.ofKafka(p.Kafka)
	}
	if p.partitionFacts != nil {
		list.ofProcess(p.partitionFacts, now)
	}
	return list.found
}

// partitionProblems are problems of a partition that are being found.
type partitionProblems struct {
	*partitionState

	name  string
	found []problem
}

func (p *partitionProblems) add(r rank, what, why string, since time.Time) {
	p.found = append(p.found, problem{
		Rank: r, What: p.name + " " + what, Why: why, Since: since, key: p.Group + "\x00" + p.name + "\x00" + what,
		Link: address("partitions", "group", p.Group, "topic", p.Topic) + fmt.Sprintf("#p%d", p.Partition),
	})
}

// ofKafka adds what the brokers know.
func (p *partitionProblems) ofKafka(k *consumer.GroupPartition) {
	if k.Err != nil {
		p.add(down, "cannot be looked at", shownError(k.Err), time.Time{})
	}
	if k.OutOfRange() {
		p.add(down, "has an offset that is not in the log",
			"messages were deleted before they were read, or the topic was created again", time.Time{})
	}
	if k.Member == "" && k.Lag() > 0 {
		p.add(down, "has no owner", "no member of the group has it, and messages wait", time.Time{})
	}
}

// ofProcess adds what the process knows that has it.
func (p *partitionProblems) ofProcess(f *partitionFacts, now time.Time) {
	if f.FetchError != "" {
		p.add(down, "cannot be read", f.FetchError, timeOf(f.UnreadSince))
	}
	if f.OpenTxn != nil && now.Sub(*f.OpenTxn) > openLong {
		p.add(stuck, "waits for a producer's transaction", "messages behind it cannot be read before it ends", *f.OpenTxn)
	}
	switch {
	case f.Failing != nil:
		p.add(stuck, fmt.Sprintf("@%d fails", f.Failing.Offset),
			fmt.Sprintf("%s, %s", f.Failing.ErrorType, times(f.Failing.Attempts)), f.Failing.Since)
	case f.UserPause != nil: // what is open waits for its end
	case f.Oldest != nil && now.Sub(f.Oldest.From()) > openLong:
		p.add(watched, fmt.Sprintf("@%d is open for long", f.Oldest.Offset),
			"it has not failed: its handler takes long, or it waits for its turn", f.Oldest.From())
	}
	if f.UserPause != nil {
		p.add(watched, "is paused by a user", pauseText(f.UserPause), f.UserPause.Since)
	}
	if f.PausedBy == "ahead" {
		p.add(stuck, "is paused", "as many messages as may be were delivered behind one that is not finished", time.Time{})
	}
}

func times(n int) string {
	if n == 1 {
		return "failed once"
	}
	return fmt.Sprintf("failed %d times", n)
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
