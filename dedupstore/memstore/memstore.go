// Package memstore is a dedupstore.Store in memory, for tests: of handlers and of what is built on a Store, without a
// database. It forgets everything with the process, so it protects nothing in production.
//
// A function's effects are what it gives to Tx.OnCommit: they happen if and when the transaction is committed.
//
//	store := memstore.New()
//	var charged []string
//	ran, err := store.Once(ctx, key, func(ctx context.Context, tx *memstore.Tx) error {
//		tx.OnCommit(func() { charged = append(charged, "order 1") })
//		return nil
//	})
package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// lockTimeout is how long a call waits for another one that holds its key, as in pgxstore.
const lockTimeout = 5 * time.Second

// Store remembers keys in memory. It is safe for concurrent use, and keeps the contract of dedupstore.Store with two
// exceptions that need a database: it is one process's alone, and a function that hangs holds its key until it returns,
// while other calls for that key fail after 5 s each.
type Store struct {
	committing sync.Mutex // one commit after the other

	mu       sync.Mutex
	recorded map[dedupstore.Key]bool
	held     map[dedupstore.Key]chan struct{} // closed when the key is free again
}

var _ dedupstore.Store[*Tx] = (*Store)(nil)

// New returns an empty Store.
func New() *Store {
	return &Store{recorded: map[dedupstore.Key]bool{}, held: map[dedupstore.Key]chan struct{}{}}
}

// Recorded reports whether the effect of key has been committed.
func (s *Store) Recorded(key dedupstore.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recorded[key]
}

// Identity implements dedupstore.Identifier.
func (s *Store) Identity(context.Context) (string, error) { return fmt.Sprintf("memory/%p", s), nil }

// Once implements dedupstore.Store.
func (s *Store) Once(ctx context.Context, key dedupstore.Key, fn func(ctx context.Context, tx *Tx) error) (ran bool,
	err error) {
	if err := key.Validate(); err != nil {
		return false, fmt.Errorf("memstore: %w", err)
	}
	recorded, err := s.hold(ctx, key)
	if err != nil || recorded {
		return false, err
	}
	defer s.release(key)
	tx := &Tx{}
	defer tx.end()
	if err := fn(ctx, tx); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, contextDone(ctx)
	}
	s.commit(key, tx)
	return true, nil
}

// hold waits until nobody holds key, and holds it unless it is recorded.
func (s *Store) hold(ctx context.Context, key dedupstore.Key) (recorded bool, err error) {
	timeout := time.NewTimer(lockTimeout)
	defer timeout.Stop()
	for ctx.Err() == nil {
		recorded, free := s.tryHold(key)
		if free == nil {
			return recorded, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
		case <-timeout.C:
			return false, fmt.Errorf("memstore: %w: for longer than %v: try again later", dedupstore.ErrLocked, lockTimeout)
		}
	}
	return false, dedupstore.WithClass(dedupstore.Unavailable, contextDone(ctx))
}

// tryHold returns a channel to wait for if somebody else holds key.
func (s *Store) tryHold(key dedupstore.Key) (recorded bool, free <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recorded[key] {
		return true, nil
	}
	if free, ok := s.held[key]; ok {
		return false, free
	}
	s.held[key] = make(chan struct{})
	return false, nil
}

func (s *Store) release(key dedupstore.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.held[key])
	delete(s.held, key)
}

func (s *Store) commit(key dedupstore.Key, tx *Tx) {
	s.committing.Lock()
	defer s.committing.Unlock()
	for _, f := range tx.end() {
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded[key] = true
}

// contextDone wraps the context's error and its cause.
func contextDone(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("memstore: rolled back: %w", cause)
	}
	return fmt.Errorf("memstore: rolled back: %w: %w", err, cause)
}

// Tx is a transaction of a Store, for the time of one function.
type Tx struct {
	mu       sync.Mutex
	ended    bool
	onCommit []func()
}

// OnCommit has f called when the transaction is committed, before Once returns, and not at all if it is rolled back.
// The functions of a transaction are called in their order, those of two transactions never at the same time. f must
// not panic, nor call Once. OnCommit panics if the function that got tx has returned.
func (tx *Tx) OnCommit(f func()) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended {
		panic("memstore: OnCommit was called after the transaction had ended")
	}
	tx.onCommit = append(tx.onCommit, f)
}

// end returns what is to be called if this is a commit.
func (tx *Tx) end() []func() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	return tx.onCommit
}
