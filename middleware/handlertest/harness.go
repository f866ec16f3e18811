package handlertest

import (
	"context"
	"errors"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/dedupstore"
)

// Harness is a handler before its first message, and what the suite needs to see what it does. All fields but Topic are
// required.
type Harness[Tx any] struct {
	// Store is the store of the handler. The database has no record and no effect in it. If it puts several messages into
	// one transaction (its Config.Group is 2 or more), there are cases in which the messages share one, in their order.
	Store dedupstore.Store[Tx]

	// Handler makes the Topic.Handler under test on the store that it is given, a Dedup or a Sequence of them. The suite
	// calls it again where a case restarts the service. The store that it passes fails at times.
	Handler func(store dedupstore.Store[Tx]) consumer.Handler

	// Topic is the rest of the topic, where the handler needs it: Consumer, EventID, Middleware. Leave a DeadLetter out: a
	// message that it takes has no effect.
	Topic consumer.Topic

	// Messages are delivered one after the other. Each must succeed, when nothing fails, in the first attempt.
	Messages []*consumer.Message

	// Effects reads all that the handler has done, as others see it: committed rows, calls that a fake service has got,
	// variables, files. It returns a text for each effect, in any order, the same text twice for an effect that is there
	// twice. It leaves out what differs from run to run by nature: times, random ids, values of sequences.
	Effects func(ctx context.Context) ([]string, error)
}

func (h Harness[Tx]) validate() error {
	var errs []error
	missing := func(is bool, field string) {
		if is {
			errs = append(errs, errors.New("handlertest: Harness."+field+" is missing: the suite cannot do without it"))
		}
	}
	missing(h.Store == nil, "Store")
	missing(h.Handler == nil, "Handler")
	missing(len(h.Messages) == 0, "Messages")
	missing(h.Effects == nil, "Effects")
	return errors.Join(errs...)
}

// Run runs the suite, each case as a subtest on a harness of its own, which open makes. The cases run one after the
// other, so that open may empty one database for each. What the handler changes outside of the database (the variables
// that Effects reads, a fake service) open must make anew, too.
//
// A finding names the message, what was doubled or lost, and where to look for the reason.
func Run[Tx any](t *testing.T, open func(t testing.TB) Harness[Tx]) {
	t.Helper()
	run(t, open, func(name string, f func(t testing.TB)) { t.Run(name, func(t *testing.T) { f(t) }) })
}

// run is Run, with subtests by sub.
func run[Tx any](t testing.TB, open func(t testing.TB) Harness[Tx], sub func(name string, f func(t testing.TB))) {
	t.Helper()
	want := expect(t, open)
	for _, c := range cases[Tx](want.mostCalls(), want.groups) {
		sub(c.name, func(t testing.TB) {
			t.Helper()
			if finding := c.run(newBench(t, open, want)); finding != "" {
				t.Error(finding)
			}
		})
	}
}

// service is the handler under test as a running service: its chain on the bench's store.
type service struct {
	limited *consumertest.Chains // one attempt for each delivery: then the message goes to another owner
	patient *consumertest.Chains
}

func newService[Tx any](t testing.TB, h Harness[Tx], store dedupstore.Store[Tx]) service {
	t.Helper()
	topic := h.Topic
	topic.Handler = h.Handler(store)
	topics := map[string]consumer.Topic{}
	for _, msg := range h.Messages {
		its := topic
		if first := h.Messages[0].Topic; its.Consumer != "" && msg.Topic != first {
			its.SameEventsAs = first // one handler and one name for all
		}
		topics[msg.Topic] = its
	}
	cfg := consumer.Config{Topics: topics}
	return service{
		limited: consumertest.New(t, cfg, &consumertest.Config{Attempts: 1}),
		patient: consumertest.New(t, cfg, nil),
	}
}
