package main

import (
	"context"
	"net"
	"time"
)

// proxy delays what goes over a connection by half a round trip in each direction, as a network does: later bytes are not
// held up by earlier ones.
type proxy struct{ half time.Duration }

func newProxy(rtt time.Duration) *proxy { return &proxy{rtt / 2} }

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
	go delay(server, ours, p.half)
	go delay(ours, server, p.half)
	return client, nil
}

type chunk struct {
	due  time.Time
	data []byte
}

// delay copies from src to dst, each piece d after it came.
func delay(dst, src net.Conn, d time.Duration) {
	pieces := make(chan chunk, 1024)
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, 32<<10)
			n, err := src.Read(buf)
			if n > 0 {
				pieces <- chunk{time.Now().Add(d), buf[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		sleep(time.Until(p.due))
		if _, err := dst.Write(p.data); err != nil {
			break
		}
	}
	_ = dst.Close()
	for range pieces { //nolint:revive // drained, so that the reader ends
	}
}
