package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

var allLinks = []consumer.Link{
	consumer.LinkTracing, consumer.LinkMetrics, consumer.LinkLogging, consumer.LinkDeadLetter, consumer.LinkHandOn,
	consumer.LinkCrashLoop, consumer.LinkRetry,
	consumer.LinkRecover, consumer.LinkTimeout, consumer.LinkDedup,
}

func oncePerChain(l consumer.Link) bool {
	return l == consumer.LinkMetrics || l == consumer.LinkDeadLetter || l == consumer.LinkHandOn ||
		l == consumer.LinkCrashLoop || l == consumer.LinkRetry || l == consumer.LinkDedup
}

// linked is a link with a place in the chain.
type linked struct {
	consumer.Handler
	link consumer.Link
}

func (l *linked) Link() consumer.Link { return l.link }

func linkOf(l consumer.Link) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler { return &linked{next, l} }
}

// unknown is the place of a link that does not say where it stands.
const unknown consumer.Link = -1

func middlewares(links ...consumer.Link) []consumer.Middleware {
	var mws []consumer.Middleware
	for _, l := range links {
		if l == unknown {
			mws = append(mws, through)
		} else {
			mws = append(mws, linkOf(l))
		}
	}
	return mws
}

// newSplit calls New with the first n links in Config.Middleware, the rest in the topic's, and what the last one wraps
// as the handler.
func newSplit(links []consumer.Link, n int, h consumer.Handler) error {
	cfg := valid()
	mws := middlewares(links...)
	cfg.Middleware = mws[:n]
	cfg.Topics["orders"] = consumer.Topic{Handler: h, Middleware: mws[n:]}
	_, err := consumer.New(cfg)
	return err
}

// everySplit calls New with the links divided in every way over Config.Middleware, Topic.Middleware and Topic.Handler.
func everySplit(t *testing.T, links []consumer.Link, check func(err error)) {
	t.Helper()
	for n := range len(links) + 1 {
		check(newSplit(links, n, nop))
	}
	if last := links[len(links)-1]; last != unknown {
		for n := range links {
			check(newSplit(links[:len(links)-1], n, &linked{nop, last}))
		}
	}
}

func TestEveryPairOfLinks(t *testing.T) {
	t.Parallel()
	for i, outer := range allLinks {
		for _, inner := range allLinks[i+1:] {
			for _, links := range [][]consumer.Link{{outer, inner}, {unknown, outer, unknown, inner, unknown}} {
				everySplit(t, links, func(err error) {
					if err != nil {
						t.Errorf("%v outside %v: %v", outer, inner, err)
					}
				})
				reversed := slices.Clone(links)
				slices.Reverse(reversed)
				everySplit(t, reversed, func(err error) { refusedOrder(t, err, inner, outer) })
			}
		}
	}
}

// refusedOrder checks the error for a link that stands outside of one which belongs outside of it.
func refusedOrder(t *testing.T, err error, outside, inside consumer.Link) {
	t.Helper()
	all := configErrors(t, err)
	if len(all) != 1 {
		t.Errorf("%v outside %v: %d errors, want one: %v", outside, inside, len(all), err)
		return
	}
	want := fmt.Sprintf("%v stands inside %v: put it outside", inside, outside)
	if all[0].Field != `Config.Topics["orders"]` || !strings.Contains(all[0].Problem, want) ||
		!strings.Contains(all[0].Problem,
			"Tracing, Metrics, Logging, DeadLetter, HandOn, CrashLoop, Retry, Recover, Timeout, Dedup") {
		t.Errorf("says %q, want %q and the order", all[0], want)
	}
}

func TestLinksThatStandOnce(t *testing.T) {
	t.Parallel()
	for _, l := range allLinks {
		for _, links := range [][]consumer.Link{{l, l}, {l, unknown, unknown, l}} {
			everySplit(t, links, func(err error) {
				if !oncePerChain(l) {
					if err != nil {
						t.Errorf("two %v links: %v", l, err)
					}
					return
				}
				all := configErrors(t, err)
				if len(all) != 1 || !strings.Contains(all[0].Problem, fmt.Sprintf("two %v links: remove one", l)) {
					t.Errorf("two %v links: New returned %v", l, err)
				}
			})
		}
	}
}

// Any chain: New accepts it if its known links are in order, none of those that stand once is there twice, and only
// then.
func TestAnyChain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		links := rapid.SliceOfN(rapid.SampledFrom(append([]consumer.Link{unknown}, allLinks...)), 0, 8).Draw(t, "links")
		split := rapid.IntRange(0, len(links)).Draw(t, "split")
		known := slices.DeleteFunc(slices.Clone(links), func(l consumer.Link) bool { return l == unknown })
		want := slices.IsSorted(known)
		for i := 1; i < len(known); i++ {
			want = want && !(known[i] == known[i-1] && oncePerChain(known[i]))
		}
		if err := newSplit(links, split, nop); (err == nil) != want {
			t.Fatalf("New returned %v, want acceptance: %v", err, want)
		}
	})
}

// A middleware that is switched off returns the next link itself. It is no second link.
func TestMiddlewareThatAddsNothing(t *testing.T) {
	t.Parallel()
	off := func(next consumer.Handler) consumer.Handler { return next }
	asked := 0
	for _, h := range []consumer.Handler{nop, &linked{nop, consumer.LinkDedup}, valueLink{nop},
		&validating{Handler: nop, validate: func([]consumer.Handler) error { asked++; return nil }}} {
		cfg := valid()
		cfg.Middleware = []consumer.Middleware{off, linkOf(consumer.LinkRetry), off}
		cfg.Topics["orders"] = consumer.Topic{Handler: h, Middleware: []consumer.Middleware{off}}
		if _, err := consumer.New(cfg); err != nil {
			t.Errorf("%T: %v", h, err)
		}
	}
	if asked != 1 {
		t.Errorf("a link was asked %d times", asked)
	}
}

// valueLink cannot be compared: it holds a func.
type valueLink struct{ consumer.Handler }

func (valueLink) Link() consumer.Link { return consumer.LinkTimeout }

// All that is wrong with a chain is told at once, and for each topic that has it.
func TestSeveralFaultsOfAChain(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Middleware = middlewares(consumer.LinkRetry, consumer.LinkTracing, consumer.LinkDeadLetter)
	cfg.Topics["alarms"] = consumer.Topic{Handler: nop, Middleware: middlewares(consumer.LinkRetry)}
	_, err := consumer.New(cfg)
	var got []string
	for _, e := range configErrors(t, err) {
		problem, _, _ := strings.Cut(e.Problem, ":")
		got = append(got, e.Field+" "+problem)
	}
	want := []string{
		`Config.Topics["alarms"] Tracing stands inside Retry`,
		`Config.Topics["alarms"] DeadLetter stands inside Retry`,
		`Config.Topics["alarms"] the chain has two Retry links`,
		`Config.Topics["orders"] Tracing stands inside Retry`,
		`Config.Topics["orders"] DeadLetter stands inside Retry`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("New says\n%q, want\n%q", got, want)
	}
}

func TestLinkNames(t *testing.T) {
	t.Parallel()
	names := []string{"Tracing", "Metrics", "Logging", "DeadLetter", "HandOn", "CrashLoop", "Retry", "Recover", "Timeout",
		"Dedup"}
	for i, l := range allLinks {
		if l.String() != names[i] {
			t.Errorf("link %d is called %v, want %s", i, l, names[i])
		}
	}
	if s := consumer.Link(42).String(); s != "Link(42)" {
		t.Errorf("an unknown link is called %s", s)
	}
}

// steps is the sequence in which links were entered and left.
type steps struct {
	mu  sync.Mutex
	all map[string][]string // by topic
}

func (s *steps) add(topic, step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string][]string{}
	}
	s.all[topic] = append(s.all[topic], step)
}

func (s *steps) of(topic string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all[topic])
}

func (s *steps) middleware(name string) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			s.add(msg.Topic, name+"(")
			defer s.add(msg.Topic, ")"+name)
			return next.Handle(ctx, msg)
		})
	}
}

func (s *steps) Handle(_ context.Context, msg *consumer.Message) error {
	s.add(msg.Topic, "handler")
	return nil
}

// The first middleware is the outermost, those of the Config stand outside of the topic's, each topic has its own.
func TestOrderOfCalls(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	first, second, group := b.Topic(t, 1), b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, append(records(first, 1, 2), records(second, 1, 1)...)...)
	var s steps
	start(t, consumer.Config{
		Brokers: b.Addrs, Group: group,
		Middleware: []consumer.Middleware{s.middleware("a"), s.middleware("b")},
		Topics: map[string]consumer.Topic{
			first:  {Handler: &s, Middleware: []consumer.Middleware{s.middleware("c"), s.middleware("d")}},
			second: {Handler: &s, Middleware: []consumer.Middleware{s.middleware("e")}},
		},
	})
	once := []string{"a(", "b(", "c(", "d(", "handler", ")d", ")c", ")b", ")a"}
	want := append(slices.Clone(once), once...)
	eventually(t, "three messages are handled", func() bool {
		return len(s.of(first)) >= len(want) &&
			len(s.of(second)) >= 7
	})
	if got := s.of(first); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := s.of(second), []string{"a(", "b(", "e(", "handler", ")e", ")b", ")a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// branching is a link that holds chains of its own.
type branching struct {
	consumer.Handler
	branches [][]consumer.Handler
}

func (b *branching) Branches() [][]consumer.Handler { return b.branches }

// branchesOf makes a middleware of links that hold nothing but their places.
func branchesOf(branches ...[]consumer.Handler) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler { return &branching{next, branches} }
}

func chainOf(links ...consumer.Link) []consumer.Handler {
	var chain []consumer.Handler
	for _, l := range links {
		chain = append(chain, &linked{nop, l})
	}
	return chain
}

func TestOrderOfBranches(t *testing.T) {
	t.Parallel()
	inner := &branching{nop, [][]consumer.Handler{chainOf(consumer.LinkRetry)}}
	for _, test := range []struct {
		name     string
		outer    []consumer.Link
		branches [][]consumer.Handler
		want     []string
	}{
		{"none", []consumer.Link{consumer.LinkRetry}, nil, nil},
		{"in order", []consumer.Link{consumer.LinkRetry},
			[][]consumer.Handler{chainOf(consumer.LinkRecover, consumer.LinkDedup)}, nil},
		{"each branch has its own", nil, [][]consumer.Handler{chainOf(consumer.LinkDedup), {},
			chainOf(consumer.LinkRetry, consumer.LinkDedup)}, nil},
		{"wrong inside", nil, [][]consumer.Handler{chainOf(consumer.LinkDedup, consumer.LinkRetry)},
			[]string{"Retry stands inside Dedup"}},
		{"wrong with what is outside", []consumer.Link{consumer.LinkTimeout},
			[][]consumer.Handler{chainOf(consumer.LinkDedup), chainOf(consumer.LinkRetry)},
			[]string{"Retry stands inside Timeout"}},
		{"twice with what is outside", []consumer.Link{consumer.LinkRetry}, [][]consumer.Handler{chainOf(consumer.LinkRetry)},
			[]string{"the chain has two Retry links"}},
		{"a branch of a branch", []consumer.Link{consumer.LinkRecover}, [][]consumer.Handler{{inner}},
			[]string{"Retry stands inside Recover"}},
		{"two branches", []consumer.Link{consumer.LinkDedup}, [][]consumer.Handler{chainOf(consumer.LinkRetry),
			chainOf(consumer.LinkTracing)}, []string{"Retry stands inside Dedup", "Tracing stands inside Dedup"}},
	} {
		cfg := valid()
		cfg.Middleware = append(middlewares(test.outer...), branchesOf(test.branches...))
		_, err := consumer.New(cfg)
		var got []string
		for _, e := range configErrors(t, err) {
			problem, _, _ := strings.Cut(e.Problem, ":")
			got = append(got, problem)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// service is a handler that got the Consumer's methods by accident, Check among them.
type service struct{ *consumer.Consumer }

func (service) Handle(context.Context, *consumer.Message) error { return nil }

type derived struct {
	service
	consumer.Topic
}

// ops has a Consumer and a Check of its own.
type ops struct{ consumer *consumer.Consumer }

func (*ops) Handle(context.Context, *consumer.Message) error { return nil }
func (o *ops) Check(context.Context) error                   { _ = o.consumer; return nil }

func TestEmbeddedConsumerIsRefused(t *testing.T) {
	t.Parallel()
	for _, h := range []consumer.Handler{service{}, &service{}, derived{}, &derived{}} {
		cfg := valid()
		cfg.Topics = map[string]consumer.Topic{"orders": {Handler: h}}
		_, err := consumer.New(cfg)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T embeds *consumer.Consumer", h)) ||
			!strings.Contains(err.Error(), "give the field a name") {
			t.Errorf("%T: New says %v", h, err)
		}
	}
	cfg := valid()
	cfg.Topics = map[string]consumer.Topic{"orders": {Handler: &ops{}}}
	if _, err := consumer.New(cfg); err != nil {
		t.Error(err)
	}
}
