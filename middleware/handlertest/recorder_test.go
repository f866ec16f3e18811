package handlertest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// recorder is a testing.TB that keeps what a test says instead of failing.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (r *recorder) Helper()      {}
func (r *recorder) Failed() bool { return r.text() != "" }

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.said)[1 : len(fmt.Sprint(r.said))-1]
}

func (r *recorder) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, text)
}

func (r *recorder) Error(args ...any)                 { r.say(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.say(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.say(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *recorder) FailNow() { runtime.Goexit() }

// findings runs the suite and returns what it says, by case; "" is what it says before the first case.
func findings[Tx any](t *testing.T, open func(t testing.TB) Harness[Tx]) map[string]string {
	t.Helper()
	said := map[string]string{}
	record := func(name string, f func(t testing.TB)) {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			f(r)
		}()
		<-done
		if text := r.text(); text != "" {
			said[name] = text
		}
	}
	record("", func(t testing.TB) { run(t, open, record) })
	return said
}
