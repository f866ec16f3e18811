package consumertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// Outcome is what became of one delivery.
type Outcome struct {
	Attempts []*consumer.Attempt // in their order, at least one
	Err      error               // of the last attempt; nil if the message has taken effect
	Result   consumer.Result     // of the last attempt
	End      End
}

// End is why a delivery has no further attempt.
type End string

// The ends of a delivery.
const (
	Done      End = "done"      // the message has taken effect: its offset may be committed
	Stopped   End = "stopped"   // OnFailure is Stop: Run would return Err in a *consumer.StopError
	Cancelled End = "cancelled" // ctx was done: the message stays uncommitted and comes again
	Limit     End = "limit"     // of Config.Attempts: the runner would go on
)

func (o *Outcome) add(ctx context.Context, a *consumer.Attempt, limit int) {
	o.Attempts = append(o.Attempts, a)
	o.Err, o.Result = a.Err, a.Message.Result
	switch {
	case a.Err == nil:
		o.End = Done
	case !a.Again && ctx.Err() != nil:
		o.End = Cancelled
	case !a.Again:
		o.End = Stopped
	case len(o.Attempts) >= limit:
		o.End = Limit
	}
}

// Waited is the time for which the message would have been parked between its attempts.
func (o *Outcome) Waited() time.Duration {
	var sum time.Duration
	for _, a := range o.Attempts[:len(o.Attempts)-1] {
		sum += a.Delay
	}
	return sum
}

// String tells the story, a line for each attempt.
func (o *Outcome) String() string {
	var b strings.Builder
	for i, a := range o.Attempts {
		fmt.Fprintf(&b, "attempt %d: %s", i+1, became(a))
		switch {
		case i < len(o.Attempts)-1:
			fmt.Fprintf(&b, "; again after %v\n", a.Delay)
		case o.End == Limit:
			fmt.Fprintf(&b, "; the runner would try again after %v", a.Delay)
		case o.End != Done:
			fmt.Fprintf(&b, "; %s", o.End)
		}
	}
	return b.String()
}

// became says in a few words what an attempt came to.
func became(a *consumer.Attempt) string {
	switch res := a.Message.Result; {
	case a.Err != nil:
		return a.Err.Error()
	case res.Dead:
		return "dead letter"
	case res.Duplicate:
		return "duplicate"
	default:
		return "done"
	}
}
