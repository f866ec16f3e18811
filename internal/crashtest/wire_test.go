package crashtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// network is what a process reaches a server through. It can be cut: connections break, and no new ones are made. It
// can be frozen: whatever is sent disappears, and no answer comes.
type network struct {
	wrap func(net.Conn) net.Conn

	mu     sync.Mutex
	conns  map[net.Conn]bool
	isCut  bool
	frozen atomic.Bool

	refused atomic.Int32 // connections, while it was cut
}

func newNetwork(wrap func(net.Conn) net.Conn) *network {
	return &network{wrap: wrap, conns: map[net.Conn]bool{}}
}

var errCut = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// Dial is that of golang.org/x/net/proxy, which sarama takes.
func (n *network) Dial(netw, addr string) (net.Conn, error) {
	return n.DialContext(context.Background(), netw, addr)
}

// DialContext is a pgconn.DialFunc.
func (n *network) DialContext(ctx context.Context, netw, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, netw, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isCut {
		_ = conn.Close()
		n.refused.Add(1)
		return nil, errCut
	}
	conn = &freezable{Conn: n.wrap(conn), network: n}
	n.conns[conn] = true
	return conn, nil
}

// cut breaks what is connected, and lets nothing connect until heal.
func (n *network) cut() {
	n.breakAll()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
}

// breakAll breaks what is connected.
func (n *network) breakAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		_ = conn.(*freezable).Conn.Close()
		delete(n.conns, conn)
	}
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = false
	n.frozen.Store(false)
}

func (n *network) forget(conn net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn)
}

// freezable is a connection of a network.
type freezable struct {
	net.Conn
	network *network
}

func (c *freezable) Write(b []byte) (int, error) {
	if c.network.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *freezable) Close() error {
	c.network.forget(c)
	return c.Conn.Close()
}

// databaseConn tells the striker which statements pass.
type databaseConn struct {
	net.Conn
	*striker

	mu       sync.Mutex
	prepared map[string]string // SQL by the statement's name
	awaits   atomic.Bool       // the answer to COMMIT
}

func (s *striker) databaseConn(conn net.Conn) net.Conn {
	return &databaseConn{Conn: conn, striker: s, prepared: map[string]string{}}
}

// Write writes the messages one by one while the event is in the store. pgx writes whole messages only.
func (c *databaseConn) Write(b []byte) (written int, err error) {
	c.learn(b)
	if !c.inStore.Load() {
		return c.Conn.Write(b)
	}
	for len(b) > 0 {
		size := messageSize(b)
		sql := c.sqlOf(b[:size])
		if c.statement(sql, false) {
			return written, net.ErrClosed
		}
		n, err := c.Conn.Write(b[:size])
		written += n
		if err != nil {
			return written, err
		}
		c.awaits.Store(sql == commitText)
		if c.statement(sql, true) {
			return written, net.ErrClosed
		}
		b = b[size:]
	}
	return written, nil
}

// Read strikes when the answer to COMMIT is there, and nobody has read it.
func (c *databaseConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.awaits.Load() && c.inTransaction(commitAnswered) {
		return 0, net.ErrClosed
	}
	return n, err
}

// learn keeps the texts of prepared statements.
func (c *databaseConn) learn(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 5 && b[0] != 0 { // the first messages of a connection have no type
		size := messageSize(b)
		if b[0] == 'P' {
			name, rest := cstring(b[5:size])
			c.prepared[name], _ = cstring(rest)
		}
		b = b[size:]
	}
}

// sqlOf returns the text that a message has the server run, or none.
func (c *databaseConn) sqlOf(message []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch message[0] {
	case 'Q': // Query
		sql, _ := cstring(message[5:])
		return strings.ToLower(sql)
	case 'B': // Bind
		_, rest := cstring(message[5:])
		name, _ := cstring(rest)
		return strings.ToLower(c.prepared[name])
	}
	return ""
}

// messageSize is that of the first message in b: a type, and a length that counts itself.
func messageSize(b []byte) int {
	if len(b) < 5 {
		return len(b)
	}
	return min(len(b), max(5, 1+int(binary.BigEndian.Uint32(b[1:5]))))
}

func cstring(b []byte) (text string, rest []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}

func isRecord(sql string) bool {
	return strings.HasPrefix(sql, "insert into") && strings.Contains(sql, recordTable)
}

// kafkaConn tells the striker which requests pass.
type kafkaConn struct {
	net.Conn
	*striker
}

func (s *striker) kafkaConn(conn net.Conn) net.Conn { return kafkaConn{conn, s} }

func (c kafkaConn) Write(b []byte) (int, error) {
	c.request(b, false)
	n, err := c.Conn.Write(b)
	if err == nil {
		c.request(b, true)
	}
	return n, err
}

// apiKey is that of a request, or -1.
func apiKey(frame []byte) int {
	if len(frame) < 6 {
		return -1
	}
	return int(binary.BigEndian.Uint16(frame[4:6]))
}
