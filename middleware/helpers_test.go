package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

var errBase = errors.New("no stock")

// tx is a transaction of store: what was written and has not been committed.
type tx struct{ writes []string }

// store is a memstore whose fields make it fail.
type store struct {
	memory     memory
	mu         sync.Mutex
	charges    []string     // what was written and committed
	onRecord   func() error // before the record
	onCommit   func() error // before the commit, which an error prevents
	committing func()       // during the commit
	check      func(context.Context) error
}

// memory is a memstore that is ready to be used as it is.
type memory struct {
	once sync.Once
	*memstore.Store
}

func (m *memory) get() *memstore.Store {
	m.once.Do(func() { m.Store = memstore.New() })
	return m.Store
}

func (s *store) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *tx) error) (bool, error) {
	if s.onRecord != nil && key.Validate() == nil {
		if err := s.onRecord(); err != nil {
			return false, err
		}
	}
	return s.memory.get().Once(ctx, key, func(ctx context.Context, mem *memstore.Tx) error {
		t := &tx{}
		if err := fn(ctx, t); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if s.onCommit != nil && ctx.Err() == nil {
			if err := s.onCommit(); err != nil {
				return err
			}
		}
		mem.OnCommit(func() {
			if s.committing != nil {
				s.committing()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.charges = append(s.charges, t.writes...)
		})
		return nil
	})
}

// checkingStore is a store that is a dedupstore.Checker, too.
type checkingStore struct{ *store }

func (s checkingStore) Check(ctx context.Context) error { return s.check(ctx) }

// message returns a message as the runner hands it to a chain.
func message() *consumer.Message {
	return &consumer.Message{
		Topic: "orders", Partition: 3, Offset: 42, Key: []byte("s3cret-key"), Value: []byte("s3cret-value"),
		Group: "billing", Consumer: "billing/orders", EventID: "e1", Attempt: 1,
	}
}

// compose builds the chain as the runner does: the first middleware is the outermost.
func compose(h consumer.Handler, mws ...consumer.Middleware) consumer.Handler {
	for _, mw := range slices.Backward(mws) {
		h = mw(h)
	}
	return h
}

// returning is a handler that returns err.
func returning(err error) consumer.Handler {
	return consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return err })
}

// check asks a link what New and the start of Run ask it.
func check(t *testing.T, h consumer.Handler) error {
	t.Helper()
	v, validates := h.(consumer.Validator)
	c, checks := h.(consumer.Checker)
	if !validates && !checks {
		t.Fatalf("%T is neither a consumer.Validator nor a consumer.Checker", h)
	}
	if validates {
		if err := v.Validate(nil); err != nil {
			return err
		}
	}
	if checks {
		return c.Check(t.Context())
	}
	return nil
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for want, h := range map[consumer.Link]consumer.Handler{
		consumer.LinkDedup: middleware.Dedup(&store{},
			func(context.Context, *tx, *consumer.Message) error { return nil }, nil),
		consumer.LinkDeadLetter: middleware.DeadLetter(&store{}, &cemetery{}, nil)(returning(nil)),
		consumer.LinkHandOn: middleware.HandOn(&store{}, "1m",
			func(context.Context, *tx, *consumer.Message) error { return nil }, nil)(returning(nil)),
		consumer.LinkRetry:   middleware.Retry(1, nil)(returning(nil)),
		consumer.LinkRecover: middleware.Recover()(returning(nil)),
		consumer.LinkTimeout: middleware.Timeout(1)(returning(nil)),
		consumer.LinkLogging: middleware.Logging(nil, nil)(returning(nil)),
		consumer.LinkTracing: middleware.Tracing(nil)(returning(nil)),
		consumer.LinkMetrics: middleware.Metrics(nil)(returning(nil)),
	} {
		if l, ok := h.(consumer.Linker); !ok || l.Link() != want {
			t.Errorf("%T says it is not %v", h, want)
		}
	}
}
