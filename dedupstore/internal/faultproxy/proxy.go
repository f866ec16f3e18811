package faultproxy

import (
	"context"
	"net"
	"sync"
)

// Proxy listens at Addr and connects to its target. It is safe for concurrent use.
type Proxy struct {
	// Addr is host:port.
	Addr string

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	cut     *Cut
	severed bool
	closed  bool
}

// Listen starts a proxy to the target, host:port, at a free port of 127.0.0.1.
func Listen(ctx context.Context, target string) (*Proxy, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: listener.Addr().String(), target: target, listener: listener, links: map[*link]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Close ends the proxy and its connections, and returns when nothing of it runs any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.breakAll()
	p.running.Wait()
	return err
}

// Arm sets the cut, which strikes once: the next statement that it is for. The channel is closed when it has.
func (p *Proxy) Arm(c Cut) (struck <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.struck = make(chan struct{})
	p.cut = &c
	return c.struck
}

// Sever breaks all connections, and any new one as soon as it is made, until Restore.
func (p *Proxy) Sever() {
	p.mu.Lock()
	p.severed = true
	p.mu.Unlock()
	p.breakAll()
}

// Restore ends Sever.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = false
}

func (p *Proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end(Reset)
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	var d net.Dialer
	server, err := d.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close() // as late as a network would say so
		return
	}
	l := newLink(p, client.(*net.TCPConn), server.(*net.TCPConn)) //nolint:forcetypeassert // both are TCP
	if !p.enter(l) {
		l.end(Reset)
		return
	}
	l.run()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.severed || p.closed {
		return false
	}
	p.links[l] = true
	return true
}

// take answers with the cut if it is for this statement. It is disarmed then.
func (p *Proxy) take(sql string) *Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == nil || sql == "" || !p.cut.Statement(sql) {
		return nil
	}
	cut := p.cut
	p.cut = nil
	return cut
}
