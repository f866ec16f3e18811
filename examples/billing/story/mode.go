package story

import (
	"fmt"
	"strings"
)

// Mode is who has written the services of a story.
type Mode string

// The modes.
const (
	Einmal  Mode = ""        // with einmal
	Plain   Mode = "plain"   // as many begin: commit, publish and call, one after the other
	Careful Mode = "careful" // by hand, with all that a careful team knows
)

// modes are all, in the order of the columns.
var modes = []Mode{Einmal, Careful, Plain}

func (m Mode) title() string {
	if m == Einmal {
		return "einmal"
	}
	return string(m)
}

func (m Mode) heading() string {
	switch m {
	case Plain:
		return "With plain services: no outbox, no records of what was done, a new key for each attempt"
	case Careful:
		return "With a careful team's own code: unique keys, offsets after the commit, an outbox and its loop, a key for each call"
	default:
		return "With einmal"
	}
}

// damage says what services without einmal did: what is doubled and what is missing, by ledger, and what that cost the
// customers.
func (m Mode) damage(f Figures) string {
	if f.Exact() {
		return string(m) + ": this time every order was charged once. Other seeds and more kills show other stories."
	}
	var said strings.Builder
	for i, l := range f.Ledgers {
		if l.Doubled == 0 && l.Missing == 0 {
			fmt.Fprintf(&said, " %s exact;", ledgers[i].title)
			continue
		}
		fmt.Fprintf(&said, " %s %s too many, %s missing;", ledgers[i].title, thousands(int64(l.Doubled)),
			thousands(int64(l.Missing)))
	}
	return fmt.Sprintf("%s:%s the customers paid %s instead of %s.", string(m), said.String(), money(f.paid().Cents),
		money(f.Expected))
}
