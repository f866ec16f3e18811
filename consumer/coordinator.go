package consumer

import (
	"sync"

	"github.com/IBM/sarama"
)

// groupClient is a client whose group coordinator has a connection of its own. sarama's Broker does one request at a time: on a
// shared connection heartbeats, commits and joins would wait behind fetches that wait for messages.
type groupClient struct {
	sarama.Client

	mu  sync.Mutex
	own *sarama.Broker
}

// Coordinator returns the coordinator of the group on its own connection.
func (g *groupClient) Coordinator(group string) (*sarama.Broker, error) {
	shared, err := g.Client.Coordinator(group)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.own == nil || g.own.Addr() != shared.Addr() {
		g.closeOwn()
		g.own = sarama.NewBroker(shared.Addr())
	}
	_ = g.own.Open(g.Config()) // an error here means that it is open; the first request reports a failed dial
	return g.own, nil
}

// Close closes the connections.
func (g *groupClient) Close() error {
	g.mu.Lock()
	g.closeOwn()
	g.mu.Unlock()
	return g.Client.Close()
}

func (g *groupClient) closeOwn() {
	if g.own != nil {
		_ = g.own.Close() // it may never have been open
		g.own = nil
	}
}
