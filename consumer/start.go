package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// startRetry is the pause between two tries to reach a server at the start.
const startRetry = 500 * time.Millisecond

// startGrace is how long the start goes on when a part of it has found what waiting does not cure, so that the other
// parts can say what they have found.
const startGrace = 2 * time.Second

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
	s := c.newStarter(slices.Sorted(maps.Keys(c.topics)), cancel)
	defer s.waits.report(limited)()
	c.starting.Store(s.waits)
	defer c.starting.Store(nil)
	client, err := s.check(limited, s.checkTopics, s.checkGroup)
	if err == nil {
		c.checkWindows(limited, client)
	}
	if err == nil && starting.Err() == nil {
		return c.run(ctx, client), nil
	}
	c.dialer.End() // what still waits for an answer in the background ends with its connection
	closeClient(client)
	if starting.Err() != nil {
		by := "Abort"
		if ctx.Err() != nil {
			by = "the end of the context of Run"
		}
		s.waits.stopped(by)
		return nil, nil //nolint:nilnil // documented
	}
	return nil, err
}

// starter is the start of a Consumer, for some of its topics.
type starter struct {
	*Consumer
	names  []string
	cancel context.CancelFunc // ends the start
	waits  *waits
}

func (c *Consumer) newStarter(names []string, cancel context.CancelFunc) *starter {
	return &starter{Consumer: c, names: names, cancel: cancel, waits: newWaits(c)}
}

// check does all checks side by side, those of the brokers when one has answered, and returns what all of them have
// found.
func (s *starter) check(ctx context.Context,
	brokers ...func(context.Context, sarama.Client) error) (client sarama.Client, err error) {
	err = s.sideBySide(
		func() (err error) {
			if client, err = s.connect(ctx); err != nil {
				return err
			}
			var checks []func() error
			for _, check := range brokers {
				checks = append(checks, func() error { return check(ctx, client) })
			}
			return s.sideBySide(checks...)
		},
		func() error { return s.checkLinks(ctx) },
	)
	return client, err
}

// sideBySide joins the errors of the checks, in their order. A check returns one when its time is over, or when waiting
// does not cure it.
func (s *starter) sideBySide(checks ...func() error) error {
	errs := make([]error, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() {
			if errs[i] = check(); errs[i] != nil {
				s.incurable()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func closeClient(client sarama.Client) {
	if client != nil {
		_ = client.Close()
	}
}

// run begins what goes on until Run returns.
func (c *Consumer) run(ctx context.Context, client sarama.Client) *running {
	log := c.cfg.Logger.With(attrGroup, c.cfg.Group)
	r := &running{Consumer: c, log: log, drains: make(chan struct{}), hooks: newHookRunner(c.cfg.Hooks, log),
		ids: map[string]TopicID{}, partitions: map[string]int{}}
	r.handlers, r.cancelHandlers = context.WithCancelCause(context.WithoutCancel(ctx))
	r.ctx, r.stop = context.WithCancelCause(ctx)
	r.client = newGroupClient(client, c.cfg.Group, r.ctx.Done(), log)
	r.client.errors.away = r.brokersFailed
	c.cluster.Store(r.client)
	context.AfterFunc(r.ctx, func() {
		defer close(r.drains)
		c.draining()
	})
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	r.unwatch = unwatch
	r.watcher.Go(func() { r.watch(watching) })
	r.watcher.Go(func() { r.awaitAbort(watching) })
	c.logRuns(log)
	c.logDoubts(log)
	return r
}

// incurable ends the start soon: something was found that waiting does not cure.
func (s *starter) incurable() {
	if s.cancel != nil {
		time.AfterFunc(startGrace, s.cancel)
	}
}

// connect tries to reach a broker until ctx is done. What waiting does not cure is returned at once.
func (s *starter) connect(ctx context.Context) (sarama.Client, error) {
	var last error
	began := time.Now()
	if says := kafkaconf.OpenPassword(s.sarama); says != "" {
		s.cfg.Logger.Warn("einmal: "+says, slog.String(attrGroup, s.cfg.Group))
	}
	s.waits.note(waitBrokers, errNoAnswerYet)
	for {
		client, err := kafkaconf.Connect(ctx, s.cfg.Brokers, s.sarama, s.dialer)
		if err == nil {
			s.waits.over(waitBrokers)
			return client, nil
		}
		if remedy := kafkaconf.Remedy(err, " in Config.Sarama"); remedy != "" {
			s.waits.over(waitBrokers)
			return nil, fmt.Errorf("brokers %v cannot be used: %w: %s", s.cfg.Brokers, err, remedy)
		}
		if last == nil || ctx.Err() == nil { // the end of ctx tells less than the try before it
			last = err
		}
		s.waits.noteUntil(ctx, waitBrokers, last)
		if !pause(ctx, startRetry) {
			return nil, fmt.Errorf("no broker of %v answered within %v: %w: check Config.Brokers, the network, and whether the listener wants TLS or SASL (Config.Sarama)",
				s.cfg.Brokers, waited(began, s.cfg.StartTimeout), last)
		}
	}
}

var errNoAnswerYet = errors.New("none has answered yet")

// waited is how long something was waited for, the limit if it is over.
func waited(since time.Time, limit time.Duration) time.Duration {
	if d := time.Since(since); d < limit {
		return d.Round(100 * time.Millisecond)
	}
	return limit
}

// bounded returns what f returns, which knows no context or may ignore it; or the error of ctx, if f has not returned
// by grace after its end. late gets what f returns then.
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
func (s *starter) checkTopics(ctx context.Context, client sarama.Client) error {
	var missing []string
	var cause error
	var errs []error
	answers := s.findTopics(ctx, client)
	for _, name := range s.names {
		switch err := answers[name]; {
		case err == nil:
		case isMissing(err):
			cause = err
			missing = append(missing, fmt.Sprintf("%q%s", name, suggestion(ctx, client, name)))
		case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
			errs = append(errs, fmt.Errorf("topic %q: %w: allow the user READ and DESCRIBE on it", name, err))
		default:
			errs = append(errs, fmt.Errorf("topic %q: the brokers %v do not tell about it: %w", name, s.cfg.Brokers, err))
		}
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("topics that do not exist: %s: create them first, einmal creates none; or correct the names in Config.Topics: %w", strings.Join(missing, ", "), cause))
	}
	return errors.Join(errs...)
}

func isMissing(err error) bool {
	return errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrInvalidTopic)
}

// unknownGrace is how long the answer that a topic does not exist is not believed: it can be that of a broker which has
// just started, or has not heard of a new topic yet.
const unknownGrace = 3 * time.Second

// findTopics asks for all topics at once, again and again for those of which no broker tells, until ctx is done or all
// answers are such that waiting does not change them. It returns what is wrong with each topic.
func (s *starter) findTopics(ctx context.Context, client sarama.Client) (wrong map[string]error) {
	ask := func() (*sarama.MetadataResponse, error) { return askTopics(client, s.names) }
	until := time.Now().Add(min(unknownGrace, s.cfg.StartTimeout/4))
	for {
		res, err := bounded(ctx, 0, ask, func(*sarama.MetadataResponse) {})
		if wrong != nil && ctx.Err() != nil {
			return wrong // the end of ctx tells less than the answer before it
		}
		wrong = topicErrors(s.names, res, err)
		var open error
		for _, err := range wrong {
			unknown := errors.Is(err, sarama.ErrUnknownTopicOrPartition) && !time.Now().Before(until)
			if unknown || errors.Is(err, sarama.ErrInvalidTopic) || errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
				s.incurable()
			} else {
				open = err
			}
		}
		if open == nil {
			s.waits.over(waitTopics)
			return wrong
		}
		s.waits.noteUntil(ctx, waitTopics, open)
		if !pause(ctx, startRetry) {
			return wrong
		}
	}
}

// topicErrors returns what is wrong with topics. One whose partitions have no leader exists, which is all that is asked
// for.
func topicErrors(names []string, res *sarama.MetadataResponse, err error) map[string]error {
	wrong := map[string]error{}
	for _, name := range names {
		wrong[name] = cmp.Or(err, sarama.ErrIncompleteResponse)
	}
	if err != nil {
		return wrong
	}
	for _, t := range res.Topics {
		if t.Err == sarama.ErrNoError || t.Err == sarama.ErrLeaderNotAvailable {
			delete(wrong, t.Name)
		} else {
			wrong[t.Name] = t.Err
		}
	}
	return wrong
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
func suggestion(ctx context.Context, client sarama.Client, missing string) string {
	names, err := bounded(ctx, 0, client.Topics, func([]string) {})
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
