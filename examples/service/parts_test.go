package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

// journal notes what happens, in its order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// part runs until it is stopped, and works for a while then.
func (j *journal) part(name string) part {
	return part{name, func(ctx context.Context) error {
		<-ctx.Done()
		j.note(name + " stops")
		defer j.note(name + " has stopped")
		return nil
	}}
}

func TestPartsStopInTheirOrder(t *testing.T) {
	t.Parallel()
	var j journal
	ctx, terminate := context.WithCancel(t.Context())
	terminate()
	if err := runParts(ctx, testLog(t), j.part("http"), j.part("consumer"), j.part("relay")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"http stops", "http has stopped", "consumer stops", "consumer has stopped", "relay stops", "relay has stopped",
	}
	if !slices.Equal(j.lines, want) {
		t.Errorf("%q, want %q", j.lines, want)
	}
}

// A part that ends stops the others, in their order, and is named.
func TestPartThatEnds(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"broken: no topic": errors.New("no topic"), "broken: it has ended by itself": nil,
	} {
		var j journal
		broken := part{"broken", func(context.Context) error { return err }}
		got := runParts(t.Context(), testLog(t), j.part("http"), broken, j.part("relay"))
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want %q", got, want)
		}
		if want := []string{"http stops", "http has stopped", "relay stops", "relay has stopped"}; !slices.Equal(j.lines,
			want) {
			t.Errorf("%q, want %q", j.lines, want)
		}
	}
}
