package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// side is one way to do the same work. run does it once, and returns messages per second.
type side struct {
	name string
	run  func(ctx context.Context) (float64, error)
}

// result is what the rounds of a side came to.
type result struct {
	name  string
	rates []float64
}

// median of an odd number of rounds is one of them.
func (r result) median() float64 {
	sorted := slices.Sorted(slices.Values(r.rates))
	return sorted[len(sorted)/2]
}

// interleave runs all sides in each round, so that what else happens on the machine meets all of them, and begins each
// round with another side, so that none is always the first.
func interleave(ctx context.Context, rounds int, sides []side) ([]result, error) {
	results := make([]result, len(sides))
	for round := range rounds {
		for i := range sides {
			i = (i + round) % len(sides)
			runtime.GC()
			rate, err := sides[i].run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", sides[i].name, round+1, err)
			}
			results[i].name = sides[i].name
			results[i].rates = append(results[i].rates, rate)
		}
	}
	return results, nil
}

// report prints a line per side. The ratio is that of the medians to the first side's.
func report(w io.Writer, what string, results []result) {
	fmt.Fprintf(w, "\n%-22s", what)
	for i := range results[0].rates {
		fmt.Fprintf(w, "%11s", fmt.Sprint("round ", i+1))
	}
	fmt.Fprintf(w, "%11s%8s\n", "median", "ratio")
	for _, r := range results {
		fmt.Fprintf(w, "  %-20s", r.name)
		for _, rate := range r.rates {
			fmt.Fprintf(w, "%11.0f", rate)
		}
		fmt.Fprintf(w, "%11.0f%8.2f\n", r.median(), r.median()/results[0].median())
	}
}

// machine describes what else the figures depend on.
func machine() string {
	load := "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return fmt.Sprintf("%s, %d CPUs, load %s at %s", runtime.Version(), runtime.NumCPU(), load,
		time.Now().UTC().Format(time.RFC3339))
}
