package consumer_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
)

// Commits that the coordinator refuses without sarama telling are told by the log, with their length, and by Status;
// nobody takes them for a partition that cannot be read.
func TestCommitsThatStopAreTold(t *testing.T) {
	t.Parallel()
	for _, answer := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
		kerr.GroupAuthorizationFailed} {
		t.Run(answer.Message, func(t *testing.T) {
			t.Parallel()
			b, topic, group := backlog(t, 1, 5)
			var log lines
			var s seen
			cfg := config(b, group, topic, &s)
			cfg.Logger = log.logger()
			m := start(t, cfg)
			eventually(t, "all is committed", func() bool {
				return anyPartition(m, func(p consumer.PartitionStatus) bool { return p.Committed == 5 && p.Uncommitted.IsZero() })
			})
			if strings.Contains(log.String(), "not committed any more") {
				t.Errorf("told of commits that did not stop:\n%s", &log)
			}
			refused := b.Fake.Fault(forever(kmsg.OffsetCommit, answer))
			began := time.Now()
			b.Produce(t, records(topic, 1, 5)...)
			eventually(t, "the log tells", func() bool { return strings.Contains(log.String(), "not committed any more") })
			p := partition(t, m, topic)
			if p.Committed != 5 || p.Next != 10 || p.Uncommitted.Before(began) || time.Since(p.Uncommitted) < 3*time.Second ||
				p.FetchError != nil {
				t.Errorf("Status: %+v", p)
			}
			if st := m.Status(); !m.Ready() || len(st.Degraded) != 1 || st.Degraded[0].Need != consumer.NeedCommits ||
				!strings.Contains(st.Problem(), "commits (") {
				t.Errorf("Ready %v, degraded %+v, problem %q", m.Ready(), st.Degraded, st.Problem())
			}
			refused.Remove()
			eventually(t, "the log tells that it is over",
				func() bool { return strings.Contains(log.String(), "no offset waits for its commit") })
			if p := partition(t, m, topic); p.Committed != 10 || !p.Uncommitted.IsZero() || m.Status().Problem() != "" {
				t.Errorf("Status at the end: %+v", p)
			}
			length := regexp.MustCompile(`waits for its commit any more" .*outage_seconds=(\S+)`).FindStringSubmatch(log.String())
			if length == nil {
				t.Fatalf("no length:\n%s", &log)
			}
			if d, err := strconv.ParseFloat(length[1], 64); err != nil || d < 3 || d > time.Since(began).Seconds() {
				t.Errorf("length %v s, %v", d, err)
			}
			if n := strings.Count(log.String(), "not committed any more"); n != 1 {
				t.Errorf("told %d times", n)
			}
		})
	}
}

// A steady flow, of which there always is something to be committed, is none that stands; and the brokers are asked
// seldom.
func TestSteadyCommitsAreNotTold(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 4, 1)
	asked := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Observe: true, Count: -1})
	var log lines
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Logger = log.logger()
	m := start(t, cfg)
	eventually(t, "it has begun", func() bool { return s.len() == 4 })
	before, began := asked.Hits(), time.Now()
	for n := 4; time.Since(began) < 8*time.Second; n += 4 {
		b.Produce(t, records(topic, 4, 1)...)
		eventually(t, "it is handled", func() bool { return s.len() >= n })
	}
	if most := 2 + 2*int(time.Since(began)/(2*time.Second)); asked.Hits()-before > most { // the pause is 1 s at least
		t.Errorf("asked %d times in %v", asked.Hits()-before, time.Since(began))
	}
	eventually(t, "all is committed", func() bool {
		return !anyPartition(m, func(p consumer.PartitionStatus) bool {
			return p.Committed != p.Next ||
				!p.Uncommitted.IsZero()
		})
	})
	idle := asked.Hits()
	time.Sleep(5 * time.Second)
	if n := asked.Hits() - idle; n > 0 {
		t.Errorf("asked %d times for what is committed", n)
	}
	if strings.Contains(log.String(), "not committed any more") {
		t.Errorf("told of commits that did not stop:\n%s", &log)
	}
}

func anyPartition(m *member, is func(consumer.PartitionStatus) bool) bool {
	return slices.ContainsFunc(m.Status().Partitions, is)
}
