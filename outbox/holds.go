package outbox

import (
	"sync"
	"time"
)

// holds are partitions that do not take records now, though others do: one without a leader, for example. Their rows are passed over
// for a while, so that they do not hold up the others. It is safe for concurrent use.
type holds struct {
	mu    sync.Mutex
	until map[place]hold
}

type hold struct {
	until time.Time
	wait  *backoff
}

// unknownPartition stands for all of a topic.
const unknownPartition = -1

func (h *holds) add(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.until[p]
	if one.wait == nil {
		one.wait = newBackoff(100*time.Millisecond, 5*time.Second)
	}
	if now := time.Now(); now.After(one.until) {
		one.until = now.Add(one.wait.next())
	}
	h.until[p] = one
}

func (h *holds) held(p place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until[p].until)
}

func (h *holds) release(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, p)
}
