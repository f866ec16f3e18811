package record

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/einmal-go/einmal/dedupstore"
)

// Form is how an insertion is told from a redelivery: see the package's documentation.
type Form int

// The forms.
const (
	Upsert Form = iota
	DoNothing
)

// chosen remembers the Form that the table takes. It is safe for concurrent use.
type chosen struct{ form atomic.Pointer[Form] }

func (c *chosen) set(f Form) { c.form.Store(&f) }
func (c *chosen) forget()    { c.form.Store(nil) }

// Attempt records the probe's key twice, in one transaction that it rolls back, and says what came of each.
type Attempt func(ctx context.Context, form Form, probe dedupstore.Key) (first, second Outcome, err error)

// choose returns the form that is known, or finds it out. Callers that come before it is known find it out too: that
// does no harm.
func (c *chosen) choose(ctx context.Context, only bool, unsupported func(error) bool, try Attempt) (Form, error) {
	if known := c.form.Load(); known != nil {
		return *known, nil
	}
	form := Upsert
	if only {
		form = DoNothing
	}
	err := probe(ctx, form, try)
	if err != nil && form == Upsert && unsupported(err) {
		form = DoNothing
		err = probe(ctx, form, try)
	}
	if err != nil {
		return form, err
	}
	c.set(form)
	return form, nil
}

var errWrongAnswer = errors.New("the table does not tell insertions from redeliveries: it may have a trigger or a rule that changes what is inserted; remove it")

// probeConsumer is that of a probe for nobody in particular.
const probeConsumer = "einmal"

// probe uses a key that nobody else has, and that fits a table for UUIDv7 ids. Its consumer is the one that the call,
// or the check, is for: a table may have places for the consumers of the service alone.
func probe(ctx context.Context, form Form, try Attempt) error {
	key := dedupstore.Key{Consumer: probeConsumer, Event: newUUID7()}
	if of, ok := dedupstore.KeyFrom(ctx); ok && of.Consumer != "" {
		key.Consumer = of.Consumer
	}
	first, second, err := try(ctx, form, key)
	switch {
	case err != nil:
		return &probeError{err, key}
	case first != Inserted, second == Inserted, form == Upsert && second != Repeated:
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%w (first %v, second %v)", errWrongAnswer, first,
			second))
	}
	return nil
}

// String returns the outcome in one word.
func (o Outcome) String() string { return [...]string{"silent", "inserted", "repeated"}[o] }

// probeError is an error of the probe, with its key.
type probeError struct {
	error
	key dedupstore.Key
}

func (e *probeError) Unwrap() error { return e.error }

// probed says that what failed was a probe. Nothing is wrong with the caller's key then, whatever the table refused.
func probed(err, explained error) error {
	e, ok := errors.AsType[*probeError](err)
	if !ok {
		return explained
	}
	class := dedupstore.ClassOf(explained)
	if class == dedupstore.Permanent {
		class = dedupstore.Misconfigured
	}
	explained = fmt.Errorf("%w; it was a probe, which records a new id for the consumer %q and rolls back", explained,
		e.key.Consumer)
	if class == dedupstore.Unclassified {
		return explained
	}
	return dedupstore.WithClass(class, explained)
}

// recorded returns the key that was to be recorded: the caller's, or the probe's if it failed.
func recorded(key dedupstore.Key, err error) dedupstore.Key {
	if e, ok := errors.AsType[*probeError](err); ok {
		return e.key
	}
	return key
}
