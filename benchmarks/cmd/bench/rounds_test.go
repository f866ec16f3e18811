package main

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func TestSidesTakeTurns(t *testing.T) {
	t.Parallel()
	var order []string
	rate := 0.0
	newSide := func(name string) side {
		return side{name, func(context.Context) (float64, error) {
			order = append(order, name)
			rate++
			return rate, nil
		}}
	}
	results, err := interleave(context.Background(), 3, []side{newSide("a"), newSide("b")})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "b", "a", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	if a, b := results[0], results[1]; a.name != "a" || !slices.Equal(a.rates, []float64{1, 4, 5}) || a.median() != 4 ||
		b.name != "b" || !slices.Equal(b.rates, []float64{2, 3, 6}) || b.median() != 3 {
		t.Errorf("results %+v", results)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	const want = `
4 partitions, msg/s       round 1    round 2    round 3     median   ratio
  plain loop                 4000       3000       5000       4000    1.00
  einmal                     5000       6000       4000       5000    1.25
`
	var b strings.Builder
	report(&b, "4 partitions, msg/s", []result{{"plain loop", []float64{4000, 3000, 5000}},
		{"einmal", []float64{5000, 6000, 4000}}})
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
