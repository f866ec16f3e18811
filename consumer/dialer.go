package consumer

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/IBM/sarama"
)

// dialer opens the connections of a client and remembers them, so that they can be cut: nothing else ends a request that a broker
// does not answer.
type dialer struct {
	inner interface {
		Dial(network, address string) (net.Conn, error)
	}

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
	shut  bool // no connection is opened any more
}

// newDialer puts itself in front of the dialer that conf would use, and returns itself.
func newDialer(conf *sarama.Config) *dialer {
	d := &dialer{conns: map[*trackedConn]struct{}{}}
	if conf.Net.Proxy.Enable {
		d.inner = conf.Net.Proxy.Dialer
	} else {
		d.inner = &net.Dialer{Timeout: conf.Net.DialTimeout, KeepAlive: conf.Net.KeepAlive, LocalAddr: conf.Net.LocalAddr}
	}
	conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, d
	return d
}

// Dial implements sarama's proxy.Dialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.inner.Dial(network, address)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: conn, dialer: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.conns[t] = struct{}{}
	return t, nil
}

// open reports whether there is an open connection.
func (d *dialer) open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns) > 0
}

// cut closes all connections.
func (d *dialer) cut() {
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // the request that waits for it gets the error
	}
}

// end closes all connections and opens no more.
func (d *dialer) end() {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.cut()
}

// trackedConn is a connection that its dialer can cut, and of which one can see that it is closed.
type trackedConn struct {
	net.Conn
	dialer *dialer
}

// Read notes the end of the connection when it comes from the other side.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.forget()
	}
	return n, err
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func (c *trackedConn) forget() {
	c.dialer.mu.Lock()
	defer c.dialer.mu.Unlock()
	delete(c.dialer.conns, c)
}
