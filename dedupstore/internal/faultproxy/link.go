package faultproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// link is a client's connection and the server's.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	names          names

	cut    atomic.Pointer[Cut] // which strikes at the end of the answer that is under way
	silent atomic.Bool
	once   sync.Once
	done   chan struct{} // closed when the connections are
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	return &link{proxy: p, client: client, server: server, names: names{}, done: make(chan struct{})}
}

// run returns when both directions have ended.
func (l *link) run() {
	var backward sync.WaitGroup
	backward.Go(func() { l.finish(l.backward()) })
	l.finish(l.forward())
	backward.Wait()
}

// finish ends the link when one direction has, unless the other side must not know.
func (l *link) finish(error) {
	if l.silent.Load() {
		<-l.done
	}
	l.end(Close)
}

// end closes both connections; it can be called again.
func (l *link) end(how How) {
	l.once.Do(func() {
		if how == Reset {
			_ = l.client.SetLinger(0)
			_ = l.server.SetLinger(0)
		}
		_, _ = l.client.Close(), l.server.Close()
		close(l.done)
	})
}

var errCut = errors.New("cut")

// strike cuts.
func (l *link) strike(c *Cut) error {
	close(c.struck) // before client and server can know
	if c.How == Silence {
		l.silent.Store(true)
	} else {
		l.end(c.How)
	}
	return errCut
}

// forward passes on what the client says, until a cut.
func (l *link) forward() error {
	from, to := bufio.NewReader(l.client), bufio.NewWriter(l.server)
	read := startupMessage
	for {
		message, sql, err := read(from, l.names)
		if err != nil {
			return err
		}
		read = typedMessage
		if err := l.pass(to, message, l.proxy.take(sql)); err != nil {
			return err
		}
		if from.Buffered() > 0 {
			continue // the rest of a pipeline
		}
		if err := to.Flush(); err != nil {
			return err
		}
	}
}

// pass writes the message as far as the cut lets it.
func (l *link) pass(to *bufio.Writer, message []byte, c *Cut) error {
	switch {
	case c == nil:
	case c.When == Unsent:
		return errors.Join(to.Flush(), l.strike(c))
	case c.When == HalfSent:
		_, _ = to.Write(message[:len(message)/2])
		return errors.Join(to.Flush(), l.strike(c))
	default:
		l.cut.Store(c)
	}
	_, err := to.Write(message)
	return err
}

// backward passes on what the server says, until a cut.
func (l *link) backward() error {
	from, to := bufio.NewReader(l.server), bufio.NewWriter(l.client)
	for {
		message, _, err := typedMessage(from, nil)
		if err != nil {
			return err
		}
		if l.silent.Load() {
			return errCut
		}
		if c := l.cut.Load(); c != nil {
			switch {
			case isEnd(message):
				return errors.Join(to.Flush(), l.strike(c))
			case c.When == Unanswered:
				continue
			}
		}
		if _, err := to.Write(message); err != nil {
			return err
		}
		if from.Buffered() > 0 {
			continue
		}
		if err := to.Flush(); err != nil {
			return err
		}
	}
}

const head = 5 // a type, and the length of what follows with itself

// startupMessage has no type.
func startupMessage(from *bufio.Reader, _ names) (message []byte, sql string, err error) {
	if message, err = whole(from, head-1); err != nil {
		return nil, "", err
	}
	return message, Startup, nil
}

func typedMessage(from *bufio.Reader, known names) (message []byte, sql string, err error) {
	if message, err = whole(from, head); err != nil {
		return nil, "", err
	}
	return message, known.sqlOf(message), nil
}

// whole reads a message whose head has that size and ends with the length.
func whole(from *bufio.Reader, size int) ([]byte, error) {
	message := make([]byte, size, 64)
	if _, err := io.ReadFull(from, message); err != nil {
		return nil, err
	}
	rest := int(binary.BigEndian.Uint32(message[size-4:])) - 4
	if rest < 0 || rest > 1<<26 {
		return nil, errors.New("that is no message of PostgreSQL's protocol: the connection must not be encrypted")
	}
	message = append(message, make([]byte, rest)...)
	_, err := io.ReadFull(from, message[size:])
	return message, err
}
