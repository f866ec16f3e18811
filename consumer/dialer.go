package consumer

import (
	"net"
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
	t := &trackedConn{Conn: conn, dialer: d, closed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.conns[t] = struct{}{}
	return t, nil
}

// cut closes all connections and opens no more.
func (d *dialer) cut() {
	d.mu.Lock()
	d.shut = true
	conns := d.conns
	d.conns = map[*trackedConn]struct{}{}
	d.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// trackedConn is a connection that its dialer can cut, and of which one can see that it is closed.
type trackedConn struct {
	net.Conn
	dialer *dialer
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.dialer.mu.Lock()
		delete(c.dialer.conns, c)
		c.dialer.mu.Unlock()
	})
	return c.Conn.Close()
}
