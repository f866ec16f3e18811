package console

import (
	"context"
	"sync"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// groups asks Kafka for groups, each by a source of its own. It is safe for concurrent use.
type groups struct {
	kafka   Kafka
	timeout time.Duration

	mu   sync.Mutex
	list map[string]*source[*consumer.Group]
}

func newGroups(kafka Kafka, timeout time.Duration) *groups {
	return &groups{kafka: kafka, timeout: timeout, list: map[string]*source[*consumer.Group]{}}
}

// maxGroups bounds what is kept: names come from the configuration and from processes.
const maxGroups = 200

// look asks for a group. ok is false if nobody can be asked.
func (g *groups) look(ctx context.Context, name string) (a answer[*consumer.Group], ok bool) {
	s := g.source(name)
	if s == nil {
		return a, false
	}
	return s.look(ctx), true
}

func (g *groups) source(name string) *source[*consumer.Group] {
	if g.kafka == nil || name == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.list[name]
	if s == nil && len(g.list) < maxGroups {
		s = newSource(g.timeout, func(ctx context.Context) (*consumer.Group, error) { return g.kafka.Group(ctx, name) })
		g.list[name] = s
	}
	return s
}
