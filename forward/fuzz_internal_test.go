package forward

import (
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzOurHeaders has a producer write our headers into a retry topic. Whatever they say, a message is due within the
// topic's delay, its attempts grow by those of this topic, and what goes on has each of our headers once.
func FuzzOurHeaders(f *testing.F) {
	f.Add("2026-01-02T15:04:05Z", "3", "2026-01-02T15:04:05Z", "orders", "7", "42")
	f.Add("9999-12-31T23:59:59Z", "2147483647", "0000-01-01T00:00:00Z", "", "-1", "x")
	f.Add("", "-5", "not a time", "\xff", "\x00", strings.Repeat("9", 100))
	f.Fuzz(func(t *testing.T, due, attempts, first, topic, partition, offset string) {
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		s := stage{topic: "orders.retry.10m", delay: 10 * time.Minute}
		msg := &consumer.Message{Topic: s.topic, Partition: 3, Offset: 9, Timestamp: now, EventID: "e", Attempt: 2,
			FirstAttempt: now}
		for _, pair := range [][2]string{
			{RetryDueHeader, due}, {RetryAttemptsHeader, attempts}, {RetryFirstAttemptHeader, first}, {RetryTopicHeader, topic},
			{RetryPartitionHeader, partition},
			{RetryOffsetHeader, offset}, {RetryEventHeader, due},
		} {
			msg.Headers = append(msg.Headers, consumer.Header{Key: pair[0], Value: []byte(pair[1])})
		}
		fuzztest.Bounded(t, len(due)+len(attempts)+len(first)+len(topic)+len(partition)+len(offset), 1<<20, func() {
			if at := s.due(msg); at.After(now.Add(s.delay)) {
				t.Errorf("due at %v", at)
			}
			msg.Earlier = earlier(msg)
			if n := msg.Earlier.Attempts; n < 0 {
				t.Errorf("%d attempts before", n)
			}
			seen := map[string]int{}
			for _, h := range s.event(msg, now).Headers {
				if seen[h.Key]++; strings.HasPrefix(h.Key, retryPrefix) && seen[h.Key] > 1 {
					t.Errorf("%s is there %d times", h.Key, seen[h.Key])
				}
			}
		})
	})
}
