// Package faultconn is for tests of stores on PostgreSQL: it counts the round trips of connections, and breaks one of them
// at the moment of a COMMIT that matters. It sits between a driver and its socket, where each Write of the driver is whole
// messages, so that nothing depends on timing. The connections must not be encrypted.
package faultconn

import (
	"bytes"
	"context"
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

// Trips returns how often a driver sent something after it had received something, over all connections: a pipeline is one
// round trip.
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
}

func (c *conn) Write(b []byte) (int, error) {
	if c.idle.Swap(false) {
		c.dialer.trips.Add(1)
	}
	if isCommit(b) {
		at := c.dialer.next.Swap(int32(Never))
		c.broken.Store(at)
		if Moment(at) == BeforeCommit {
			return 0, errors.Join(errBroken, c.Close())
		}
	}
	return c.Conn.Write(b)
}

// isCommit finds the simple query, in which every driver sends a text without parameters. The letters may be part of an
// id, but not with the message's own head.
func isCommit(b []byte) bool {
	return bytes.Contains(bytes.ToLower(b), []byte("q\x00\x00\x00\x0bcommit\x00"))
}

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
