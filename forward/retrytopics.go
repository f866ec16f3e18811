package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/nils"
	"github.com/einmal-go/einmal/internal/topicname"
	"github.com/einmal-go/einmal/middleware"
)

// RetryTopicsConfig is what can be chosen about RetryTopics. Nil means all defaults.
type RetryTopicsConfig struct {
	// Delays are how long a message waits in each retry topic, in the order in which it goes through them. Each must be at
	// least a millisecond, and no two the same. Defaults to 1 min, 10 min and 1 h: what a restart cures, what an operator
	// cures, and what an outage takes.
	Delays []time.Duration

	// Name returns the name of a retry topic. Defaults to RetryTopicName: orders.retry.10m.
	Name func(topic string, delay time.Duration) string

	// Logger is told, once a minute at most, that messages cannot be handed on. Defaults to slog.Default().
	Logger *slog.Logger
}

// DefaultDelays are RetryTopicsConfig.Delays by default.
func DefaultDelays() []time.Duration {
	return []time.Duration{time.Minute, 10 * time.Minute, time.Hour}
}

// RetryTopicName is the name of a retry topic by default: the topic's, ".retry.", and the delay, such as 10m or 1h30m.
func RetryTopicName(topic string, delay time.Duration) string {
	return topic + ".retry." + delayText(delay)
}

// delayText is 1h30m where Duration.String says 1h30m0s.
func delayText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// RetryTopics returns the entries of Config.Topics for a topic and its retry topics. t is how the topic is consumed; a
// message whose attempts have all failed there (*consumer.GaveUp, of the middleware.Retry in t.Middleware) goes on to
// the first retry topic, is handled again by the same chain when its delay is over, goes on to the next one if it
// fails, and after the last one is left to DeadLetter outside Retry, or to OnFailure. consumer.Permanent goes there at
// once.
//
//	Topics: forward.RetryTopics(store, pgxoutbox.NewWriter(nil), "orders", consumer.Topic{
//		Consumer:   "billing",
//		Middleware: []consumer.Middleware{middleware.DeadLetter(store, dead, nil), middleware.Retry(5, nil), middleware.Recover()},
//		Handler:    middleware.Dedup(store, consumer.JSONTx(charge), nil),
//	}, nil),
//
// It gives up the order of a key: what stands behind a message that was handed on is handled before it. Use it where
// the handler can bear that, because it compares versions for example.
//
// A message is handed on as an event of the outbox, in one transaction of store with the record that it was (see
// middleware.HandOn), and a relay of that outbox must run. In the retry topics it has the same key, value, headers and
// id, the number of its partition where the topic has it, and the Retry… headers, which count its attempts on
// (consumer.Message.Earlier): a dead letter has the sum; the consumer's name is t.Consumer, so that the effect is
// recorded under the same key wherever it takes place, once. t.Consumer must therefore be set; "group/topic" is what it
// was if it was not.
//
// The retry topics must exist: RetryTopicNames says which. They should keep their messages for several times their
// delay, and only RetryTopics should write to them. Their messages wait parked, see consumer.NotBefore: no worker and
// no other topic waits with them, but they are fetched and held in memory, within Config.Limits. Their delay begins
// when they are handed on, by the clock of that process, and ends by the clock of the one that handles them. Their
// Order is Unordered, their Start the oldest message; all else is as in t. middleware.Sequence cannot be in t: its
// steps fail each for itself.
//
// What is wrong with the arguments is reported by consumer.New, and that the outbox has no table by Run at its start,
// if store is a dedupstore.Transactor.
func RetryTopics[Tx any](store dedupstore.Store[Tx], events Events[Tx], topic string, t consumer.Topic,
	cfg *RetryTopicsConfig) map[string]consumer.Topic {
	if cfg == nil {
		cfg = &RetryTopicsConfig{}
	}
	r := retryTopics[Tx]{store: store, events: events, topic: topic, t: t, logger: cfg.Logger,
		stages: stagesOf(topic, cfg)}
	place, err := placeIn(t.Middleware)
	own := t
	if err := errors.Join(r.validate(), err); err != nil {
		own.Middleware = append([]consumer.Middleware{func(next consumer.Handler) consumer.Handler {
			return &wrong{next,
				err}
		}}, t.Middleware...)
		return map[string]consumer.Topic{topic: own}
	}
	check := func(next consumer.Handler) consumer.Handler { return &outboxCheck[Tx]{next, store, events, topic} }
	own.Middleware = slices.Insert(slices.Clone(t.Middleware), place, check, r.handOn(0))
	topics := map[string]consumer.Topic{topic: own}
	for i, s := range r.stages {
		again := t
		again.EventID, again.SameEventsAs = consumer.HeaderID(RetryEventHeader), cmp.Or(t.SameEventsAs, topic)
		again.Order, again.Start, again.OutOfRange = consumer.Unordered, consumer.Topic{}.Start, consumer.Topic{}.OutOfRange
		links := []consumer.Middleware{s.wait}
		if i+1 < len(r.stages) {
			links = append(links, r.handOn(i+1))
		}
		again.Middleware = slices.Insert(slices.Clone(t.Middleware), place, links...)
		topics[s.topic] = again
	}
	return topics
}

// RetryTopicNames are the names of the retry topics of a topic, in their order: create them with as many partitions as
// you like.
func RetryTopicNames(topic string, cfg *RetryTopicsConfig) (names []string) {
	if cfg == nil {
		cfg = &RetryTopicsConfig{}
	}
	for _, s := range stagesOf(topic, cfg) {
		names = append(names, s.topic)
	}
	return names
}

// stage is a retry topic.
type stage struct {
	topic string
	delay time.Duration
}

func stagesOf(topic string, cfg *RetryTopicsConfig) (stages []stage) {
	name, delays := cfg.Name, cfg.Delays
	if name == nil {
		name = RetryTopicName
	}
	if len(delays) == 0 {
		delays = DefaultDelays()
	}
	for _, d := range delays {
		stages = append(stages, stage{name(topic, d), d})
	}
	return stages
}

// retryTopics are the arguments of RetryTopics.
type retryTopics[Tx any] struct {
	store  dedupstore.Store[Tx]
	events Events[Tx]
	topic  string
	t      consumer.Topic
	stages []stage
	logger *slog.Logger
}

func (r *retryTopics[Tx]) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("forward.RetryTopics: "+format, args...))
	}
	if nils.Is(r.store) {
		bad("the store is nil: pass the one that Dedup has")
	}
	if nils.Is(r.events) {
		bad("the writer of events is nil: pass pgxoutbox.NewWriter(nil), for example")
	}
	if r.t.Consumer == "" {
		bad("Topic.Consumer is empty: set it to the name of the effect, which is the same in all retry topics; %q is what it was without one, with the group's name", "group/"+r.topic)
	}
	seen, delays := map[string]bool{r.topic: true}, map[time.Duration]bool{}
	for _, s := range r.stages {
		switch {
		case s.delay < time.Millisecond:
			bad("the delay %v is less than a millisecond: leave it to middleware.Retry", s.delay)
		case delays[s.delay]:
			bad("the delay %v stands twice in RetryTopicsConfig.Delays: its name is that of a stage in the records", s.delay)
		case seen[s.topic]:
			bad("two topics have the name %q: let RetryTopicsConfig.Name return another one for each delay, and not the topic's own", s.topic)
		}
		if err := topicname.Check(s.topic); err != nil {
			bad("the retry topic for %v: %w: set RetryTopicsConfig.Name", s.delay, err)
		}
		seen[s.topic], delays[s.delay] = true, true
	}
	return errors.Join(errs...)
}

// handOn is the link that hands a message on to a stage.
func (r *retryTopics[Tx]) handOn(i int) consumer.Middleware {
	to := r.stages[i]
	return middleware.HandOn(r.store, delayText(to.delay), func(ctx context.Context, tx Tx, msg *consumer.Message) error {
		return asPermanent(write(ctx, r.events, tx, to.event(msg, time.Now())))
	}, &middleware.HandOnConfig{Logger: cmp.Or(r.logger, slog.Default())})
}

// placeIn is where the links of RetryTopics belong: outside of all that makes an attempt, inside of what acts on the
// last word.
func placeIn(mws []consumer.Middleware) (place int, err error) {
	place = -1
	for i, mw := range mws {
		link := linkOf(mw)
		if place < 0 && link >= consumer.LinkCrashLoop {
			place = i
		}
		if link == consumer.LinkRetry {
			return place, nil
		}
	}
	return 0, errors.New("forward.RetryTopics: Topic.Middleware has no middleware.Retry: put one there, and none into Config.Middleware; its last word has a message handed on")
}

// linkOf is what a middleware says of its link, or 0.
func linkOf(mw consumer.Middleware) consumer.Link {
	if mw == nil {
		return 0 // New says so
	}
	l, ok := mw(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })).(consumer.Linker)
	if !ok {
		return 0
	}
	return l.Link()
}
