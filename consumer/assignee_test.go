package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// told is a link that is told of partitions.
type told struct {
	mu    sync.Mutex
	heard []string
}

func (l *told) Assigned(topic string, partition int32, inFlight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, fmt.Sprintf("%s %d %d", topic, partition, inFlight))
}

func (l *told) Handle(context.Context, *consumer.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, "message")
	return nil
}

func (l *told) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard)
}

// A link is told of a partition before its first message, each time that it is assigned, and so is one in a branch.
func TestAssignee(t *testing.T) {
	t.Parallel()
	for order, inFlight := range map[consumer.Order]int{consumer.PartitionOrder: 1, consumer.Unordered: 77} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				topic, group := b.Topic(t, 1), serverstest.Group(t)
				b.Produce(t, records(topic, 1, 1)...)
				outer, inner := &told{}, &told{}
				for range 2 {
					cfg := config(b, group, topic, &branching{nop, [][]consumer.Handler{{inner}}})
					cfg.Limits.PartitionMessages = 77
					tc := cfg.Topics[topic]
					tc.Order = order
					tc.Middleware = []consumer.Middleware{func(consumer.Handler) consumer.Handler { return outer }}
					cfg.Topics[topic] = tc
					m := start(t, cfg)
					assigned := fmt.Sprintf("%s 0 %d", topic, inFlight)
					eventually(t, "the link hears of it", func() bool {
						return slices.Contains(outer.all(), assigned) &&
							slices.Contains(outer.all(), "message")
					})
					if got := inner.all(); !slices.Equal(got, []string{assigned}) {
						t.Errorf("the branch has heard %q", got)
					}
					if got := outer.all(); got[0] != assigned {
						t.Errorf("the link has heard %q", got)
					}
					if err := m.stop(); err != nil {
						t.Fatal(err)
					}
					outer.heard, inner.heard = nil, nil
					b.Produce(t, records(topic, 1, 1)...)
				}
			})
		})
	}
}
