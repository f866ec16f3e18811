package status

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
)

// section is a Section with a place for one call.
type section struct {
	name string
	tell Section
	free chan struct{}
}

// ask calls the section on a goroutine of its own, unless an earlier call has not returned.
func (s *section) ask(ctx context.Context) <-chan Answer {
	answer := make(chan Answer, 1) // taken or not
	go func() {
		select {
		case s.free <- struct{}{}:
		case <-ctx.Done():
			answer <- Answer{Error: "an earlier request of this section has not returned"}
			return
		}
		defer func() { <-s.free }()
		answer <- s.answer(ctx)
	}()
	return answer
}

// await returns the answer, or says that there is none. An answer that is there counts, whatever the time.
func await(ctx context.Context, answer <-chan Answer, timeout time.Duration) Answer {
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
	}
	select {
	case a := <-answer:
		return a
	default:
		return Answer{Error: fmt.Sprintf("no answer within %v", timeout)}
	}
}

// answer calls the section and contains what it does.
func (s *section) answer(ctx context.Context) (a Answer) {
	defer func() {
		if v := recover(); v != nil {
			a = Answer{Error: fmt.Sprintf("the section panicked: a %T", v)} // its text may be anything
		}
	}()
	if s.tell == nil {
		return Answer{Error: "the section is nil: give it a function"}
	}
	value, err := s.tell(ctx)
	if err != nil {
		return Answer{Error: text(err.Error())}
	}
	if p, ok := value.(Problemer); ok {
		a.Problem = text(p.Problem())
	}
	if a.Value, err = json.Marshal(value); err != nil {
		return Answer{Error: fmt.Sprintf("a %T has no JSON", value)}
	}
	return a
}

const maxText = 500 // bytes

// text shortens a text and takes from it what looks like a secret.
func text(s string) string {
	shown := redact.Text(s, maxText)
	if len(s) > maxText && len(shown) == maxText {
		shown += "..."
	}
	return shown
}
