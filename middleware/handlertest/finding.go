package handlertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/einmal-go/einmal/consumer/consumertest"
)

// story is what was done with a message.
type story struct {
	event  int    // its index
	upTo   int    // the last message that was delivered; 0 for event itself
	what   string // "when ..."
	hidden bool   // the chain returned nil although the store had failed
	reason reason
}

// judge says in words what is wrong after a message's deliveries, or "".
func (b *bench[Tx]) judge(s story, outs ...*consumertest.Outcome) string {
	b.t.Helper()
	var wrong []string
	for _, out := range outs {
		if out.Err != nil {
			wrong = append(wrong, fmt.Sprintf("it does not get through any more:\n%v", out))
		}
	}
	d := compare(b.effects(), b.want.after[max(s.event, s.upTo)])
	if !d.none() {
		wrong = append(wrong, d.String())
	}
	if len(wrong) == 0 {
		return ""
	}
	reason := s.reason.missing
	if len(d.more) > 0 || d.none() { // what does not get through stumbles over what it left behind
		reason = s.reason.doubled
	}
	if s.hidden {
		reason = hidesFailures
	}
	id := b.want.keys[s.event][0].Event
	return fmt.Sprintf("message %d (event %q), %s:\n%s\n%s", s.event, id, s.what, indent(strings.Join(wrong, "\n")),
		indent(reason))
}

func indent(text string) string { return "\t" + strings.ReplaceAll(text, "\n", "\n\t") }

// difference is how effects differ from those of exactly one delivery.
type difference struct{ more, fewer []change }

type change struct {
	effect    string
	got, want int
}

func (d difference) none() bool { return len(d.more)+len(d.fewer) == 0 }

// compare counts each effect in two sorted lists.
func compare(got, want []string) (d difference) {
	for _, effect := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(got, want)))) {
		c := change{effect: effect, got: count(got, effect), want: count(want, effect)}
		switch {
		case c.got > c.want:
			d.more = append(d.more, c)
		case c.got < c.want:
			d.fewer = append(d.fewer, c)
		}
	}
	return d
}

func count(sorted []string, s string) int {
	first, _ := slices.BinarySearch(sorted, s)
	n := 0
	for first+n < len(sorted) && sorted[first+n] == s {
		n++
	}
	return n
}

const maxChanges = 10 // shown of each kind

// String has a line for each change: "applied twice: ...", "lost: ...". Where something is too much, what is missing
// has changed rather than gone: the sum in a row, for example.
func (d difference) String() string {
	fewer := change.fewer
	if len(d.more) > 0 {
		fewer = change.insteadOf
	}
	return strings.Join(append(lines(d.more, change.more), lines(d.fewer, fewer)...), "\n")
}

func lines(changes []change, text func(change) string) []string {
	var lines []string
	for i, c := range changes {
		if i == maxChanges {
			return append(lines, fmt.Sprintf("and %d more", len(changes)-i))
		}
		lines = append(lines, text(c))
	}
	return lines
}

func (c change) more() string {
	switch {
	case c.want == 0:
		return fmt.Sprintf("one delivery does not make %q", c.effect)
	case c.want == 1 && c.got == 2:
		return fmt.Sprintf("applied twice: %q", c.effect)
	default:
		return fmt.Sprintf("applied %d times instead of %d: %q", c.got, c.want, c.effect)
	}
}

func (c change) fewer() string {
	if c.want == 1 {
		return fmt.Sprintf("lost: %q", c.effect)
	}
	return fmt.Sprintf("there %d times instead of %d: %q", c.got, c.want, c.effect)
}

func (c change) insteadOf() string { return fmt.Sprintf("instead of %q", c.effect) }
