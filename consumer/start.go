package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// startRetry is the pause between two tries to reach a server at the start.
const startRetry = 500 * time.Millisecond

// start reaches the brokers and the databases and checks all that they can tell. It returns nil, nil if ctx ends
// meanwhile, or Abort is called.
func (c *Consumer) start(ctx context.Context) (*running, error) {
	starting, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-c.abort:
			end()
		case <-starting.Done():
		}
	}()
	limited, cancel := context.WithTimeout(starting, c.cfg.StartTimeout)
	defer cancel()
	links := make(chan error, 1)
	go func() { links <- c.checkLinks(limited) }()
	client, err := c.connect(limited)
	if err == nil {
		err = errors.Join(c.checkTopics(limited, client), c.checkGroup(limited, client))
	}
	err = errors.Join(err, <-links)
	if err == nil {
		c.checkWindows(limited, client)
	}
	if err == nil && starting.Err() == nil {
		return c.run(ctx, client), nil
	}
	c.dialer.End() // what still waits for an answer in the background ends with its connection
	closeClient(client)
	if starting.Err() != nil {
		return nil, nil //nolint:nilnil // documented
	}
	return nil, err
}

func closeClient(client sarama.Client) {
	if client != nil {
		_ = client.Close()
	}
}

// run begins what goes on until Run returns.
func (c *Consumer) run(ctx context.Context, client sarama.Client) *running {
	log := c.cfg.Logger.With(attrGroup, c.cfg.Group)
	r := &running{Consumer: c, log: log, drains: make(chan struct{}), hooks: newHookRunner(c.cfg.Hooks, log), ids: map[string]TopicID{}, partitions: map[string]int{}}
	r.handlers, r.cancelHandlers = context.WithCancelCause(context.WithoutCancel(ctx))
	r.ctx, r.stop = context.WithCancelCause(ctx)
	r.client = newGroupClient(client, c.cfg.Group, r.ctx.Done())
	context.AfterFunc(r.ctx, func() {
		defer close(r.drains)
		c.draining()
	})
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	r.unwatch = unwatch
	r.watcher.Go(func() { r.watch(watching) })
	r.watcher.Go(func() { r.awaitAbort(watching) })
	return r
}

// connect tries to reach a broker until ctx is done. What waiting does not cure is returned at once.
func (c *Consumer) connect(ctx context.Context) (sarama.Client, error) {
	var last error
	for {
		client, err := dial(ctx, c.cfg.Brokers, c.sarama)
		if err == nil {
			return client, nil
		}
		if errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
			return nil, fmt.Errorf("brokers %v refuse the credentials: %w: correct Net.SASL in Config.Sarama", c.cfg.Brokers, err)
		}
		if last == nil || ctx.Err() == nil { // the end of ctx tells less than the try before it
			last = err
		}
		if !pause(ctx, startRetry) {
			return nil, fmt.Errorf("no broker of %v answered within %v: %w: check Config.Brokers, the network, and whether the listener wants TLS or SASL (Config.Sarama)", c.cfg.Brokers, c.cfg.StartTimeout, last)
		}
	}
}

// dial is sarama.NewClient, which knows no context.
func dial(ctx context.Context, brokers []string, conf *sarama.Config) (sarama.Client, error) {
	return bounded(ctx, 0, func() (sarama.Client, error) { return sarama.NewClient(brokers, conf) }, closeClient)
}

// bounded returns what f returns, which knows no context or may ignore it; or the error of ctx, if f has not returned by grace
// after its end. late gets what f returns then.
func bounded[T any](ctx context.Context, grace time.Duration, f func() (T, error), late func(T)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = f()
	}()
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
	}
	if waitFor(done, grace) {
		return value, err
	}
	go func() {
		<-done
		late(value)
	}()
	var none T
	return none, ctx.Err()
}

// checkTopics reports the topics that do not exist, or that this user may not read.
func (c *Consumer) checkTopics(ctx context.Context, client sarama.Client) error {
	var missing []string
	var errs []error
	until := time.Now().Add(min(unknownGrace, c.cfg.StartTimeout/4))
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		err := findTopic(ctx, client, name, until)
		switch {
		case err == nil:
		case errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrInvalidTopic):
			missing = append(missing, fmt.Sprintf("%q%s", name, suggestion(client, name)))
		case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
			errs = append(errs, fmt.Errorf("topic %q: %w: allow the user READ and DESCRIBE on it", name, err))
		default:
			errs = append(errs, fmt.Errorf("topic %q: the brokers %v do not tell about it: %w", name, c.cfg.Brokers, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("topics that do not exist: %s: create them first, einmal creates none; or correct the names in Config.Topics", strings.Join(missing, ", ")))
	}
	return errors.Join(errs...)
}

// unknownGrace is how long the answer that a topic does not exist is not believed: it can be that of a broker which has just started, or
// has not heard of a new topic yet.
const unknownGrace = 3 * time.Second

// findTopic asks for a topic until ctx is done or the answer is one that waiting does not change. That the topic is unknown is believed
// from until on.
func findTopic(ctx context.Context, client sarama.Client, name string, until time.Time) error {
	refresh := func() (struct{}, error) { return struct{}{}, client.RefreshMetadata(name) }
	var last error
	for {
		_, err := bounded(ctx, 0, refresh, func(struct{}) {})
		if err != nil && last != nil && ctx.Err() != nil {
			return last // the end of ctx tells less than the answer before it
		}
		err = exceptLeaderless(err) // it exists
		last = err
		unknown := errors.Is(err, sarama.ErrUnknownTopicOrPartition) && !time.Now().Before(until)
		final := err == nil || unknown || errors.Is(err, sarama.ErrInvalidTopic) ||
			errors.Is(err, sarama.ErrTopicAuthorizationFailed)
		if final || !pause(ctx, startRetry) {
			return err
		}
	}
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// draining stops the start of messages everywhere when the end begins, before sarama tells the claims.
func (c *Consumer) draining() {
	if c.change(Draining, Starting, Running, Left) {
		for _, cl := range c.allClaims() {
			cl.stop()
		}
		c.cfg.Logger.Info("einmal: draining", slog.String(attrGroup, c.cfg.Group))
	}
}

// awaitAbort carries out Abort.
func (r *running) awaitAbort(ctx context.Context) {
	select {
	case <-r.abort:
		r.stop(context.Canceled)
		r.cancelHandlers(errAborted)
	case <-ctx.Done():
	}
}

var errAborted = errors.New("einmal: Abort was called")

// suggestion names the existing topic whose name is nearest to a missing one, if any is near.
func suggestion(client sarama.Client, missing string) string {
	names, err := client.Topics()
	if err != nil {
		return ""
	}
	best, least := "", 1+len(missing)/3
	for _, name := range names {
		if d := distance(missing, name); d <= least && !strings.HasPrefix(name, "__") {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (there is %q)", best)
}

// distance is the number of bytes to insert, delete or change to make a of b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
