package relay_test

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// line is how connections are made to a server that can freeze, as one does that is stopped by SIGSTOP: it accepts
// connections and answers nothing. It can refuse connections too, and be out of reach.
type line struct {
	frozen, refused, unreachable atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
}

// Dial implements sarama's proxy.Dialer.
func (l *line) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// DialContext is pgconn's DialFunc.
func (l *line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case l.refused.Load():
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	case l.unreachable.Load():
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Second):
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	return &lineConn{Conn: conn, line: l, closed: make(chan struct{})}, nil
}

// refuse cuts all connections and refuses others.
func (l *line) refuse() {
	l.refused.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

type lineConn struct {
	net.Conn
	line     *line
	deadline atomic.Pointer[time.Time]
	closed   chan struct{}
	once     sync.Once
}

func (c *lineConn) SetDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetDeadline(t)
}

func (c *lineConn) SetReadDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetReadDeadline(t)
}

func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Read gives nothing while the line is frozen, also of what has come already.
func (c *lineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for c.line.frozen.Load() || c.line.unreachable.Load() {
		if d := c.deadline.Load(); d != nil && !d.IsZero() && time.Now().After(*d) {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		case <-time.After(10 * time.Millisecond):
		}
	}
	return n, err
}
