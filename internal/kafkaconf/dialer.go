package kafkaconf

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/IBM/sarama"
)

// Dialer opens the connections of a client and remembers them, so that they can be cut: nothing else ends a request
// that a broker does not answer. It is safe for concurrent use.
type Dialer struct {
	inner interface {
		Dial(network, address string) (net.Conn, error)
	}

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
	avoid map[string]struct{} // addresses to which no connection is opened for now
	halt  bool                // no connection is opened until Resume
	shut  bool                // no connection is opened any more
}

// NewDialer puts itself in front of the dialer that conf would use, and returns itself.
func NewDialer(conf *sarama.Config) *Dialer {
	d := &Dialer{conns: map[*trackedConn]struct{}{}, avoid: map[string]struct{}{}}
	if conf.Net.Proxy.Enable {
		d.inner = conf.Net.Proxy.Dialer
	} else {
		d.inner = &net.Dialer{Timeout: conf.Net.DialTimeout, KeepAlive: conf.Net.KeepAlive, LocalAddr: conf.Net.LocalAddr}
	}
	conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, d
	return d
}

// Dial implements sarama's proxy.Dialer.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	if d.avoids(address) {
		return nil, fmt.Errorf("%s is passed over until it answers: %w", address, errNoGreeting)
	}
	if d.closed() {
		return nil, net.ErrClosed
	}
	conn, err := d.inner.Dial(network, address)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: conn, dialer: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.halt || d.shut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.conns[t] = struct{}{}
	return t, nil
}

// Avoid has Dial refuse an address until Allow.
func (d *Dialer) Avoid(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.avoid[address] = struct{}{}
}

// Allow ends Avoid.
func (d *Dialer) Allow(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.avoid, address)
}

func (d *Dialer) avoids(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, avoid := d.avoid[address]
	return avoid
}

// closed reports whether Halt or End were called.
func (d *Dialer) closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.halt || d.shut
}

// Open reports whether there is an open connection.
func (d *Dialer) Open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns) > 0
}

// Cut closes all connections.
func (d *Dialer) Cut() {
	d.mu.Lock()
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // the request that waits for it gets the error
	}
}

// Halt closes all connections and opens none until Resume: what asks one frozen broker after the other is over at once.
func (d *Dialer) Halt() {
	d.mu.Lock()
	d.halt = true
	d.mu.Unlock()
	d.Cut()
}

// Resume ends Halt.
func (d *Dialer) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.halt = false
}

// End closes all connections and opens no more.
func (d *Dialer) End() {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.Cut()
}

// trackedConn is a connection that its dialer can cut, and of which one can see that it is closed.
type trackedConn struct {
	net.Conn
	dialer *Dialer
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
