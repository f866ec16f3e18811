package relay

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/names"
)

// blockedLog logs rows that were blocked, at once and then every 10 s at most: a topic that is missing blocks every
// key that is sent to it. It is safe for concurrent use.
type blockedLog struct {
	log *slog.Logger

	mu      sync.Mutex
	last    time.Time
	byTopic map[string]*blockedRows
}

// blockedRows are those of a topic that were not logged yet.
type blockedRows struct {
	n     int
	first *row
}

const (
	blockedLogEvery  = 10 * time.Second
	blockedLogTopics = 10 // with a line of their own
)

func (l *blockedLog) add(rows []*row) {
	l.mu.Lock()
	for _, r := range rows {
		one := l.byTopic[r.topic]
		if one == nil {
			if l.byTopic == nil {
				l.byTopic = map[string]*blockedRows{}
			}
			one = &blockedRows{first: r}
			l.byTopic[r.topic] = one
		}
		one.n++
	}
	l.mu.Unlock()
	l.flush(false)
}

// flush logs what there is, if it is time for it.
func (l *blockedLog) flush(now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byTopic) == 0 || !now && time.Since(l.last) < blockedLogEvery {
		return
	}
	topics := slices.Sorted(maps.Keys(l.byTopic))
	for _, topic := range topics[:min(len(topics), blockedLogTopics)] {
		one := l.byTopic[topic]
		l.log.Error("outbox: events cannot be sent; each blocks its key until it is retried or discarded",
			slog.Int("rows", one.n), slog.String(string(names.Topic), topic), slog.Int64("first_id", one.first.id),
			slog.Any("error", one.first.err))
		delete(l.byTopic, topic)
	}
	rest := 0
	for _, one := range l.byTopic {
		rest += one.n
	}
	if rest > 0 {
		l.log.Error("outbox: events to other topics cannot be sent either: einmal outbox list -state BLOCKED shows them",
			slog.Int("rows", rest), slog.Int("topics", len(l.byTopic)))
	}
	l.byTopic, l.last = nil, time.Now()
}
