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
			w.say("einmal: the start waits", slog.LevelWarn)
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

// ended says what was waited for when the start was ended from outside.
func (w *waits) ended() { w.say("einmal: the start was ended while it waited", slog.LevelInfo) }

// say logs a line for each wait.
func (w *waits) say(text string, level slog.Level) {
	w.mu.Lock()
	open := maps.Clone(w.open)
	w.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(open)) {
		w.log.Log(context.Background(), level, text, slog.String("for", what), slog.Any("error", open[what]),
			seconds("waited", time.Since(w.began).Round(100*time.Millisecond)), seconds("limit", w.limit))
	}
}
