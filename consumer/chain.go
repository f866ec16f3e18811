package consumer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/internal/nils"
)

// topic is a Topic in its final form: the chain composed, the defaults filled in.
type topic struct {
	name       string
	group      string
	consumer   string
	eventID    func(*Message) (string, error)
	onFailure  OnFailure
	order      Order
	workers    *workers
	riders     *workers      // of messages that wait behind one of their lane
	train      int           // messages of a lane that are in work at once
	limit      time.Duration // of an attempt, 0 for none
	limitGiven time.Duration // Topic.ProcessingLimit, 0 if it is the default
	onStuck    OnStuck

	sameEventsAs string // Topic.SameEventsAs

	start      Start
	outOfRange OutOfRange

	chain Handler

	errorText func(err error, msg *Message) string // nil for the default

	names names // of headers

	partitionMessages int // Limits.PartitionMessages for this topic

	totals topicTotals

	noKeyTold atomic.Bool // see tellNoKey

	links     []Handler // all links of the chain and its branches
	effects   []string  // the names under which they are recorded
	assignees []Assignee
}

// newTopic composes the chain of a topic link by link, so that each link can be asked for what it offers.
func newTopic(cfg Config, name string) (*topic, error) {
	t := cfg.Topics[name]
	tp := &topic{
		name: name, group: cfg.Group, consumer: t.Consumer, eventID: t.EventID, onFailure: t.OnFailure,
		order: t.Order, limit: max(0, t.ProcessingLimit), limitGiven: max(0, t.ProcessingLimit), onStuck: t.OnStuck,
		start: t.Start, outOfRange: t.OutOfRange,
		partitionMessages: cfg.Limits.PartitionMessages, errorText: cfg.ErrorText, sameEventsAs: t.SameEventsAs,
	}
	if t.ProcessingLimit == 0 {
		tp.limit = DefaultProcessingLimit
	}
	if tp.consumer == "" {
		tp.consumer = cfg.Group + "/" + name
	}
	if tp.eventID == nil {
		tp.eventID = HeaderID(DefaultEventIDHeader)
	}
	err := tp.compose(t.Handler, append(append([]Middleware(nil), cfg.Middleware...), t.Middleware...))
	if err := errors.Join(append(validateTopic(name, t), err)...); err != nil {
		return nil, err
	}
	tp.size(t)
	return tp, nil
}

// size decides how many messages are in work and held, which depends on what the links can do with many of them.
func (t *topic) size(cfg Topic) {
	if cfg.Workers == 0 && cfg.Order != PartitionOrder {
		cfg.Workers = max(DefaultWorkers, 2*t.grouped()) // while a group is in the store, the next one gathers
	}
	t.workers, t.train = newWorkers(cfg), t.trainLength()
	t.riders = newRiders(t.workers)
	if t.partitionMessages == 0 {
		t.partitionMessages = max(defaultPartitionMessages, 4*cfg.Workers, 4*t.train)
	}
}

func (t *topic) compose(h Handler, mws []Middleware) error {
	if h == nil {
		return errors.New("Handler is missing: set Topic.Handler")
	}
	if nils.Is(h) {
		return fmt.Errorf("Handler is a nil %s: set Topic.Handler", strings.TrimPrefix(fmt.Sprintf("%T", h), "consumer."))
	}
	links, err := Compose(h, mws)
	if err != nil {
		return fmt.Errorf("%w; Config.Middleware comes first", err)
	}
	t.chain, t.links, t.effects = links[0], allLinks(links), effectNames(t.consumer, links)
	for _, h := range t.links {
		if _, checks := h.(Checker); checks && embedsConsumer(reflect.TypeOf(h)) {
			return fmt.Errorf("the handler %T embeds *consumer.Consumer, whose Check becomes the handler's and would ask itself for ever: give the field a name", h)
		}
		if a, ok := h.(Assignee); ok {
			t.assignees = append(t.assignees, a)
		}
	}
	return errors.Join(checkOrder(0, links), validateLinks(nil, links), t.validateTimeouts())
}

// Compose builds a chain: h inside the middlewares, of which the first is the outermost. It returns all links of the
// chain, the outermost first, so that each can be asked for what it offers. New does so with each topic, a Brancher
// with its branches.
func Compose(h Handler, mws []Middleware) ([]Handler, error) {
	links := expand(h, nil)
	slices.Reverse(links)
	for i, mw := range slices.Backward(mws) {
		if mw == nil {
			return nil, fmt.Errorf("middleware %d (the outermost is 0) is nil: remove it", i)
		}
		next := h
		if h = mw(next); nils.Is(h) {
			return nil, fmt.Errorf("middleware %d (the outermost is 0) returned a nil Handler: it must return a handler that calls the next one", i)
		}
		if !same(h, next) { // a middleware that is switched off returns next itself
			made := expand(h, next)
			slices.Reverse(made)
			links = append(links, made...)
		}
	}
	slices.Reverse(links)
	return links, nil
}

// maxNested is how many links one middleware may have put around the next one. More than that call themselves.
const maxNested = 1000

// expand returns h and the links that it shows, the outermost first, as far as inner, which is not among them.
func expand(h, inner Handler) []Handler {
	var links []Handler
	for !nils.Is(h) && len(links) < maxNested && (inner == nil || !same(h, inner)) {
		links = append(links, h)
		w, ok := h.(Wrapper)
		if !ok {
			break
		}
		h = w.Unwrap()
	}
	return links
}

// embedsConsumer reports whether a type has the methods of a Consumer because that is embedded in it.
func embedsConsumer(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		if f.Anonymous && (f.Type == reflect.TypeFor[*Consumer]() || f.Type.Kind() == reflect.Struct &&
			embedsConsumer(f.Type)) {
			return true
		}
	}
	return false
}

// same reports whether a and b are one and the same. Funcs cannot be compared; they have no methods that New asks for.
func same(a, b Handler) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// validateLinks asks the links of a chain and of its branches.
func validateLinks(outside, links []Handler) error {
	var errs []error
	for i, h := range links {
		around := slices.Concat(outside, links[:i])
		if v, ok := h.(Validator); ok {
			errs = append(errs, v.Validate(around))
		}
		if b, ok := h.(Brancher); ok {
			for _, branch := range b.Branches() {
				errs = append(errs, validateLinks(append(around, h), branch))
			}
		}
	}
	return errors.Join(errs...)
}

// allLinks returns the links and those of their branches.
func allLinks(links []Handler) []Handler {
	var all []Handler
	for _, h := range links {
		all = append(all, h)
		if b, ok := h.(Brancher); ok {
			for _, branch := range b.Branches() {
				all = append(all, allLinks(branch)...)
			}
		}
	}
	return all
}

// checkOrder refuses links that stand inside what must be inside of them. outer is the innermost link around them, or
// 0.
func checkOrder(outer Link, links []Handler) error {
	var errs []error
	for _, h := range links {
		if l, ok := h.(Linker); ok {
			link := l.Link()
			switch {
			case link == outer && link.once():
				errs = append(errs, fmt.Errorf("the chain has two %s links: remove one of them (Config.Middleware, Topic.Middleware and a step's own make one chain)", link))
			case link < outer:
				errs = append(errs, fmt.Errorf("%s stands inside %s: put it outside; the order is %s", link, outer, linkOrder))
			default:
				outer = link
			}
		}
		if b, ok := h.(Brancher); ok {
			for _, branch := range b.Branches() {
				errs = append(errs, checkOrder(outer, branch))
			}
		}
	}
	return errors.Join(errs...)
}

const linkOrder = "Tracing, Metrics, Logging, DeadLetter, HandOn, CrashLoop, Retry, Recover, Timeout, Dedup, the outermost first"

func (l Link) once() bool {
	return l == LinkMetrics || l == LinkRetry || l == LinkDeadLetter || l == LinkHandOn || l == LinkCrashLoop ||
		l == LinkDedup
}

// String returns the name of the middleware.
func (l Link) String() string {
	switch l {
	case LinkTracing:
		return "Tracing"
	case LinkMetrics:
		return "Metrics"
	case LinkLogging:
		return "Logging"
	case LinkDeadLetter:
		return "DeadLetter"
	case LinkHandOn:
		return "HandOn"
	case LinkCrashLoop:
		return "CrashLoop"
	case LinkRetry:
		return "Retry"
	case LinkRecover:
		return "Recover"
	case LinkTimeout:
		return "Timeout"
	case LinkDedup:
		return "Dedup"
	default:
		return fmt.Sprintf("Link(%d)", int(l))
	}
}

// assigned tells the links that a partition begins.
func (t *topic) assigned(partition int32) {
	inFlight := t.train
	if t.order != PartitionOrder {
		inFlight = t.partitionMessages
	}
	for _, a := range t.assignees {
		a.Assigned(t.name, partition, inFlight)
	}
}

// check asks every link that can tell whether it will work.
func (t *topic) check(ctx context.Context) []error {
	ctx = WithMessage(ctx, &Message{Topic: t.name, Group: t.group, Consumer: t.consumer})
	var errs []error
	for _, h := range t.links {
		if c, ok := h.(Checker); ok {
			if err := checkLink(ctx, c); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

// checkLink contains a Check that panics, and leaves one behind that ignores its context.
func checkLink(ctx context.Context, c Checker) error {
	_, err := bounded(ctx, cancelGrace, func() (none struct{}, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("check: %w", &Panic{Value: v, Stack: debug.Stack()})
			}
		}()
		return none, c.Check(ctx)
	}, func(struct{}) {})
	return err
}
