package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"
)

// marks stands for sarama's session where only marks matter.
type marks struct {
	sarama.ConsumerGroupSession
	mu    sync.Mutex
	marks []int64
	at    int64  // as sarama's: the marked offset
	note  string // with it
}

func (m *marks) Context() context.Context { return context.Background() }

func (m *marks) MarkOffset(_ string, _ int32, offset int64, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if offset > m.at || m.marks == nil {
		m.marks = append(m.marks, offset)
		m.at, m.note = offset, note
	}
}

func (m *marks) ResetOffset(_ string, _ int32, offset int64, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if offset <= m.at && m.marks != nil {
		m.at, m.note = offset, note
	}
}

func (m *marks) metadata() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.note
}

func (m *marks) all() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]int64(nil), m.marks...)
}

// at is a claim's view of a partition.
type at struct{ sarama.ConsumerGroupClaim }

func (at) Partition() int32           { return 0 }
func (at) InitialOffset() int64       { return 0 }
func (at) HighWaterMarkOffset() int64 { return 0 }

func testClaim(order Order, h HandlerFunc) (*claim, *marks) {
	r := &running{Consumer: &Consumer{cfg: Config{}.withDefaults()}, log: slog.New(slog.DiscardHandler),
		handlers: context.Background()}
	m := &marks{}
	t := &topic{
		name: "t", consumer: "g/t", chain: h, eventID: func(*Message) (string, error) { return "id", nil },
		order: order, workers: newWorkers(Topic{Order: order}), partitionMessages: 1000,
	}
	return newClaim(r, nil, t, TopicID{}, m, at{}), m
}

func feed(cl *claim, offsets ...int64) {
	messages := make(chan *sarama.ConsumerMessage, len(offsets))
	for _, o := range offsets {
		messages <- &sarama.ConsumerMessage{Topic: "t", Offset: o, Key: []byte{byte(o % 4)}}
	}
	close(messages)
	cl.pump(messages)
}

// A worker that outlives its claim moves no offset: the partition may have another owner, or have come back.
func TestNoMarkAfterTheEnd(t *testing.T) {
	t.Parallel()
	release, started, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	cl, m := testClaim(PartitionOrder, func(context.Context, *Message) error {
		close(started)
		<-release
		close(done)
		return nil
	})
	feed(cl, 0, 1)
	<-started
	cl.end(0)
	close(release)
	<-done
	<-cl.idle                                         // finish has run
	if got := m.all(); len(got) != 1 || got[0] != 0 { // the place of the open message, with its age
		t.Errorf("marks %v after the end of the claim", got)
	}
}

// Completions while the claim drains still count.
func TestMarkWhileDraining(t *testing.T) {
	t.Parallel()
	release, started := make(chan struct{}), make(chan struct{})
	cl, m := testClaim(PartitionOrder, func(context.Context, *Message) error {
		close(started)
		<-release
		return nil
	})
	feed(cl, 7, 9)
	<-started
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	cl.end(10 * time.Second)
	if got := m.all(); len(got) != 1 || got[0] != 8 {
		t.Errorf("marks %v, want [8]", got)
	}
}

// Whatever fails, is retried, or is cut off by the end: every mark is the offset behind a finished message before which
// nothing is open, and marks ascend.
func TestMarksNeverPassAnOpenMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		gaps := rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 60).Draw(rt, "gaps")
		failures := rapid.SliceOfN(rapid.IntRange(0, 2), len(gaps), len(gaps)).Draw(rt, "failures")
		endAfter := rapid.IntRange(0, len(gaps)).Draw(rt, "endAfter")
		var delivered []int64
		fails := map[int64]int{}
		var offset int64
		for i, gap := range gaps {
			offset += gap
			delivered = append(delivered, offset)
			fails[offset] = failures[i]
		}
		var mu sync.Mutex
		finished := map[int64]bool{}
		reached := make(chan struct{})
		order := rapid.SampledFrom([]Order{PartitionOrder, KeyOrder, Unordered}).Draw(rt, "order")
		cl, m := testClaim(order, func(_ context.Context, msg *Message) error {
			mu.Lock()
			defer mu.Unlock()
			if fails[msg.Offset] > 0 {
				fails[msg.Offset]--
				return RetryAfter(time.Duration(rand.IntN(50))*time.Microsecond, errors.New("again"))
			}
			finished[msg.Offset] = true
			if len(finished) == endAfter {
				close(reached)
			}
			return nil
		})
		feed(cl, delivered...)
		if endAfter > 0 {
			<-reached
		}
		cl.end(time.Second)
		last := int64(-1)
		for _, mark := range m.all() {
			if mark <= last {
				rt.Fatalf("mark %d follows %d", mark, last)
			}
			last = mark
			if mark != delivered[0] && !finished[mark-1] {
				rt.Fatalf("mark %d is not behind a finished message", mark)
			}
			for _, o := range delivered {
				if o < mark && !finished[o] {
					rt.Fatalf("mark %d passes %d, which is open", mark, o)
				}
			}
		}
	})
}
