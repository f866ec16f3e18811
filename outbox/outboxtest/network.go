package outboxtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// network is the way of a relay to Kafka, which can break.
type network struct {
	mu    sync.Mutex
	away  bool // no connection can be opened
	conns map[net.Conn]struct{}
}

func newNetwork() *network { return &network{conns: map[net.Conn]struct{}{}} }

// use has a client go this way.
func (n *network) use(c *sarama.Config) { c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, n }

var errAway = errors.New("connection refused")

// Dial implements sarama's proxy.Dialer.
func (n *network) Dial(network, address string) (net.Conn, error) {
	n.mu.Lock()
	away := n.away
	n.mu.Unlock()
	if away {
		return nil, errAway
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[conn] = struct{}{}
	return conn, nil
}

// set takes Kafka away, or brings it back. Connections that are open are closed.
func (n *network) set(away bool) {
	n.mu.Lock()
	n.away = away
	n.mu.Unlock()
	n.cut(1)
}

// cut closes a part of the connections.
func (n *network) cut(part float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		if rand.Float64() < part {
			_ = conn.Close()
			delete(n.conns, conn)
		}
	}
}
