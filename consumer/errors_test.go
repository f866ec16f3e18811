package consumer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

var errBase = errors.New("base")

func TestControlErrorsKeepTextAndCause(t *testing.T) {
	t.Parallel()
	for _, err := range []error{consumer.Permanent(errBase), consumer.RetryAfter(time.Second, errBase)} {
		if err.Error() != "base" || !errors.Is(err, errBase) {
			t.Errorf("%#v: says %q, wraps its cause %v", err, err, errors.Is(err, errBase))
		}
	}
	gaveUp := &consumer.GaveUp{Attempts: 5, Err: errBase}
	if gaveUp.Error() != "gave up after 5 attempts: base" || !errors.Is(gaveUp, errBase) {
		t.Errorf("GaveUp says %q, wraps its cause %v", gaveUp, errors.Is(gaveUp, errBase))
	}
}

func TestControlErrorsOfNilAreNil(t *testing.T) {
	t.Parallel()
	if err := consumer.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil) = %v", err)
	}
	if err := consumer.RetryAfter(time.Second, nil); err != nil {
		t.Errorf("RetryAfter(1s, nil) = %v", err)
	}
}

// The outermost control error decides, wherever it stands in the tree.
func TestOutermostControlErrorDecides(t *testing.T) {
	t.Parallel()
	permanent := consumer.Permanent(errBase)
	retry := consumer.RetryAfter(time.Second, errBase)
	gaveUp := error(&consumer.GaveUp{Attempts: 1, Err: errBase})
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"plain", errBase, ""},
		{"permanent", permanent, "permanent"},
		{"retry", retry, "retry 1s"},
		{"gave up", gaveUp, "gave up"},
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", permanent)), "permanent"},
		{"permanent around retry", consumer.Permanent(fmt.Errorf("a: %w", retry)), "permanent"},
		{"retry around permanent", consumer.RetryAfter(0, permanent), "retry 0s"},
		{"gave up around retry", &consumer.GaveUp{Err: retry}, "gave up"},
		{"permanent around gave up", consumer.Permanent(gaveUp), "permanent"},
		{"joined, first", errors.Join(permanent, retry), "permanent"},
		{"joined, second", errors.Join(errBase, retry, permanent), "retry 1s"},
		{"joined, none", errors.Join(errBase, errBase), ""},
		{"two %w", fmt.Errorf("%w: %w", errBase, gaveUp), "gave up"},
		{"joined below", fmt.Errorf("a: %w", errors.Join(errBase, fmt.Errorf("b: %w", permanent))), "permanent"},
		{"in a panic", &consumer.Panic{Value: permanent}, "permanent"},
	} {
		got := ""
		if consumer.IsPermanent(test.err) {
			got += "permanent"
		}
		if d, ok := consumer.Delay(test.err); ok {
			got += fmt.Sprint("retry ", d)
		}
		if consumer.IsGaveUp(test.err) {
			got += "gave up"
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestPanicError(t *testing.T) {
	t.Parallel()
	type payload struct{ Card string }
	for _, test := range []struct {
		value any
		want  string
	}{
		{nil, "the handler ended its goroutine (runtime.Goexit)"},
		{errBase, "panic: base"},
		{"index out of range", "panic: index out of range"},
		{payload{"4711"}, "panic: a consumer_test.payload"},
		{[]byte("4711"), "panic: a []uint8"},
	} {
		err := &consumer.Panic{Value: test.value, Stack: []byte("the stack")}
		if err.Error() != test.want {
			t.Errorf("%v: says %q, want %q", test.value, err, test.want)
		}
		if strings.Contains(err.Error(), "stack") {
			t.Errorf("%v: the stack is in the text", test.value)
		}
	}
	if !errors.Is(&consumer.Panic{Value: errBase}, errBase) {
		t.Error("an error that was passed to panic is not found in the Panic")
	}
}
