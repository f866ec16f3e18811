package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// Consumer is one of this process, with what can be done to it. What other processes have, their own consoles do: see
// Process.Console.
type Consumer struct {
	// Name tells it from the others. Required; its group is a good one.
	Name string

	// Levers are the consumer: a *consumer.Consumer has them. Required.
	Levers Levers

	// Replay replays a window by consumer.Replay with the configuration of the consumer, in a job. It must do as rc says.
	// Nil for none.
	Replay func(ctx context.Context, rc consumer.ReplayConfig) (*consumer.ReplayReport, error)
}

// Levers are what can be done to a consumer. They are safe for concurrent use.
type Levers interface {
	Status() consumer.Status
	Pause(req consumer.PauseRequest) error
	Resume(topic string, partitions ...int32) error
	TryNow(topic string, partition int32, offset int64) error
}

// consumerOf returns the one that the arguments name, or the only one.
func (c *Console) consumerOf(args url.Values) (*Consumer, error) {
	name := args.Get("consumer")
	for i := range c.cfg.Consumers {
		if one := &c.cfg.Consumers[i]; one.Name == name || name == "" && len(c.cfg.Consumers) == 1 {
			return one, nil
		}
	}
	return nil, &refusal{http.StatusNotFound, "This process has no such consumer.",
		"The console of the process that has it has its levers. Nothing was done."}
}

func hasLevers(c *Console) bool { return len(c.cfg.Consumers) > 0 }

// leversView is what the page shows of a consumer.
type leversView struct {
	Name    string
	Phase   consumer.Phase
	Topics  []leverTopic
	Pauses  []consumer.Pause
	Failing []consumer.FailingMessage
	Replays bool // a replay is configured
	At      time.Time
}

// leverTopic is a topic with its partitions that this process holds.
type leverTopic struct {
	Topic      string
	Partitions []consumer.PartitionStatus
}

// Whole is the topic's own pause; nil if there is none.
func (v *leversView) Whole(topic string) *consumer.Pause {
	for i := range v.Pauses {
		if v.Pauses[i].Topic == topic && v.Pauses[i].Partition < 0 {
			return &v.Pauses[i]
		}
	}
	return nil
}

// Do is the page that asks whether to do something with a topic, or with a partition of it if that is not negative.
func (v *leversView) Do(verb, topic string, partition int32) string {
	pairs := []string{"consumer", v.Name, "topic", topic}
	if partition >= 0 {
		pairs = append(pairs, "partition", strconv.Itoa(int(partition)))
	}
	return address("do/"+verb, pairs...)
}

// Try is the page that asks whether to try a message now.
func (v *leversView) Try(m consumer.FailingMessage) string {
	return v.Do("try", m.Topic, m.Partition) + "&offset=" + strconv.FormatInt(m.Offset, 10)
}

// Message is its page.
func (v *leversView) Message(m consumer.FailingMessage) string {
	return address("message", "topic", m.Topic, "partition", strconv.Itoa(int(m.Partition)), "offset",
		strconv.FormatInt(m.Offset, 10))
}

// leversPage is the consumers of this process, with their levers.
func (c *Console) leversPage(*http.Request) (title string, body any, err error) {
	var list []*leversView
	for _, one := range c.cfg.Consumers {
		s := one.Levers.Status()
		v := &leversView{Name: one.Name, Phase: s.Phase, Pauses: s.Pauses, Failing: s.Failing, Replays: one.Replay != nil,
			At: time.Now()}
		slices.SortStableFunc(v.Failing,
			func(a, b consumer.FailingMessage) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
		v.Failing = v.Failing[:min(len(v.Failing), perPage)]
		for _, t := range s.Totals.Topics {
			topic := leverTopic{Topic: t.Topic}
			for _, p := range s.Partitions {
				if p.Topic == t.Topic {
					topic.Partitions = append(topic.Partitions, p)
				}
			}
			v.Topics = append(v.Topics, topic)
		}
		list = append(list, v)
	}
	return "Levers", list, nil
}
