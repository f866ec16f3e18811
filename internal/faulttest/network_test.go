package faulttest

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// network is what one member reaches the brokers through.
type network struct {
	mu      sync.Mutex
	links   map[*link]bool
	blocked map[string]blockade // by address
	next    *cut                // what is cut next
}

// blockade is how an address cannot be reached.
type blockade int

const (
	free      blockade = iota
	refused            // connections break, and no new ones are made
	swallowed          // connections are made and stay, and nothing comes through them
)

// cut breaks one connection in the middle of a request or of its answer.
type cut struct {
	api   int16
	stage stage
	done  chan struct{}
}

type stage string

const (
	halfRequest stage = "half of the request is sent"
	wholeOnly   stage = "the request is sent, its answer is not read"
	halfAnswer  stage = "half of the answer is read"
)

const (
	apiFetch        = 1
	apiOffsetCommit = 8
)

func newNetwork() *network { return &network{links: map[*link]bool{}, blocked: map[string]blockade{}} }

func (n *network) install(c *sarama.Config) { c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, n }

// Dial is that of golang.org/x/net/proxy, which sarama takes.
func (n *network) Dial(netw, addr string) (net.Conn, error) {
	if n.blockade(addr) == refused {
		return nil, &net.OpError{Op: "dial", Net: netw, Err: syscall.ECONNREFUSED}
	}
	conn, err := net.DialTimeout(netw, addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, network: n, addr: addr}
	n.mu.Lock()
	defer n.mu.Unlock()
	l.mute.Store(n.blocked[addr] == swallowed)
	n.links[l] = true
	return l, nil
}

func (n *network) blockade(addr string) blockade {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.blocked[addr]
}

// block makes an address unreachable.
func (n *network) block(addr string, b blockade) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked[addr] = b
	for l := range n.links {
		if l.addr == addr {
			l.mute.Store(b == swallowed)
			if b == refused {
				_ = l.Conn.Close()
			}
		}
	}
}

// heal makes all reachable again. Connections that swallowed something break.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.blocked)
	for l := range n.links {
		if l.mute.Load() {
			_ = l.Conn.Close()
		}
	}
}

// cutNext has the next request of a kind cut; done is closed when it was.
func (n *network) cutNext(api int16, s stage) (done <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next = &cut{api, s, make(chan struct{})}
	return n.next.done
}

// take returns the cut if the request is the one that it is for.
func (n *network) take(api int16) *cut {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.next
	if c == nil || c.api != api {
		return nil
	}
	n.next = nil
	return c
}

// link is one connection.
type link struct {
	net.Conn
	network *network
	addr    string
	mute    atomic.Bool
	half    atomic.Pointer[cut] // to be made when half of the answer is read
}

// Write gets whole requests: sarama writes them so.
func (l *link) Write(b []byte) (int, error) {
	if l.mute.Load() {
		return len(b), nil
	}
	c := l.network.take(apiKey(b))
	if c == nil {
		return l.Conn.Write(b)
	}
	switch c.stage {
	case halfRequest:
		n, _ := l.Conn.Write(b[:len(b)/2])
		l.cut(c)
		return n, net.ErrClosed
	case wholeOnly:
		n, err := l.Conn.Write(b)
		l.cut(c)
		return n, err
	default:
		l.half.Store(c)
		return l.Conn.Write(b)
	}
}

func (l *link) Read(b []byte) (int, error) {
	c := l.half.Load()
	if c != nil && len(b) > 8 { // the header is less
		b = b[:len(b)/2]
	}
	for {
		n, err := l.Conn.Read(b)
		if err == nil && l.mute.Load() {
			continue
		}
		if c != nil && n > 8 && l.half.CompareAndSwap(c, nil) {
			l.cut(c)
		}
		return n, err
	}
}

func (l *link) cut(c *cut) {
	_ = l.Conn.Close()
	close(c.done)
}

func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.links, l)
	l.network.mu.Unlock()
	return l.Conn.Close()
}

// apiKey is that of a request, or -1.
func apiKey(frame []byte) int16 {
	if len(frame) < 6 {
		return -1
	}
	return int16(binary.BigEndian.Uint16(frame[4:6]))
}
