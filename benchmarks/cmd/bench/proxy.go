package main

import (
	"context"
	"net"
	"time"
)

// proxy delays what goes over a connection by half a round trip in each direction, as a network does: later bytes are
// not held up by earlier ones. As every piece is delayed equally long, one goroutine delivers those of all connections
// in the order in which they came.
type proxy struct {
	half time.Duration
	way  chan piece // what is on its way
}

// piece is what one read brought; no data is the end of the connection.
type piece struct {
	due  time.Time
	to   net.Conn
	data []byte
}

func newProxy(rtt time.Duration) *proxy {
	p := &proxy{half: rtt / 2, way: make(chan piece, 1<<16)}
	go p.deliver()
	return p
}

// dial connects through the delay.
func (p *proxy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	server, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := inner.Accept(); err == nil {
			accepted <- c
		}
	}()
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		return nil, err
	}
	ours := <-accepted
	go p.read(server, ours)
	go p.read(ours, server)
	return client, nil
}

func (p *proxy) read(to, from net.Conn) {
	for {
		buf := make([]byte, 4<<10)
		n, err := from.Read(buf)
		if n > 0 {
			p.way <- piece{time.Now().Add(p.half), to, buf[:n]}
		}
		if err != nil {
			p.way <- piece{time.Now().Add(p.half), to, nil}
			return
		}
	}
}

func (p *proxy) deliver() {
	for next := range p.way {
		sleep(time.Until(next.due))
		if len(next.data) == 0 {
			_ = next.to.Close()
			continue
		}
		_, _ = next.to.Write(next.data) // an error is seen by its reader
	}
}
