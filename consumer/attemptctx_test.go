package consumer

import (
	"context"
	"errors"
	"testing"
	"time"
)

type valueKey struct{}

func TestAttemptContext(t *testing.T) {
	t.Parallel()
	parent, cancelParent := context.WithCancelCause(context.WithValue(context.Background(), valueKey{}, "value"))
	defer cancelParent(nil)
	msg := &Message{Offset: 7}
	fresh := func() *attemptContext { return &attemptContext{parent: parent, msg: msg} }

	c := fresh()
	if got, ok := MessageFrom(c); !ok || got != msg {
		t.Error("the message is missing")
	}
	if c.own.Load() != nil || c.Err() != nil {
		t.Error("asking for the message or the error makes something that must be freed")
	}
	derived, cancel := context.WithTimeout(context.WithValue(c, valueKey{}, "other"), time.Hour)
	defer cancel()
	if c.Value(valueKey{}) != "value" || derived.Value(valueKey{}) != "other" {
		t.Error("values are lost")
	}
	if got, ok := MessageFrom(derived); !ok || got != msg {
		t.Error("the message is missing in a derived context")
	}
	cause := errors.New("cause")
	c.cancel(cause)
	<-c.Done()
	<-derived.Done()
	if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), cause) ||
		!errors.Is(context.Cause(derived), cause) {
		t.Errorf("cancelled: %v, cause %v, derived %v", c.Err(), context.Cause(c), context.Cause(derived))
	}
	if parent.Err() != nil {
		t.Error("the parent was cancelled")
	}

	for _, looked := range []bool{true, false} {
		c := fresh()
		if looked {
			_ = c.Done()
		}
		c.end()
		<-c.Done()
		if c.Err() == nil {
			t.Error("not done after its end")
		}
	}

	c, d := fresh(), fresh()
	done := c.Done()
	cancelParent(cause)
	<-done
	if !errors.Is(context.Cause(c), cause) || d.Err() == nil || !errors.Is(context.Cause(d), cause) {
		t.Errorf("the parent's end: %v, %v", context.Cause(c), context.Cause(d))
	}
}

func TestAttemptContextAllocates(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	parent := context.Background()
	msg := &Message{}
	c := &attemptContext{parent: parent, msg: msg} // a part of its item
	got := testing.AllocsPerRun(100, func() {
		c.own.Store(nil)
		if c.Err() != nil {
			t.Error("done")
		}
		c.end()
	})
	if got != 0 {
		t.Errorf("%v allocations where nobody asks for Done", got)
	}
}
