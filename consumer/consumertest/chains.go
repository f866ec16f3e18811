package consumertest

import (
	"context"
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

// Config is what can be chosen about deliveries. Nil means all defaults.
type Config struct {
	// Attempts ends a delivery that has not succeeded after so many attempts. The runner knows no such end: with
	// KeepTrying, and for a handler that answers with RetryAfter, it goes on for ever. Defaults to 20, more than most
	// Retry links allow.
	Attempts int
}

const defaultAttempts = 20

// Chains are the chains of a configuration. They are safe for concurrent use, as far as the handlers are.
type Chains struct {
	t        testing.TB
	consumer *consumer.Consumer
	attempts int
}

// New composes and checks the chains of cfg, the configuration with which the service calls consumer.Run. It ends the
// test if Run would refuse it: because of New's checks, or because a link's Check fails. Brokers and Group may be left
// empty.
func New(t testing.TB, cfg consumer.Config, c *Config) *Chains {
	t.Helper()
	if len(cfg.Brokers) == 0 {
		cfg.Brokers = []string{"localhost:9092"} // never called
	}
	if cfg.Group == "" {
		cfg.Group = "test"
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = consumer.DefaultStartTimeout
	}
	cons, err := consumer.New(cfg)
	if err != nil {
		t.Fatalf("consumer.New refuses the configuration:\n%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), cfg.StartTimeout)
	defer cancel()
	if err := cons.Check(ctx); err != nil {
		t.Fatalf("consumer.Run would not start:\n%v", err)
	}
	chains := &Chains{t: t, consumer: cons, attempts: defaultAttempts}
	if c != nil && c.Attempts > 0 {
		chains.attempts = c.Attempts
	}
	return chains
}

// Run is New for one topic, and one delivery of msg under the test's context.
func Run(t testing.TB, topic consumer.Topic, msg *consumer.Message) *Outcome {
	t.Helper()
	chains := New(t, consumer.Config{Topics: map[string]consumer.Topic{msg.Topic: topic}}, nil)
	return chains.Deliver(t.Context(), msg)
}

// Deliver hands msg to the chain of msg.Topic, attempt after attempt without a pause, until it has taken effect, the
// topic's OnFailure stops it, ctx is done, or the limit of Config.Attempts is reached. Each call is a delivery of its
// own, which counts its attempts from 1. The facts that the runner knows are filled in, except TopicID.
//
// A ctx that is done while the chain runs is what it sees when the time to drain is over. Deliver ends the test if the
// configuration has no such topic, and fails it if the chain wrote to the message's key, value or headers.
func (c *Chains) Deliver(ctx context.Context, msg *consumer.Message) *Outcome {
	c.t.Helper()
	d, err := c.consumer.Deliver(msg)
	if err != nil {
		c.t.Fatal(err)
	}
	before := copyOf(msg)
	out := &Outcome{}
	for out.End == "" {
		a := d.Attempt(ctx)
		c.endTest(a)
		out.add(ctx, a, c.attempts)
	}
	if what := before.difference(msg); what != "" {
		c.t.Errorf("the chain wrote to the %s of the message: they belong to the fetched batch, copy what must be changed",
			what)
	}
	return out
}

// endTest goes on with what FailNow began in the goroutine of a handler: t.Fatal there ends the test.
func (c *Chains) endTest(a *consumer.Attempt) {
	if p, ok := a.Err.(*consumer.Panic); ok && p.Value == nil && c.t.Failed() { //nolint:errorlint // what the runner itself made
		c.t.FailNow()
	}
}
