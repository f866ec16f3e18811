package console

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// fresh is how old an answer may be that another page uses again: so long no source is asked twice.
const fresh = time.Second

// source is something that is asked, one question at a time, whoever looks. It is safe for concurrent use.
type source[T any] struct {
	ask     func(ctx context.Context) (T, error)
	timeout time.Duration

	mu      sync.Mutex
	running chan struct{} // closed when the question that is open has its answer; nil if none is
	begun   time.Time     // when that question was asked
	last    answer[T]
}

// answer is what a source has told, or why it has not.
type answer[T any] struct {
	Value T
	Err   error     // why there is no Value
	At    time.Time // when it was asked
	Since time.Time // with Err: since when there has been none, as far as this console has seen
	Well  time.Time // with Err: when there last was one; zero if there never was
}

func newSource[T any](timeout time.Duration, ask func(ctx context.Context) (T, error)) *source[T] {
	return &source[T]{ask: ask, timeout: timeout}
}

// look returns an answer of the last second. It waits for one as long as ctx and the source's time-out allow.
func (s *source[T]) look(ctx context.Context) answer[T] {
	done := s.question()
	if done != nil {
		wait, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		select {
		case <-done:
		case <-wait.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil && s.running == done { // it may have a value of before, which is old
		return s.failed(fmt.Errorf("no answer within %v", s.timeout), s.begun)
	}
	return s.last
}

// question asks, unless there is an answer that is fresh or a question that is open, for which the caller may wait.
func (s *source[T]) question() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil && time.Since(s.last.At) >= fresh {
		s.running, s.begun = make(chan struct{}), time.Now()
		go s.run(s.running, s.begun)
	}
	return s.running
}

func (s *source[T]) run(done chan struct{}, begun time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	value, err := s.contained(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.last = s.failed(err, begun)
	} else {
		s.last = answer[T]{Value: value, At: begun}
	}
	s.running = nil
	close(done)
}

// contained makes an error of a panic: it would end the service.
func (s *source[T]) contained(ctx context.Context) (value T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panicked: a %T", v) // its text may be anything
		}
	}()
	return s.ask(ctx)
}

// failed is called under the lock.
func (s *source[T]) failed(err error, at time.Time) answer[T] {
	a := answer[T]{Err: err, At: at, Since: s.last.Since, Well: s.last.Well}
	if s.last.Err == nil {
		a.Since, a.Well = at, s.last.At
	}
	return a
}
