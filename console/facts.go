package console

import (
	"fmt"

	"github.com/einmal-go/einmal/internal/statusfacts"
	"github.com/einmal-go/einmal/status"
)

// The facts are what processes tell, under names that can be embedded beside a topic or a partition of that name.
type (
	report         = statusfacts.Report
	consumerFacts  = statusfacts.Consumer
	partitionFacts = statusfacts.Partition
	outboxFacts    = statusfacts.Outbox
	deadFacts      = statusfacts.DeadLetters
	janitorFacts   = statusfacts.Janitor
)

// readReport reads what a process has told. A section that cannot be read is one with an error.
func readReport(text []byte) (*report, error) {
	r, err := statusfacts.Read(text)
	if err != nil {
		return nil, err
	}
	for name := range r.Unreadable {
		r.Sections[name] = status.Answer{Error: "its value cannot be read: does the process have another version of einmal?"}
	}
	return r, nil
}

// pauseText tells of a user's pause in a sentence.
func pauseText(p *statusfacts.Pause) string {
	text := fmt.Sprintf("by %s: %s", p.By, p.Why)
	if p.Until == nil {
		return text + "; until it is resumed"
	}
	return text + "; until " + p.Until.UTC().Format(shownForm)
}
