package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// Step is one effect of a Sequence: a chain of its own.
type Step struct {
	// Name names the effect: the step's msg.Consumer is the topic's, a slash, and Name. It must be unique in its Sequence
	// and hold no slash. Changing it applies redelivered events again, as with Topic.Consumer. Required.
	Name string

	// Handler is the innermost link of the step, as a rule a Dedup: a step without it is repeated in each attempt until
	// all steps have finished. Required.
	Handler consumer.Handler

	// Middleware stands around Handler. The first is the outermost. A step's DeadLetter, Retry, Recover and Timeout stand
	// here.
	Middleware []consumer.Middleware
}

// Sequence returns a handler for several effects of one message, each with a transaction and a record of its own, in
// their order.
//
// Each step gets a copy of the message that names it in msg.Consumer. A step that returns nil has finished; an error
// ends the attempt, and the steps behind it wait. In the next attempt, wherever it is made, all steps are run again:
// those that had finished find their record and do nothing. Steps can therefore be added in front, in between and
// behind: a message that is delivered again makes up for them. They see nothing of each other but what they write to
// the database, and between two of them the process may end: put into one function, and so into one transaction, what
// must never be seen apart.
//
// DeadLetter, HandOn and Retry stand in the steps, never around the Sequence: New refuses it. A step that was given up
// and written as a dead letter has finished, and the next one begins; without a DeadLetter it holds up the steps behind
// it, and OnFailure applies. A step's msg.Attempt, FirstAttempt and LastError are its own: only its failures count,
// since it last finished. They are found again in the message's LastError, so they begin anew where that one does: with
// another owner of the partition, and after an attempt in which a link outside hid the Sequence's error.
//
// The message's Result sums up the steps: it is a duplicate if all of them were, dead if one of them was in this
// attempt, and its times go from the first step to the last one. A panic of a step is an error of the step, a
// *consumer.Panic, even without Recover.
func Sequence(steps ...Step) consumer.Handler {
	s := &sequence{}
	var errs []error
	names := map[string]bool{}
	for i, step := range steps {
		errs = append(errs, checkName(i, step.Name, names[step.Name]), s.add(i, step))
		names[step.Name] = true
	}
	if len(steps) == 0 {
		errs = append(errs, errors.New("middleware.Sequence: there are no steps: pass at least one"))
	}
	s.invalid = errors.Join(errs...)
	return s
}

type sequence struct {
	steps   []step
	invalid error // what is wrong with the steps
}

// step is a Step with its chain composed.
type step struct {
	name  string
	links []consumer.Handler // the outermost first
}

func (s *sequence) add(i int, st Step) error {
	if f, ok := st.Handler.(consumer.HandlerFunc); st.Handler == nil || ok && f == nil {
		return fmt.Errorf("middleware.Sequence: step %d, %q, has no handler: set Step.Handler", i, st.Name)
	}
	links, err := consumer.Compose(st.Handler, st.Middleware)
	if err != nil {
		return fmt.Errorf("middleware.Sequence: step %d, %q: %w", i, st.Name, err)
	}
	s.steps = append(s.steps, step{st.Name, links})
	return nil
}

func checkName(i int, name string, taken bool) error {
	switch {
	case name == "":
		return fmt.Errorf("middleware.Sequence: step %d has no name: give it one, it stands in the records of the step's effects", i)
	case taken:
		return fmt.Errorf("middleware.Sequence: step %d, %q, has the name of an earlier one: its effects would be taken for duplicates of that one's", i, name)
	case strings.Contains(name, "/"):
		return fmt.Errorf("middleware.Sequence: the name of step %d, %q, holds a slash, which parts a consumer's name from a step's: leave it out", i, name)
	}
	if err := (dedupstore.Key{Consumer: name, Event: "any"}).Validate(); err != nil {
		return fmt.Errorf("middleware.Sequence: the name of step %d: %w", i, err)
	}
	return nil
}

// Validate implements consumer.Validator.
func (s *sequence) Validate(outside []consumer.Handler) error {
	errs := []error{s.invalid}
	for _, h := range outside {
		l, ok := h.(consumer.Linker)
		if ok && (l.Link() == consumer.LinkRetry || l.Link() == consumer.LinkDeadLetter || l.Link() == consumer.LinkHandOn) {
			errs = append(errs, fmt.Errorf("middleware.Sequence stands inside %v: move that to the Step.Middleware of each step, so that a step which fails or is given up takes no other one with it", l.Link()))
		}
	}
	return errors.Join(errs...)
}

// Branches implements consumer.Brancher.
func (s *sequence) Branches() [][]consumer.Handler {
	branches := make([][]consumer.Handler, 0, len(s.steps))
	for _, st := range s.steps {
		branches = append(branches, st.links)
	}
	return branches
}

// EffectNames tells consumer.New under which names the steps record.
func (s *sequence) EffectNames(consumer string) []string {
	names := make([]string, 0, len(s.steps))
	for _, st := range s.steps {
		names = append(names, st.consumer(consumer))
	}
	return names
}

// Handle implements consumer.Handler.
func (s *sequence) Handle(ctx context.Context, msg *consumer.Message) error {
	if s.invalid != nil {
		return s.invalid // not permanent: nothing is wrong with the message
	}
	failures := s.failuresOf(msg.LastError)
	duplicates := 0
	for i, st := range s.steps {
		if i > 0 && ctx.Err() != nil {
			return &stepError{step: st.name, err: fmt.Errorf("not begun: %w", context.Cause(ctx)), of: s, failures: failures}
		}
		m := st.message(msg, failures[i])
		first := m.FirstAttempt
		err := st.handle(ctx, msg, m, func(err error) error {
			sumUp(&msg.Result, m.Result)
			if err != nil {
				failures[i] = failures[i].and(first, err)
				return &stepError{step: st.name, err: err, of: s, failures: failures}
			}
			failures[i] = failure{}
			if m.Result.Exited != nil && i < len(s.steps)-1 { // nobody is left to begin the next step
				return consumer.RetryAfter(0, &stepError{step: st.name, err: errStepExited, of: s, failures: failures})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if m.Result.Duplicate {
			duplicates++
		}
	}
	msg.Result.Duplicate = duplicates == len(s.steps)
	return nil
}

// consumer names the effect of the step of a topic's consumer.
func (st step) consumer(topic string) string { return topic + "/" + st.name }

// message is the step's own copy of msg.
func (st step) message(msg *consumer.Message, f failure) *consumer.Message {
	m := *msg
	m.Consumer = st.consumer(msg.Consumer)
	m.Attempt, m.FirstAttempt, m.LastError = f.attempts+1, f.first, f.last
	if f.attempts == 0 {
		m.FirstAttempt = time.Now()
	}
	m.Result = consumer.Result{}
	return &m
}

var errStepExited = errors.New("the step is done, but its handler ended its goroutine")

// handle runs the step's chain, and then with what it came to. It makes an error of a panic, so that it counts as a
// failure of this step and keeps those of the others.
func (st step) handle(ctx context.Context, msg, m *consumer.Message, then func(err error) error) error {
	return callFor(consumer.WithMessage(ctx, m), msg, m, &recoverer{st.links[0]}, then)
}

// sumUp adds what a step came to.
func sumUp(sum *consumer.Result, res consumer.Result) {
	sum.Dead, sum.DeadErr = sum.Dead || res.Dead, cmp.Or(sum.DeadErr, res.DeadErr)
	sum.HandedOn = cmp.Or(sum.HandedOn, res.HandedOn)
	sum.Skipped = sum.Skipped || res.Skipped
	sum.Logged = res.Logged // of the step that has failed, if one has
	sum.Transactions.Add(res.Transactions)
	first := func(t *time.Time, other time.Time) {
		if t.IsZero() {
			*t = other
		}
	}
	last := func(t *time.Time, other time.Time) {
		if !other.IsZero() {
			*t = other
		}
	}
	first(&sum.Begin, res.Begin)
	first(&sum.HandlerStart, res.HandlerStart)
	last(&sum.HandlerEnd, res.HandlerEnd)
	last(&sum.End, res.End)
}

// failure is what became of the attempts at a step since it last finished.
type failure struct {
	attempts int // that have failed
	first    time.Time
	last     error
}

func (f failure) and(first time.Time, err error) failure {
	return failure{attempts: f.attempts + 1, first: first, last: err}
}

// failuresOf returns the failures of each step that the last attempt's error tells of.
func (s *sequence) failuresOf(last error) []failure {
	var e *stepError
	for errors.As(last, &e) {
		if e.of == s {
			return slices.Clone(e.failures)
		}
		last = e.err // another Sequence's
	}
	return make([]failure, len(s.steps))
}

// stepError is the error of an attempt that ended in a step. What the step's own error asks for can be seen through it.
type stepError struct {
	step     string
	err      error
	of       *sequence
	failures []failure // of each step, this one's included
}

func (e *stepError) Error() string { return fmt.Sprintf("step %q: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }
