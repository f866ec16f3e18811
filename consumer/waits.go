package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// What the start can wait for, beside the chains of topics.
const (
	waitBrokers = "brokers"
	waitTopics  = "answers about the topics"
)

const (
	waitsFirst = time.Second     // a start that takes longer says what it waits for
	waitsEvery = 5 * time.Second // and again
)

// waits is what the start waits for, and why, for those who watch it.
type waits struct {
	log   *slog.Logger
	limit time.Duration
	began time.Time

	mu   sync.Mutex
	open map[string]error
}

func newWaits(c *Consumer) *waits {
	log := c.cfg.Logger.With(slog.String(attrGroup, c.cfg.Group), slog.Any("brokers", c.cfg.Brokers))
	return &waits{log: log, limit: c.cfg.StartTimeout, began: time.Now(), open: map[string]error{}}
}

// note remembers why something is waited for.
func (w *waits) note(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[what] = err
}

// noteUntil does so until ctx ends: an answer behind that end tells of the end, not of what is waited for.
func (w *waits) noteUntil(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		w.note(what, err)
	}
}

// over ends the wait for something.
func (w *waits) over(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, what)
}

// report logs what is waited for now and then, until ctx is done or the function that it returns is called.
func (w *waits) report(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for d := waitsFirst; pause(ctx, d); d = waitsEvery {
			w.tell()
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// why says what is waited for, after a phase.
func (w *waits) why() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(w.open)) {
		return fmt.Sprintf(": waits for %s: %s", what, errorText(w.open[what]))
	}
	return ""
}

// stopped says that the start was ended from outside, by whom, and what it waited for then. That is not an error of what
// it waited for.
func (w *waits) stopped(by string) {
	var last []any
	open := w.waiting()
	for _, what := range slices.Sorted(maps.Keys(open)) {
		last = append(last, slog.String(what, errorText(open[what])))
	}
	w.log.Info("einmal: the start was stopped before it was done", slog.String("by", by), w.waited(),
		slog.Group("waited_for", last...))
}

// tell logs a line for each wait.
func (w *waits) tell() {
	open := w.waiting()
	for _, what := range slices.Sorted(maps.Keys(open)) {
		w.log.Warn("einmal: the start waits", slog.String("for", what), slog.Any("error", open[what]), w.waited(),
			seconds("limit", w.limit))
	}
}

func (w *waits) waited() slog.Attr {
	return seconds("waited", time.Since(w.began).Round(100*time.Millisecond))
}

// waiting is what is waited for now.
func (w *waits) waiting() map[string]error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.open)
}
