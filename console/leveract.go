package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// placeArgs are what a lever is pulled for: a topic, and perhaps one of its partitions.
type placeArgs struct {
	*Consumer

	topic     string
	partition int32 // -1 for the whole topic
}

// placeOf reads them. It looks whether the consumer has the topic.
func (c *Console) placeOf(args url.Values) (*placeArgs, error) {
	one, err := c.consumerOf(args)
	if err != nil {
		return nil, err
	}
	p := &placeArgs{Consumer: one, topic: args.Get("topic"), partition: -1}
	if text := strings.TrimSpace(args.Get("partition")); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, wrongArg("%q is no number of a partition.", text)
		}
		p.partition = int32(n)
	}
	for _, t := range one.Levers.Status().Totals.Topics {
		if t.Topic == p.topic {
			return p, nil
		}
	}
	return nil, wrongArg("The consumer has no topic %q.", p.topic)
}

// partitions are the argument of Pause and Resume.
func (p *placeArgs) partitions() []int32 {
	if p.partition < 0 {
		return nil
	}
	return []int32{p.partition}
}

func (p *placeArgs) target() string {
	if p.partition < 0 {
		return p.Name + ": " + p.topic
	}
	return fmt.Sprintf("%s: %s[%d]", p.Name, p.topic, p.partition)
}

// leverRefused is the refusal for what a consumer does not do.
func leverRefused(err error) error {
	return &refusal{http.StatusConflict, "The consumer does not do this.", shownError(err) + ". Nothing was done."}
}

// pauseDurations are for how long something can be paused, in words that time.ParseDuration knows.
var pauseDurations = []string{"5m", "15m", "1h", "8h", "24h", forGood}

// forGood is a pause without an end.
const forGood = "until it is resumed"

// pausePartitions pauses a topic or a partition.
var pausePartitions = deed{
	verb: "pause", title: "Pause", button: "Pause it",
	prepare: func(_ context.Context, c *Console, args url.Values) (*plan, error) {
		p, err := c.placeOf(args)
		if err != nil {
			return nil, err
		}
		return &plan{
			Target: p.target(), Back: "levers",
			Says: []string{
				"No message of it is begun in this process, and none is fetched. What is in work finishes, the partitions stay with this process, and nothing is lost.",
				"Other processes of the group go on with their partitions of the topic: pause them in their own consoles.",
			},
			Fields: []field{{Name: "for", Label: "For how long", Value: valueOf(args, "for", "1h"), Options: pauseDurations}},
		}, nil
	},
	do: func(_ context.Context, c *Console, args url.Values, e *Entry) (outcome, error) {
		p, err := c.placeOf(args)
		if err != nil {
			return outcome{}, err
		}
		var until time.Time
		if text := args.Get("for"); text != forGood {
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				return outcome{}, wrongArg("%q is no duration: write 15m, or 2h.", text)
			}
			until = time.Now().Add(d)
		}
		const mostBy = 256 // bytes that Pause takes
		by := strings.ToValidUTF8(e.Who[:min(len(e.Who), mostBy)], "")
		if err := p.Levers.Pause(consumer.PauseRequest{Topic: p.topic, Partitions: p.partitions(), By: by, Why: e.Reason,
			Until: until}); err != nil {
			return outcome{}, leverRefused(err)
		}
		return outcome{Count: 1, Next: "levers"}, nil
	},
}

// resumePartitions ends a pause.
var resumePartitions = deed{
	verb: "resume", title: "Resume", button: "Resume it",
	prepare: func(_ context.Context, c *Console, args url.Values) (*plan, error) {
		p, err := c.placeOf(args)
		if err != nil {
			return nil, err
		}
		plan := &plan{Target: p.target(), Back: "levers"}
		for _, pause := range p.Levers.Status().Pauses {
			if pause.Topic == p.topic && (p.partition < 0 || p.partition == pause.Partition) {
				plan.Says = append(plan.Says, fmt.Sprintf("It was paused by %s at %s: %s.", pause.By,
					pause.Since.UTC().Format(time.RFC3339), pause.Why))
			}
		}
		plan.Says = append(plan.Says, "What waits is handled at once.")
		return plan, nil
	},
	do: func(_ context.Context, c *Console, args url.Values, _ *Entry) (outcome, error) {
		p, err := c.placeOf(args)
		if err != nil {
			return outcome{}, err
		}
		if err := p.Levers.Resume(p.topic, p.partitions()...); err != nil {
			return outcome{}, leverRefused(err)
		}
		return outcome{Count: 1, Next: "levers"}, nil
	},
}

// tryMessage has a parked message tried now.
var tryMessage = deed{
	verb: "try", title: "Try a message now", button: "Try it now",
	prepare: func(_ context.Context, c *Console, args url.Values) (*plan, error) {
		p, offset, err := c.messageOf(args)
		if err != nil {
			return nil, err
		}
		return &plan{
			Target: fmt.Sprintf("%s@%d", p.target(), offset), Back: "levers",
			Says: []string{"Its next attempt begins at once, and counts as any other. What is ordered behind it goes on waiting for it."},
		}, nil
	},
	do: func(_ context.Context, c *Console, args url.Values, _ *Entry) (outcome, error) {
		p, offset, err := c.messageOf(args)
		if err != nil {
			return outcome{}, err
		}
		if err := p.Levers.TryNow(p.topic, p.partition, offset); err != nil {
			return outcome{}, leverRefused(err)
		}
		return outcome{Count: 1, Says: "It is tried now: the page of levers shows whether it still fails."}, nil
	},
}

func (c *Console) messageOf(args url.Values) (*placeArgs, int64, error) {
	p, err := c.placeOf(args)
	if err != nil {
		return nil, 0, err
	}
	offset, err := strconv.ParseInt(args.Get("offset"), 10, 64)
	if err != nil || offset < 0 || p.partition < 0 {
		return nil, 0, wrongArg("Name a partition and an offset.")
	}
	return p, offset, nil
}
