package relay

import (
	"sync"
	"time"
)

// unavailable are partitions that do not take records now, though others do: one without a leader, for example. Their
// rows are passed over for a while, so that they do not hold up the others. It is safe for concurrent use.
type unavailable struct {
	mu    sync.Mutex
	until map[topicPartition]outage
}

// outage is until when a partition is left alone, and how long it is at the next time.
type outage struct {
	until time.Time
	wait  *backoff
}

func newUnavailable() *unavailable { return &unavailable{until: map[topicPartition]outage{}} }

// unknownPartition stands for all of a topic.
const unknownPartition = -1

func (u *unavailable) add(p topicPartition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.until[p]
	if one.wait == nil {
		one.wait = newBackoff(100*time.Millisecond, 5*time.Second)
	}
	if now := time.Now(); now.After(one.until) {
		one.until = now.Add(one.wait.next())
	}
	u.until[p] = one
}

func (u *unavailable) has(p topicPartition) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.until[p].until)
}

func (u *unavailable) remove(p topicPartition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.until, p)
}
