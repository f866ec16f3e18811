package console

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A table is asked one question at a time; who waits too long is told so.
func TestOneQuestionAtATime(t *testing.T) {
	t.Parallel()
	q := newOneQuestion()
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- q.ask(t.Context(), time.Minute, "the table", func(context.Context) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	err := q.ask(t.Context(), time.Millisecond, "the table", func(context.Context) error {
		t.Error("two questions at once")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "the table is being looked through by others") {
		t.Errorf("ask() = %v", err)
	}
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	asked := false
	if err := q.ask(t.Context(), time.Minute, "the table",
		func(context.Context) error { asked = true; return nil }); err != nil || !asked {
		t.Errorf("ask() = %v, after the first one's end", err)
	}
}

// A table need not be named where there is one. Of several none is guessed.
func TestNamed(t *testing.T) {
	t.Parallel()
	self := func(s string) string { return s }
	for _, test := range []struct {
		list []string
		name string
		want string // "" for none
	}{
		{[]string{"a"}, "", "a"}, {[]string{"a", "b"}, "b", "b"}, {[]string{"a", "b"}, "", ""}, {[]string{"a"}, "b", ""},
		{nil, "", ""},
	} {
		if got, ok := named(test.list, test.name, self); got != test.want || ok != (test.want != "") {
			t.Errorf("named(%q, %q) = %q, %v", test.list, test.name, got, ok)
		}
	}
}
