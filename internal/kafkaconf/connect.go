package kafkaconf

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// greetGrace is how long brokers are waited for when one has answered: a broker that lives answers within it.
const greetGrace = time.Second

// errNoGreeting is about a broker that has not answered yet.
var errNoGreeting = errors.New("it accepts connections but does not answer, or the network drops what is sent to it")

// Connect is sarama.NewClient, but it greets all brokers side by side, where NewClient waits for one after the other: a
// broker that is frozen accepts connections and answers nothing, which costs a whole Net.ReadTimeout each time. Those
// that do not answer soon after the first one are passed over until they do. The dialer is the one of conf.
//
// If no broker answers, the error is a NoAnswer. The end of ctx ends the wait, but no request: who gives up ends the
// dialer.
func Connect(ctx context.Context, brokers []string, conf *sarama.Config, dialer *Dialer) (sarama.Client, error) {
	g := newGreeter(conf, dialer)
	if err := g.greet(ctx, brokers, nil); err != nil {
		g.dialer.End()
		return nil, err
	}
	client, err := newClient(ctx, brokers, conf)
	if err != nil {
		g.dialer.End()
		return nil, err
	}
	var others []string // that Brokers does not name
	for _, b := range client.Brokers() {
		if !g.known[b.Addr()] {
			others = append(others, b.Addr())
		}
	}
	_ = g.greet(ctx, others, time.After(greetGrace)) // one has answered
	return &greetedClient{Client: client, greetings: g.dialer}, nil
}

// greetedClient ends the greetings that nobody has answered when it is closed.
type greetedClient struct {
	sarama.Client
	greetings *Dialer
}

func (c *greetedClient) Close() error {
	c.greetings.End()
	return c.Client.Close()
}

// newClient is sarama.NewClient, which knows no context.
func newClient(ctx context.Context, brokers []string, conf *sarama.Config) (sarama.Client, error) {
	type result struct {
		client sarama.Client
		err    error
	}
	results := make(chan result, 1)
	go func() {
		client, err := sarama.NewClient(brokers, conf)
		results <- result{client, err}
	}()
	select {
	case r := <-results:
		return r.client, r.err
	case <-ctx.Done():
		go func() {
			if r := <-results; r.client != nil {
				_ = r.client.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// greeter greets brokers over connections of its own.
type greeter struct {
	conf   sarama.Config
	client *Dialer // whose Dial passes over those that do not answer
	dialer *Dialer // of the greetings
	known  map[string]bool
}

func newGreeter(conf *sarama.Config, client *Dialer) *greeter {
	g := &greeter{conf: *conf, client: client, known: map[string]bool{}}
	g.conf.ApiVersionsRequest = true // the question
	g.dialer = NewDialer(&g.conf)
	return g
}

type greeting struct {
	addr string
	err  error
}

// greetPause is the time before a broker is greeted again that has refused, while no other one has answered either.
const greetPause = 500 * time.Millisecond

// greet greets brokers, and returns nil when all have answered or the grace is over, which begins with the first answer
// if it is nil. It returns the errors when all have failed.
func (g *greeter) greet(ctx context.Context, addrs []string, grace <-chan time.Time) error {
	greetings := make(chan greeting, len(addrs))
	waiting, failed := map[string]bool{}, NoAnswer{}
	for _, addr := range slices.Compact(slices.Sorted(slices.Values(addrs))) {
		g.known[addr], waiting[addr] = true, true
		go g.patiently(addr, 0, greetings)
	}
	answered, all := grace != nil, len(waiting)
	for len(waiting) > 0 {
		select {
		case got := <-greetings:
			switch {
			case got.err == nil:
				delete(waiting, got.addr)
				if !answered {
					answered, grace = true, time.After(greetGrace)
				}
			case answered && !timedOut(got.err):
				delete(waiting, got.addr)
			case answered: // and greeted again
			default:
				if failed[got.addr] = got.err; len(failed) == all {
					return failed
				}
				if !timedOut(got.err) { // else it is greeted again already
					go g.patiently(got.addr, greetPause, greetings)
				}
			}
			continue
		case <-grace:
		case <-ctx.Done():
		}
		break
	}
	g.passOver(waiting, failed, greetings)
	if answered {
		return nil
	}
	return failed
}

// passOver has the client pass over the brokers that have not answered.
func (g *greeter) passOver(waiting map[string]bool, failed NoAnswer, greetings <-chan greeting) {
	for addr := range waiting {
		if failed[addr] == nil {
			failed[addr] = errNoGreeting
		}
		g.client.Avoid(addr)
	}
	for {
		select {
		case got := <-greetings: // it came in between
			if !timedOut(got.err) {
				g.client.Allow(got.addr)
			}
		default:
			return
		}
	}
}

// greetTries is how often a broker is greeted that does not answer: for about a minute, with the time-outs of this
// module's clients. A cluster has long given up a broker then that is silent for so long.
const greetTries = 5

// patiently greets a broker until it answers or refuses, and says what came of it each time.
func (g *greeter) patiently(addr string, after time.Duration, greetings chan<- greeting) {
	time.Sleep(after)
	for range greetTries {
		err := Greet(addr, &g.conf)
		select {
		case greetings <- greeting{addr, err}:
		default: // nobody listens any more
		}
		if !timedOut(err) {
			break
		}
	}
	g.client.Allow(addr) // last: an answer that came before Avoid is in the channel
}

func timedOut(err error) bool {
	silent, ok := errors.AsType[net.Error](err)
	return ok && silent.Timeout()
}

// Greet connects to a broker with all that belongs to it, TLS, the versions and SASL, and closes the connection.
func Greet(addr string, conf *sarama.Config) error {
	b := sarama.NewBroker(addr)
	if err := b.Open(conf); err != nil {
		return err
	}
	_, err := b.Connected() // waits until it is open, or has failed
	_ = b.Close()
	return err
}
