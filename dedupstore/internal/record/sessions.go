package record

import (
	"errors"
	"sync"
	"sync/atomic"
)

// ErrChanged is the error of an attempt on a connection whose session is not as it was before: a function has left
// another role, say, or another search_path. The connection is closed, and the attempt is made on another one, the
// function has not run.
var ErrChanged = errors.New("the session was changed")

// Sessions remembers how the sessions begin that a pooler hands out: others have had them before. It is safe for
// concurrent use.
type Sessions struct {
	usual  atomic.Pointer[Session]
	others atomic.Int32 // that were met since the last usual one
}

// mostOthers is after how many sessions that differ nobody has left something behind: the role's or the database's
// settings are new ones.
const mostOthers = 100

// AsEver reports whether a session begins as sessions do. One of a connection's own always does: nobody has had it
// before.
func (s *Sessions) AsEver(now Session, own bool) bool {
	if s.usual.CompareAndSwap(nil, &now) || own {
		return true
	}
	if now.Same(*s.usual.Load()) {
		s.others.Store(0)
		return true
	}
	if s.others.Add(1) <= mostOthers {
		return false
	}
	s.others.Store(0)
	s.usual.Store(&now)
	return true
}

// Processes remembers the session of each of the server's processes, as it was at the first transaction there. It is
// for database/sql, which has no place on a connection where that could be kept. It is safe for concurrent use.
type Processes struct {
	sessions Sessions

	mu    sync.Mutex
	first map[Session]Session // by the process
}

// mostProcesses is how many are remembered. Most of so many have ended.
const mostProcesses = 10_000

// Changed reports whether a session is not what it was at the first transaction of its process, or does not begin as
// sessions do. Its connection must be closed then.
func (p *Processes) Changed(now Session) bool {
	if now == "" { // no answer at all
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	process := now[len(now.settings()):]
	before, known := p.first[process]
	switch {
	case known && now.Same(before):
		return false
	case known:
		delete(p.first, process)
		return true
	case !p.sessions.AsEver(now, false):
		return true
	}
	if p.first == nil || len(p.first) >= mostProcesses {
		p.first = map[Session]Session{}
	}
	p.first[process] = now
	return false
}
