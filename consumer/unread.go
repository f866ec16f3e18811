package consumer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Unread is a topic, or a partition that this process holds, that cannot be read now, because the brokers do not know
// it or it has no leader. They are asked again, every second or two at first.
type Unread struct {
	Topic     string
	Partition int32 // -1 for the whole topic
	Since     time.Time
	Reason    string
}

func (u Unread) name() string {
	if u.Partition < 0 {
		return fmt.Sprintf("topic %q", u.Topic)
	}
	return partitionName(u.Topic, u.Partition)
}

// unreads is what a Consumer cannot read. It is safe for concurrent use.
type unreads struct {
	mu  sync.Mutex
	all map[partitionKey]Unread
}

type partitionKey struct {
	topic     string
	partition int32
}

// note adds what is unread, or takes it away. It reports whether that is news.
func (u *unreads) note(topic string, partition int32, unread bool, reason string) (changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := partitionKey{topic, partition}
	was, known := u.all[key]
	switch {
	case !unread:
		delete(u.all, key)
		return known
	case known:
		was.Reason = reason
	default:
		was = Unread{topic, partition, time.Now(), reason}
	}
	if u.all == nil {
		u.all = map[partitionKey]Unread{}
	}
	u.all[key] = was
	return !known
}

// keep forgets the partitions, not the topics, that are not in held.
func (u *unreads) keep(held map[string][]int32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.all, func(key partitionKey, _ Unread) bool {
		return key.partition >= 0 && !slices.Contains(held[key.topic], key.partition)
	})
}

// topics reports whether a whole topic is unread.
func (u *unreads) topics() bool {
	return slices.ContainsFunc(u.list(), func(un Unread) bool { return un.Partition < 0 })
}

func (u *unreads) list() []Unread {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.SortedFunc(maps.Values(u.all), func(a, b Unread) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
