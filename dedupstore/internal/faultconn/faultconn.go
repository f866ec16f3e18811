// Package faultconn is for tests of stores on PostgreSQL: it counts the round trips of connections, and breaks one of
// them at the moment of a COMMIT that matters. It sits between a driver and its socket, where each Write of the driver
// is whole messages, so that nothing depends on timing. The connections must not be encrypted.
package faultconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
)

// Moment is when a connection breaks.
type Moment int32

// The moments of Dialer.Break.
const (
	Never        Moment = iota
	BeforeCommit        // COMMIT is not sent; the connection is closed
	AfterCommit         // COMMIT is sent, the server answers; the answer is thrown away and the connection is closed
	CommitHangs         // COMMIT is sent, the server answers; the answer is thrown away
)

var errBroken = errors.New("faultconn: broken on purpose")

// Dialer opens connections. It is safe for concurrent use.
type Dialer struct {
	next  atomic.Int32 // the Moment of the next COMMIT
	trips atomic.Int64
}

// Break breaks the connection of the next COMMIT, and that one only.
func (d *Dialer) Break(at Moment) { d.next.Store(int32(at)) }

// Trips returns how often a driver sent something after it had received something, over all connections: a pipeline is
// one round trip.
func (d *Dialer) Trips() int { return int(d.trips.Load()) }

// DialContext is net.Dialer's.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	answered := &conn{Conn: c, dialer: d}
	answered.idle.Store(true)
	return answered, nil
}

type conn struct {
	net.Conn
	dialer *Dialer
	idle   atomic.Bool  // the next Write begins a round trip
	broken atomic.Int32 // the Moment at which this connection breaks, once it has come

	prepared   []byte // the name of the statement that is COMMIT, if there is one; used by Write only
	isPrepared bool
}

func (c *conn) Write(b []byte) (int, error) {
	if c.idle.Swap(false) {
		c.dialer.trips.Add(1)
	}
	if c.commits(b) {
		at := c.dialer.next.Swap(int32(Never))
		c.broken.Store(at)
		if Moment(at) == BeforeCommit {
			return 0, errors.Join(errBroken, c.Close())
		}
	}
	return c.Conn.Write(b)
}

// commits reports whether COMMIT is among the messages: as a simple query, in which drivers send a text without
// parameters, or as a statement, with or without a name.
func (c *conn) commits(b []byte) (found bool) {
	for len(b) >= head {
		end := 1 + int(binary.BigEndian.Uint32(b[1:]))
		if end < head || end > len(b) {
			return found // not of this protocol, as the first message of a connection
		}
		texts := bytes.Split(b[head:end], []byte{0})
		switch b[0] {
		case 'Q':
			found = found || isCommit(texts[0])
		case 'P': // parse: the statement's name, its text
			if len(texts) > 1 && isCommit(texts[1]) {
				c.prepared, c.isPrepared = bytes.Clone(texts[0]), true
			} else if bytes.Equal(texts[0], c.prepared) {
				c.isPrepared = false
			}
		case 'B': // bind: the portal's name, the statement's name
			found = found || c.isPrepared && len(texts) > 1 && bytes.Equal(texts[1], c.prepared)
		}
		b = b[end:]
	}
	return found
}

// head is the length of a message's type and length.
const head = 5

func isCommit(text []byte) bool { return bytes.EqualFold(text, []byte("commit")) }

func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if n > 0 {
			c.idle.Store(true)
		}
		if err != nil {
			return n, err
		}
		switch Moment(c.broken.Load()) {
		case AfterCommit:
			return 0, errors.Join(errBroken, c.Close())
		case CommitHangs: // wait for what never comes, or for the deadline
		default:
			return n, nil
		}
	}
}
