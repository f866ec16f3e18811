package consumer

import (
	"fmt"
	"maps"
	"slices"
)

// effectNamer is a Brancher whose branches record under names of their own, as the steps of a Sequence do.
type effectNamer interface {
	Brancher
	EffectNames(consumer string) []string // one for each of Branches
}

// effectNames are the names under which the effects of a chain are recorded.
func effectNames(consumer string, links []Handler) []string {
	names := []string{consumer}
	for _, h := range links {
		switch h := h.(type) {
		case effectNamer:
			branches := h.Branches()
			for i, name := range h.EffectNames(consumer) {
				names = append(names, effectNames(name, branches[i])...)
			}
		case Brancher:
			for _, branch := range h.Branches() {
				names = append(names, effectNames(consumer, branch)...)
			}
		}
	}
	return names
}

// validateEffectNames refuses two topics that record under one name, unless they say that their events are the same.
// Each of two different events with equal ids would be taken for a repetition of the other, and one of them would have
// no effect.
func validateEffectNames(p *problems, topics map[string]*topic) {
	first := map[string]*topic{}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		t := topics[name]
		field := fmt.Sprintf("Config.Topics[%q]", name)
		if origin := topics[t.sameEventsAs]; origin != nil && origin.consumer != t.consumer {
			p.add(field, "SameEventsAs is %q, but Consumer is %q here and %q there: an event of both would take effect twice; give both the same Consumer, or leave SameEventsAs out",
				t.sameEventsAs, t.consumer, origin.consumer)
		}
		for _, effect := range t.effects {
			switch other := first[effect]; {
			case other == nil:
				first[effect] = t
			case other.origin() != t.origin():
				p.add(field, "its effects have the name %q, as those of topic %q have: of two events with equal ids only one would take effect. "+
					"Give one of them another Consumer; if the events of one topic are those of the other (it is a copy, or its successor), set SameEventsAs: %q here",
					effect, other.name, other.origin())
			}
		}
	}
}

// origin is the topic whose events the topic has.
func (t *topic) origin() string {
	if t.sameEventsAs != "" {
		return t.sameEventsAs
	}
	return t.name
}
