package handlertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/einmal-go/einmal/dedupstore"
)

// ErrInjected is wrapped by the errors of a Store that fails because it was told to, and is the cause of the contexts
// that it cancels.
var ErrInjected = errors.New("handlertest: a failure that the test asked for")

// Store is a dedupstore.Store that can be told to fail. Otherwise it is the store that it was made of. It is safe for
// concurrent use.
type Store[Tx any] struct {
	inner dedupstore.Store[Tx]

	mu    sync.Mutex
	point Point // at which it fails next; 0 for none
	wait  int   // calls before the one that fails
	hit   bool  // a call has ended with the failure since Fail was called
	keys  []dedupstore.Key
	meet  func() // called by each call
}

var (
	_ dedupstore.Store[int] = (*Store[int])(nil)
	_ dedupstore.Checker    = (*Store[int])(nil)
	_ dedupstore.Grouper    = (*Store[int])(nil)
)

// NewStore returns a Store made of store.
func NewStore[Tx any](store dedupstore.Store[Tx]) *Store[Tx] { return &Store[Tx]{inner: store} }

// Fail makes a later call of Once fail at that point: the next one for call 1, and no other. It replaces what was asked
// for before. A call for a key that is recorded already runs no function, and fails only at BeforeRecord and
// AfterCommit.
func (s *Store[Tx]) Fail(at Point, call int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.point, s.wait, s.hit = at, call-1, false
}

func (s *Store[Tx]) note(failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hit = s.hit || failed
}

func (s *Store[Tx]) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit
}

// onCall has f called at the beginning of each call of Once.
func (s *Store[Tx]) onCall(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meet = f
}

// Keys returns the keys of all calls of Once, in their order.
func (s *Store[Tx]) Keys() []dedupstore.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

// Check implements dedupstore.Checker, if the store that s was made of does.
func (s *Store[Tx]) Check(ctx context.Context) error {
	if c, ok := s.inner.(dedupstore.Checker); ok {
		return c.Check(ctx)
	}
	return nil
}

// Group implements dedupstore.Grouper, if the store that s was made of does.
func (s *Store[Tx]) Group() int {
	if g, ok := s.inner.(dedupstore.Grouper); ok {
		return g.Group()
	}
	return 0
}

// Once implements dedupstore.Store.
func (s *Store[Tx]) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx Tx) error) (ran bool,
	err error) {
	at := s.begin(ctx, key)
	failure := fmt.Errorf("%w: %v", ErrInjected, at)
	defer func() { s.note(errors.Is(err, failure)) }()
	if at == BeforeRecord {
		return false, failure
	}
	ran, err = s.inner.Once(ctx, key, func(ctx context.Context, tx Tx) error {
		return at.call(ctx, failure, func(ctx context.Context) error { return fn(ctx, tx) })
	})
	switch {
	case at == AfterCommit && err == nil, at == AtCommit && errors.Is(err, failure):
		return false, fmt.Errorf("%w: %w", dedupstore.ErrOutcomeUnknown, failure)
	default:
		return ran, err
	}
}

// begin notes a call and returns the point at which it fails, or 0.
func (s *Store[Tx]) begin(ctx context.Context, key dedupstore.Key) Point {
	s.mu.Lock()
	s.keys = append(s.keys, key)
	at, meet := Point(0), s.meet
	switch {
	case s.point == 0, ctx.Value(spared{}) != nil:
	case s.wait > 0:
		s.wait--
	default:
		at, s.point = s.point, 0
	}
	s.mu.Unlock()
	if meet != nil {
		meet()
	}
	if arrive, ok := ctx.Value(arrival{}).(func()); ok {
		arrive()
	}
	return at
}

// call runs fn, as far as the transaction gets.
func (p Point) call(ctx context.Context, failure error, fn func(ctx context.Context) error) error {
	switch p {
	case AfterRecord:
		return failure
	case InHandler:
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(failure)
		return fn(ctx)
	case AfterHandler, AtCommit:
		if err := fn(ctx); err != nil {
			return err
		}
		return failure
	default:
		return fn(ctx)
	}
}
