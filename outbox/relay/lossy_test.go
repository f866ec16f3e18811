package relay_test

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// lossy loses the answer to the first produce request: it closes the connection when the answer comes, or holds it back
// (hold).
type lossy struct {
	hold bool
	lost atomic.Bool
	cut  atomic.Bool // the client closed the connection whose answer was held
}

// Dial implements sarama's proxy.Dialer.
func (l *lossy) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, l: l, closed: make(chan struct{})}, nil
}

type lossyConn struct {
	net.Conn
	l        *lossy
	loses    atomic.Bool
	deadline atomic.Pointer[time.Time]
	closed   chan struct{}
	once     atomic.Bool
}

// SetReadDeadline notes until when an answer can be held back.
func (c *lossyConn) SetReadDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetReadDeadline(t)
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if len(b) > 6 && b[4] == 0 && b[5] == 0 && !c.l.lost.Swap(true) {
		c.loses.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil || !c.loses.Load() {
		return n, err
	}
	if c.l.hold {
		select {
		case <-c.closed:
			c.l.cut.Store(true)
		case <-time.After(time.Until(*c.deadline.Load())):
			return 0, os.ErrDeadlineExceeded
		}
	}
	_ = c.Conn.Close()
	return 0, net.ErrClosed
}

func (c *lossyConn) Close() error {
	if !c.once.Swap(true) {
		close(c.closed)
	}
	return c.Conn.Close()
}
