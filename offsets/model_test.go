package offsets

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/internal/fuzztest"
)

// model is the obvious tracker: it remembers everything and computes everything anew.
type model struct {
	delivered []int64
	done      map[int64]bool
}

func (m *model) deliver(offset int64) error {
	switch {
	case offset < 0 || offset == math.MaxInt64:
		return ErrInvalidOffset
	case len(m.delivered) > 0 && offset <= m.delivered[len(m.delivered)-1]:
		return ErrNotAscending
	}
	m.delivered = append(m.delivered, offset)
	return nil
}

func (m *model) finish(offset int64) error {
	if m.done[offset] || !slices.Contains(m.delivered, offset) {
		return ErrUnknownOffset
	}
	m.done[offset] = true
	return nil
}

func (m *model) open() []int64 {
	var open []int64
	for _, offset := range m.delivered {
		if !m.done[offset] {
			open = append(open, offset)
		}
	}
	return open
}

// ahead counts from the oldest open message on.
func (m *model) ahead() int {
	for i, offset := range m.delivered {
		if !m.done[offset] {
			return len(m.delivered) - i
		}
	}
	return 0
}

func (m *model) committable() (offset int64, ok bool) {
	for _, d := range m.delivered {
		if !m.done[d] {
			break
		}
		offset, ok = d+1, true
	}
	return offset, ok
}

// pair runs a Tracker and the model side by side.
type pair struct {
	tracker Tracker
	model   model
}

func newPair() *pair { return &pair{model: model{done: map[int64]bool{}}} }

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (p *pair) deliver(t failer, offset int64) {
	t.Helper()
	same(t, "Deliver", offset, p.tracker.Deliver(offset), p.model.deliver(offset))
}

func (p *pair) finish(t failer, offset int64) {
	t.Helper()
	same(t, "Done", offset, p.tracker.Done(offset), p.model.finish(offset))
}

func same(t failer, what string, offset int64, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || (want == nil) != (got == nil) {
		t.Fatalf("%s(%d) = %v, want %v", what, offset, got, want)
	}
}

func (p *pair) compare(t failer) {
	t.Helper()
	offset, ok := p.tracker.Committable()
	if wantOffset, wantOK := p.model.committable(); offset != wantOffset || ok != wantOK {
		t.Fatalf("Committable() = %d, %v, want %d, %v", offset, ok, wantOffset, wantOK)
	}
	open := p.model.open()
	if p.tracker.InFlight() != len(open) {
		t.Fatalf("InFlight() = %d, want %d", p.tracker.InFlight(), len(open))
	}
	if want := p.model.ahead(); p.tracker.Ahead() != want {
		t.Fatalf("Ahead() = %d, want %d", p.tracker.Ahead(), want)
	}
	if w := p.tracker.window.len; w > 2*len(open)+minRing {
		t.Fatalf("%d messages are remembered, of which %d are open", w, len(open))
	}
	oldest, ok := p.tracker.Oldest()
	if ok != (len(open) > 0) || ok && oldest != open[0] {
		t.Fatalf("Oldest() = %d, %v, want the first of %v", oldest, ok, open)
	}
}

func TestTrackerAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPair()
		last := rapid.Int64Range(-1, 1<<40).Draw(t, "start")
		gap := rapid.SampledFrom([]int64{1, 1, 1, 2, 50})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { p.compare(t) },
			"deliver some": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					last += gap.Draw(t, "gap")
					p.deliver(t, last)
				}
			},
			"deliver any": func(t *rapid.T) { p.deliver(t, last-rapid.Int64Range(0, 100).Draw(t, "back")) },
			"deliver absurd": func(t *rapid.T) {
				p.deliver(t, rapid.SampledFrom([]int64{-1, math.MinInt64, math.MaxInt64}).Draw(t, "offset"))
			},
			"finish one": func(t *rapid.T) {
				if open := p.model.open(); len(open) > 0 {
					p.finish(t, rapid.SampledFrom(open).Draw(t, "offset"))
				}
			},
			"finish the rest": func(t *rapid.T) {
				for _, offset := range rapid.Permutation(p.model.open()).Draw(t, "order") {
					p.finish(t, offset)
				}
			},
			"finish any": func(t *rapid.T) { p.finish(t, last-rapid.Int64Range(-3, 100).Draw(t, "back")) },
		})
	})
}

// FuzzTracker reads its input as calls of three bytes: what, and by how far from the newest offset.
func FuzzTracker(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1})
	f.Add([]byte{0, 0, 5, 0, 0, 5, 1, 0, 5, 1, 0, 0, 2, 0, 0})
	f.Fuzz(func(t *testing.T, calls []byte) {
		p, newest, all, size := newPair(), int64(0), calls, len(calls)
		for ; len(calls) >= 3; calls = calls[3:] {
			by := int64(binary.BigEndian.Uint16(calls[1:]))
			switch calls[0] % 3 {
			case 0:
				newest += by
				p.deliver(t, newest)
			case 1:
				p.finish(t, newest-by)
			case 2:
				p.deliver(t, newest-by)
			}
			p.compare(t)
		}
		fuzztest.Bounded(t, size, 1<<20, func() { replay(all) })
	})
}

// replay makes the same calls on a tracker alone, without the model, which takes more time and memory than it.
func replay(calls []byte) {
	var tracker Tracker
	for newest := int64(0); len(calls) >= 3; calls = calls[3:] {
		by := int64(binary.BigEndian.Uint16(calls[1:]))
		switch calls[0] % 3 {
		case 0:
			newest += by
			_ = tracker.Deliver(newest) // what it says was compared
		case 1:
			_ = tracker.Done(newest - by)
		case 2:
			_ = tracker.Deliver(newest - by)
		}
		tracker.Committable()
	}
}
