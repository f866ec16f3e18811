package consumer

import (
	"fmt"
	"strings"
	"testing"
)

// Names of headers are copied once, whatever else comes with them, and only so many are remembered.
func TestNames(t *testing.T) { //nolint:paralleltest // testing.AllocsPerRun does not allow it
	var n names
	name := []byte("event-id")
	if got := n.name(name); got != "event-id" {
		t.Fatalf("%q", got)
	}
	name[0] = 'X'
	if got := n.name([]byte("event-id")); got != "event-id" {
		t.Errorf("%q: it shares the memory of the first", got)
	}
	if allocated := testing.AllocsPerRun(100, func() { _ = n.name([]byte("event-id")) }); allocated > 0 {
		t.Errorf("%v allocations for a name that is known", allocated)
	}
	for i := range 1000 {
		for _, want := range []string{fmt.Sprint("name-", i), strings.Repeat("x", maxName+i)} {
			if got := n.name([]byte(want)); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	if known := *n.known.Load(); len(known) > maxNames {
		t.Errorf("%d names are remembered", len(known))
	}
}
