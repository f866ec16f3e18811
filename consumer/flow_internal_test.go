package consumer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// pauses stands for sarama's group where only pauses matter.
type pauses struct {
	sarama.ConsumerGroup
	mu     sync.Mutex
	paused map[int32]bool
}

func (p *pauses) set(m map[string][]int32, v bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ps := range m {
		for _, x := range ps {
			p.paused[x] = v
		}
	}
}
func (p *pauses) Pause(m map[string][]int32)  { p.set(m, true) }
func (p *pauses) Resume(m map[string][]int32) { p.set(m, false) }
func (p *pauses) is(x int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused[x]
}

// part is a claim's view of one of several partitions.
type part struct {
	at
	n int32
}

func (p part) Partition() int32 { return p.n }

// A partition that was paused for its own limit while the load of all was between half and the limit goes on when the
// load has gone.
func TestPausedPartitionGoesOnWhenOthersHaveDrained(t *testing.T) {
	t.Parallel()
	cfg := Config{Limits: Limits{Messages: 12}}.withDefaults()
	c := &Consumer{cfg: cfg, claims: map[*claim]struct{}{}}
	r := &running{Consumer: c, log: slog.New(slog.DiscardHandler), handlers: context.Background(),
		hooks: newHookRunner(Hooks{}, slog.New(slog.DiscardHandler))}
	t.Cleanup(func() { r.hooks.close() })
	release := make(chan struct{})
	h := HandlerFunc(func(_ context.Context, m *Message) error {
		if m.Partition == 0 {
			<-release
		}
		if m.Partition == 1 && m.Offset == 0 {
			return RetryAfter(time.Hour, context.DeadlineExceeded) // the stuck one
		}
		return nil
	})
	tp := &topic{
		name: "t", chain: h, eventID: func(*Message) (string, error) { return "id", nil },
		order: Unordered, workers: newWorkers(Topic{Order: Unordered, Workers: 100}), partitionMessages: 4,
	}
	g := &pauses{paused: map[int32]bool{}}
	mk := func(p int32) *claim {
		cl := newClaim(r, g, tp, TopicID{}, &marks{}, part{n: p})
		c.addClaim(cl)
		return cl
	}
	feedP := func(cl *claim, offs ...int64) {
		ms := make(chan *sarama.ConsumerMessage, len(offs))
		for _, o := range offs {
			ms <- &sarama.ConsumerMessage{Topic: "t", Partition: cl.partition, Offset: o}
		}
		close(ms)
		cl.pump(ms)
	}
	a, b := mk(0), mk(1)
	feedP(a, 0, 1, 2, 3, 4, 5) // 6 of 12 held, 11 with the next five
	feedP(b, 0, 1, 2, 3, 4)    // over partitionMessages: paused; all but the first finish
	if !g.is(1) {
		t.Fatal("not paused")
	}
	soon(t, "all but the stuck one finish", func() bool { return b.status().Held == 1 })
	close(release)
	soon(t, "the other partition finishes", func() bool { return a.status().Held == 0 })
	soon(t, "the partition goes on", func() bool { return !g.is(1) })
}

// A claim with ready messages and a free place: lost parallelism between take and resumed.
func TestFreePlaceIsTakenByAWaitingClaim(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(Unordered, nil)
	w := newWorkers(Topic{Order: Unordered, Workers: 2})
	cl.topic.workers = w
	started := make(chan int64, 10)
	release := make(chan struct{})
	cl.topic.chain = HandlerFunc(func(_ context.Context, m *Message) error {
		started <- m.Offset
		<-release
		return nil
	})
	// Two workers hold both places, elsewhere.
	w.acquire(nil)
	w.acquire(nil)
	feed(cl, 0, 1, 2)
	// Worker A takes the claim that waits, and is held up before it gets the claim's lock.
	got := w.take()
	if got != cl {
		t.Fatal("not waiting")
	}
	// Worker B finds nobody waiting, and ends.
	if c2, it := w.next(); c2 != nil || it != nil {
		t.Fatal("B found something")
	}
	// A goes on.
	it := got.resumed(w)
	if it == nil {
		t.Fatal("nothing")
	}
	go w.run(cl, it)
	<-started
	select {
	case <-started:
	case <-time.After(30 * time.Second):
		w.mu.Lock()
		t.Errorf("two messages are ready, %d place is free, and nobody works at them while the first runs", w.free)
		w.mu.Unlock()
	}
	close(release)
}

// A claim whose handlers returned late is not kept for ever.
func TestStuckClaimsAreForgotten(t *testing.T) {
	t.Parallel()
	r := &running{Consumer: &Consumer{cfg: Config{}.withDefaults()}, log: slog.New(slog.DiscardHandler),
		handlers: context.Background()}
	release := make(chan struct{})
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error { <-release; return nil })
	cl.run = r
	feed(cl, 0)
	cl.end(0)
	close(release)
	<-cl.idle
	if err := r.stuckError(); err != nil {
		t.Fatal(err)
	}
	if len(r.stuckClaims) != 0 {
		t.Errorf("%d claims are kept for ever, each with its queue", len(r.stuckClaims))
	}
}

// With the defaults a message that fails for ever does not hold up the others of its partition for hours at 2,000 a
// second.
func TestDefaultAheadIsHours(t *testing.T) {
	t.Parallel()
	for _, order := range []Order{Unordered, KeyOrder} {
		cl, _ := testClaim(order, func(_ context.Context, m *Message) error {
			if m.Offset == 0 {
				return RetryAfter(time.Hour, context.DeadlineExceeded)
			}
			return nil
		})
		g := &pauses{paused: map[int32]bool{}}
		cl.group = g
		if got := cl.run.cfg.Limits.Ahead; got < 2*3600*2000 {
			t.Fatalf("Limits.Ahead is %d by default", got)
		}
		var next int64
		for range 40 { // far beyond all that may be held
			offsets := make([]int64, 500)
			for i := range offsets {
				offsets[i] = next
				if next++; order == KeyOrder && next%4 == 0 && next > 0 {
					next++ // not the key of the stuck one
				}
			}
			feed(cl, offsets...)
			soon(t, "all but one finish", func() bool { return cl.status().Held == 1 })
			if g.is(0) {
				t.Fatalf("%v: paused at %d by %q", order, next, cl.status().PausedBy)
			}
		}
		if s := cl.status(); s.Ahead != 20_000 || s.PausedBy != "" {
			t.Errorf("%v: %d ahead, paused by %q", order, s.Ahead, s.PausedBy)
		}
	}
}
