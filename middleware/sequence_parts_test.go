package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/middleware"
)

func TestSequenceSumsUpResults(t *testing.T) {
	t.Parallel()
	at := func(sec int64) time.Time { return time.Unix(sec, 0) }
	fresh := func(sec int64) consumer.Result {
		return consumer.Result{Begin: at(sec), HandlerStart: at(sec + 1), HandlerEnd: at(sec + 2), End: at(sec + 3)}
	}
	dup := func(sec int64) consumer.Result {
		return consumer.Result{Duplicate: true, Begin: at(sec), End: at(sec + 3)}
	}
	for name, test := range map[string]struct {
		steps []consumer.Result
		fails int // which step does
		want  consumer.Result
	}{
		"fresh": {[]consumer.Result{fresh(0), fresh(10)}, -1,
			consumer.Result{Begin: at(0), HandlerStart: at(1), HandlerEnd: at(12), End: at(13)}},
		"duplicates": {[]consumer.Result{dup(0), dup(10)}, -1, consumer.Result{Duplicate: true, Begin: at(0),
			End: at(13)}},
		"one duplicate": {[]consumer.Result{dup(0), fresh(10), dup(20)}, -1,
			consumer.Result{Begin: at(0), HandlerStart: at(11), HandlerEnd: at(12), End: at(23)}},
		"duplicate, then fail": {[]consumer.Result{dup(0), dup(10)}, 1, consumer.Result{Begin: at(0), End: at(13)}},
		"dead": {[]consumer.Result{{Dead: true}, fresh(10)}, -1,
			consumer.Result{Dead: true, Begin: at(10), HandlerStart: at(11), HandlerEnd: at(12), End: at(13)}},
		"no dedup": {[]consumer.Result{fresh(0), {}}, -1, fresh(0)},
		"fails at once": {[]consumer.Result{{Begin: at(0), End: at(3)}, fresh(10)}, 0,
			consumer.Result{Begin: at(0), End: at(3)}},
	} {
		var steps []middleware.Step
		for i, res := range test.steps {
			steps = append(steps, middleware.Step{Name: fmt.Sprint("step", i),
				Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
					msg.Result = res
					if i == test.fails {
						return errBase
					}
					return nil
				})})
		}
		msg := message()
		if err := middleware.Sequence(steps...).Handle(t.Context(), msg); (err != nil) != (test.fails >= 0) {
			t.Errorf("%s: %v", name, err)
		}
		if msg.Result != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, msg.Result, test.want)
		}
	}
}

func TestSequenceIsRefused(t *testing.T) {
	t.Parallel()
	ok := returning(nil)
	step := func(name string, mws ...consumer.Middleware) middleware.Step {
		return middleware.Step{Name: name, Handler: ok, Middleware: mws}
	}
	for _, test := range []struct {
		name    string
		steps   []middleware.Step
		outside []consumer.Middleware
		want    []string
	}{
		{"good", []middleware.Step{step("a", dead, middleware.Retry(2, nil)),
			step("b", middleware.Retry(2, nil), middleware.Recover())},
			[]consumer.Middleware{middleware.Tracing(nil), middleware.Logging(nil, nil)}, nil},
		{"no steps", nil, nil, []string{"there are no steps"}},
		{"all at once", []middleware.Step{step(""), step("a/b"), {Name: "c"}, {Name: "d", Handler: consumer.HandlerFunc(nil)},
			step("e", nil), step("f"), step("f")}, nil,
			[]string{"step 0 has no name", `step 1, "a/b", holds a slash`, `step 2, "c", has no handler`,
				`step 3, "d", has no handler`,
				`step 4, "e": middleware 0 (the outermost is 0) is nil`, `step 6, "f", has the name of an earlier one`}},
		{"odd name", []middleware.Step{step("a\x00")}, nil, []string{"the name of step 0", "NUL"}},
		{"Retry outside", []middleware.Step{step("a")}, []consumer.Middleware{middleware.Retry(3, nil)},
			[]string{"inside Retry", "Step.Middleware of each step"}},
		{"DeadLetter outside", []middleware.Step{step("a", middleware.Retry(3, nil))}, []consumer.Middleware{dead},
			[]string{"inside DeadLetter", "Step.Middleware of each step"}},
		{"order in a step", []middleware.Step{step("a", middleware.Recover(), middleware.Retry(3, nil))}, nil,
			[]string{"Retry stands inside Recover"}},
		{"twice in a step", []middleware.Step{step("a", middleware.Retry(3, nil), middleware.Retry(3, nil))}, nil,
			[]string{"two Retry links"}},
	} {
		_, err := consumer.New(consumer.Config{
			Brokers: []string{"127.0.0.1:9"}, Group: "billing",
			Topics: map[string]consumer.Topic{"orders": {Middleware: test.outside, Handler: middleware.Sequence(test.steps...)}},
		})
		if (err != nil) != (test.want != nil) {
			t.Errorf("%s: New says %v", test.name, err)
		}
		for _, part := range test.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is missing in %v", test.name, part, err)
			}
		}
	}
	if err := middleware.Sequence().Handle(t.Context(), message()); err == nil || consumer.IsPermanent(err) {
		t.Errorf("without New: %v", err)
	}
}

// New and Run ask the links of all steps.
func TestSequenceStepsAreChecked(t *testing.T) {
	t.Parallel()
	cfg := func(store dedupstore.Store[*tx], attempts int) consumer.Config {
		return consumer.Config{
			Brokers: []string{"127.0.0.1:9"}, Group: "billing",
			Topics: map[string]consumer.Topic{"orders": sequenceTopic(
				middleware.Step{Name: "a", Handler: middleware.Dedup(store, noop, nil)},
				middleware.Step{Name: "b", Handler: returning(nil),
					Middleware: []consumer.Middleware{middleware.Retry(attempts, nil)}},
			)},
		}
	}
	_, err := consumer.New(cfg(nil, 0))
	if err == nil || !strings.Contains(err.Error(), "the store is nil") ||
		!strings.Contains(err.Error(), "attempts is 0") {
		t.Errorf("New says %v", err)
	}
	missing := errors.New("no table")
	c, err := consumer.New(cfg(checkingStore{&store{check: func(context.Context) error { return missing }}}, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context()); !errors.Is(err, missing) {
		t.Errorf("Check says %v", err)
	}
}
