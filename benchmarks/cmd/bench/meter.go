package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// meter counts the messages of a round. Its clock runs from the start of the first message to the end of the last, so
// that neither joining the group nor leaving it is measured. It is safe for concurrent use.
type meter struct {
	total   int64
	started atomic.Bool
	ended   atomic.Int64
	first   time.Time
	last    time.Time
	used    [2]time.Duration // CPU time of the process, at first and last
	done    chan struct{}    // closed when all have ended
}

func newMeter(total int) *meter { return &meter{total: int64(total), done: make(chan struct{})} }

// start is called before a message is handled.
func (m *meter) start() {
	if !m.started.Load() && m.started.CompareAndSwap(false, true) {
		m.first, m.used[0] = time.Now(), cpuTime()
	}
}

// end is called when a message is done.
func (m *meter) end() {
	if m.ended.Add(1) == m.total {
		m.last, m.used[1] = time.Now(), cpuTime()
		close(m.done)
	}
}

// rate is messages per second. All messages have ended.
func (m *meter) rate() float64 { return float64(m.total) / m.last.Sub(m.first).Seconds() }

// cpu is the CPU time of this process for a message, in seconds. All messages have ended.
func (m *meter) cpu() float64 { return (m.used[1] - m.used[0]).Seconds() / float64(m.total) }

// link counts at the outside of a chain.
func (m *meter) link(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		m.start()
		err := next.Handle(ctx, msg)
		if err == nil {
			m.end()
		}
		return err
	})
}

// until runs a consumer until all messages have ended, and returns their rate.
func (m *meter) until(ctx context.Context, run func(context.Context) error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	select {
	case <-m.done:
		cancel()
		return m.rate(), <-ended
	case err := <-ended:
		return 0, errors.Join(err, context.Cause(ctx), errors.New("the consumer ended before all messages were handled"))
	}
}
