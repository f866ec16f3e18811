package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// state is what all sources have told at one time.
type state struct {
	At        time.Time
	Processes []processState
	Groups    []*groupState
	Outboxes  []outboxState
	Dead      []deadState
	Janitors  []janitorState
	Tables    []tableState
	Problems  []problem // the most urgent first
}

type processState struct {
	*process

	Answer answer[*report]
}

// groupState is a consumer group, as its processes and Kafka know it.
type groupState struct {
	Name       string
	Consumers  []memberState
	Kafka      *answer[*consumer.Group] // nil if it was not asked
	Partitions []*partitionState        // by topic and partition
}

// memberState is a consumer of a group in a process that has answered.
type memberState struct {
	Process, Section string
	*consumerFacts
}

// partitionState is a partition, as the process that has it and Kafka know it. Either can be nil.
type partitionState struct {
	Group, Topic string
	Partition    int32
	Process      string // that has it, of those that have answered
	Owner        string // the member that Kafka knows; "" for none, or not known
	*partitionFacts

	Kafka *consumer.GroupPartition
}

type outboxState struct {
	Process, Section, Problem string
	*outboxFacts
}

type deadState struct {
	Process, Section string
	*deadFacts
}

type janitorState struct {
	Process, Section, Problem string
	*janitorFacts
}

// look asks all sources, side by side.
func (c *Console) look(ctx context.Context) *state {
	s := &state{At: time.Now()}
	s.Processes = make([]processState, len(c.processes))
	var all sync.WaitGroup
	for i, p := range c.processes {
		all.Go(func() { s.Processes[i] = processState{p, p.report.look(ctx)} })
	}
	s.Tables = c.newTableStates()
	for i, t := range c.tables {
		all.Go(func() { s.Tables[i].answer = t.look(ctx) })
	}
	all.Wait()
	byName := map[string]*groupState{}
	for _, p := range s.Processes {
		if p.Answer.Err == nil {
			s.take(p.Name, p.Answer.Value, byName)
		}
	}
	for _, name := range c.cfg.Groups {
		groupOf(byName, name)
	}
	s.Groups = slices.SortedFunc(maps.Values(byName), func(a, b *groupState) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range s.Groups {
		all.Go(func() { g.askKafka(ctx, c.groups) })
	}
	all.Wait()
	s.Problems = c.problems(s)
	return s
}

func groupOf(byName map[string]*groupState, name string) *groupState {
	if byName[name] == nil {
		byName[name] = &groupState{Name: name}
	}
	return byName[name]
}

// take adds what a process has told.
func (s *state) take(process string, r *report, byName map[string]*groupState) {
	for _, name := range slices.Sorted(maps.Keys(r.Sections)) {
		problem := cmp.Or(r.Sections[name].Error, r.Sections[name].Problem)
		if f := r.Consumers[name]; f != nil {
			groupOf(byName, f.Group).takeConsumer(process, name, f)
		}
		if f := r.Outboxes[name]; f != nil {
			s.Outboxes = append(s.Outboxes, outboxState{process, name, problem, f})
		}
		if f := r.Dead[name]; f != nil {
			s.Dead = append(s.Dead, deadState{process, name, f})
		}
		if f := r.Janitors[name]; f != nil {
			s.Janitors = append(s.Janitors, janitorState{process, name, problem, f})
		}
	}
}

// takeConsumer adds the partitions of a consumer. Of two that have the same one, the later has it: the other has not
// noticed yet.
func (g *groupState) takeConsumer(process, section string, f *consumerFacts) {
	g.Consumers = append(g.Consumers, memberState{process, section, f})
	for i := range f.Partitions {
		told := &f.Partitions[i]
		if p := g.at(told.Topic, told.Partition); p.partitionFacts == nil || p.Assigned.Before(told.Assigned) {
			p.Process, p.partitionFacts = process, told
		}
	}
}

// at returns a partition, which may be new.
func (g *groupState) at(topic string, partition int32) *partitionState {
	i, found := slices.BinarySearchFunc(g.Partitions, 0, func(p *partitionState, _ int) int {
		return cmp.Or(strings.Compare(p.Topic, topic), cmp.Compare(p.Partition, partition))
	})
	if !found {
		g.Partitions = slices.Insert(g.Partitions, i, &partitionState{Group: g.Name, Topic: topic, Partition: partition})
	}
	return g.Partitions[i]
}

// askKafka adds what the brokers know.
func (g *groupState) askKafka(ctx context.Context, kafka *groups) {
	a, ok := kafka.look(ctx, g.Name)
	if !ok {
		return
	}
	if g.Kafka = &a; a.Err != nil {
		return
	}
	owners := map[string]string{}
	for _, m := range a.Value.Members {
		owners[m.ID] = memberName(m)
	}
	for i := range a.Value.Partitions {
		told := &a.Value.Partitions[i]
		p := g.at(told.Topic, told.Partition)
		p.Kafka, p.Owner = told, owners[told.Member]
	}
}

func memberName(m consumer.GroupMember) string {
	name := cmp.Or(m.InstanceID, m.ClientID)
	if m.Host == "" {
		return name
	}
	return name + " at " + m.Host
}

// Lag is that of the process that has the partition, which is fresher, or else Kafka's; nil if neither is known.
func (p *partitionState) Lag() *int64 {
	if p.partitionFacts != nil && p.partitionFacts.Lag != nil {
		return p.partitionFacts.Lag
	}
	if p.Kafka != nil {
		return known(p.Kafka.Lag())
	}
	return nil
}

// Committed is the group's offset; nil if it is not known.
func (p *partitionState) Committed() *int64 {
	if p.partitionFacts != nil && p.partitionFacts.Committed != nil {
		return p.partitionFacts.Committed
	}
	if p.Kafka != nil {
		return known(p.Kafka.Committed)
	}
	return nil
}

// End is that of the log; nil if it is not known.
func (p *partitionState) End() *int64 {
	if p.Kafka != nil {
		return known(p.Kafka.End)
	}
	return nil
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// Lag is the sum over the partitions; nil if one of them is not known.
func sumOf(list []*partitionState, of func(*partitionState) *int64) *int64 {
	var sum int64
	for _, p := range list {
		n := of(p)
		if n == nil {
			return nil
		}
		sum += *n
	}
	return &sum
}

// topicState is a topic of a group.
type topicState struct {
	Group, Topic string
	Partitions   []*partitionState
}

// Topics are those of the group, in their order.
func (g *groupState) Topics() (list []topicState) {
	for _, p := range g.Partitions {
		if n := len(list); n == 0 || list[n-1].Topic != p.Topic {
			list = append(list, topicState{Group: g.Name, Topic: p.Topic})
		}
		t := &list[len(list)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return list
}

// Lag is the sum of the partitions'; nil if one is not known.
func (t *topicState) Lag() *int64 { return sumOf(t.Partitions, (*partitionState).Lag) }

// Oldest is since when the message that has been open the longest could have been handled; zero if none is open, or
// nobody tells.
func (t *topicState) Oldest() (at time.Time) {
	for _, p := range t.Partitions {
		if p.partitionFacts == nil || p.partitionFacts.Oldest == nil {
			continue
		}
		if from := p.partitionFacts.Oldest.From(); at.IsZero() || from.Before(at) {
			at = from
		}
	}
	return at
}

// Failing counts the partitions in which a message fails.
func (t *topicState) Failing() (n int) {
	for _, p := range t.Partitions {
		if p.partitionFacts != nil && p.partitionFacts.Failing != nil {
			n++
		}
	}
	return n
}
