package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

var errStock = errors.New("no stock")

// recorder is a testing.TB that keeps what a test says instead of failing.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	said   []string
	failed bool
	ended  bool
}

// record runs f as a test of its own and returns what became of it.
func record(t *testing.T, f func(t testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended = true
		f(r)
		r.ended = false
	}()
	<-done
	return r
}

func (r *recorder) Helper() {}

func (r *recorder) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said, r.failed = append(r.said, text), true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Error(args ...any)                 { r.say(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.say(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.say(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *recorder) FailNow() { r.say("FailNow"); runtime.Goexit() }

// script is a handler whose attempts return these errors, the last one again and again. It keeps the messages that it
// saw.
type script struct {
	errs []error
	mu   sync.Mutex
	seen []consumer.Message // as they were when they came
	msgs []*consumer.Message
}

func (s *script) Handle(_ context.Context, msg *consumer.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.msgs = append(s.seen, *msg), append(s.msgs, msg)
	return s.errs[min(len(s.seen), len(s.errs))-1]
}
