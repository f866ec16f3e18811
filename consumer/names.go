package consumer

import (
	"maps"
	"sync/atomic"
)

// names remembers the names of a topic's headers: the same few come with every message. It is safe for concurrent use.
type names struct {
	known atomic.Pointer[map[string]string]
}

const (
	maxNames = 64 // remembered; names that are made up for each message are not worth it
	maxName  = 64 // bytes
)

// name returns name as a string, without a copy if it is known.
func (n *names) name(name []byte) string {
	known := n.known.Load()
	if known != nil {
		if s, ok := (*known)[string(name)]; ok {
			return s
		}
	}
	s := string(name)
	if len(s) > maxName || known != nil && len(*known) >= maxNames {
		return s
	}
	more := map[string]string{s: s}
	if known != nil {
		maps.Copy(more, *known)
	}
	n.known.CompareAndSwap(known, &more) // if another one was faster, the next message remembers it
	return s
}
