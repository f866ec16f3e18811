package middleware_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/middleware"
)

// Whatever fails and however often: each effect is there once, in the order of the steps, and each step's attempts are
// counted as if there were no other.
func TestSequenceProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		e := newEffects()
		n := rapid.IntRange(1, 5).Draw(rt, "steps")
		var steps []middleware.Step
		var names, want []string
		for i := range n {
			name := fmt.Sprint("s", i)
			fails := rapid.IntRange(0, 3).Draw(rt, name)
			steps = append(steps, e.step(name, until(fails, errBase), middleware.Retry(4, nil)))
			names = append(names, name)
			for a := range fails + 1 {
				want = append(want, fmt.Sprintf("%s %d", name, a+1))
			}
		}
		out := consumertest.Run(t, sequenceTopic(steps...), event())
		if out.Err != nil || !slices.Equal(e.committed, names) || !slices.Equal(e.calls(), want) {
			rt.Fatalf("%v\neffects %v, calls %v, want %v", out, e.committed, e.calls(), want)
		}
	})
}
