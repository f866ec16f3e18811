package gather

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/internal/turn"
)

// laneScript is a message of a lane.
type laneScript struct {
	lane     int
	attempts int           // the one that succeeds; 0 gives up at the third, which is as good as done
	late     time.Duration // before each call: messages of a lane come in any order
	silent   bool          // its chain never calls Once
	cut      time.Duration // its first attempt is cancelled after that, 0 for never
}

// Messages that are in work side by side take effect in the order of their lane, whatever fails, and none waits for
// ever.
func TestLanesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		scripts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) laneScript {
			s := laneScript{
				lane: rapid.IntRange(0, 3).Draw(t, "lane"), attempts: 1,
				late: time.Duration(rapid.IntRange(0, 3000).Draw(t, "late")) * time.Microsecond,
			}
			switch rapid.IntRange(0, 9).Draw(t, "ill") {
			case 0:
				s.attempts = rapid.IntRange(0, 4).Draw(t, "attempts")
			case 1:
				s.silent = true
			case 2:
				s.cut = time.Duration(rapid.IntRange(1, 3000).Draw(t, "cut")) * time.Microsecond
			}
			return s
		}), 1, 100).Draw(rt, "messages")
		faults := rapid.SliceOfN(rapid.SampledFrom([]error{nil, nil, nil, nil, errDeadlock, errAway, errUnknown, errDefinite,
			errQueued}), 20, 20).Draw(rt, "faults")
		cfg := Config{Size: rapid.IntRange(2, 30).Draw(rt, "size"), Side: rapid.IntRange(1, 4).Draw(rt, "side"),
			AtOnce: rapid.Bool().Draw(rt, "at once")}
		synctest.Test(t, func(t *testing.T) { playLanes(t, cfg, scripts, faults) })
	})
}

func playLanes(t *testing.T, cfg Config, scripts []laneScript, faults []error) {
	t.Helper()
	m := newModel(t)
	m.atOnce = cfg.AtOnce
	var mu sync.Mutex
	m.fail = failures(&mu, faults)
	g := New(m, cfg)
	lanes := make([]turn.Lane, 4)
	var messages sync.WaitGroup
	for i, s := range scripts {
		place := lanes[s.lane].Join()
		messages.Go(func() { s.handle(t, g, place, i) })
	}
	messages.Wait()
	synctest.Wait()
	m.inOrder(scripts)
	if g.active != 0 || g.queue.len() != 0 {
		t.Errorf("%d transactions are under way and %d calls wait at the end", g.active, g.queue.len())
	}
}

// handle is what the runner does with a message: attempts until one succeeds or the message is given up, and then the
// settling.
func (s laneScript) handle(t *testing.T, g *Gatherer[*modelTx], place *turn.Turn, i int) {
	defer place.Settle()
	if s.silent {
		time.Sleep(s.late)
		return
	}
	ran := 0
	for attempt := 1; ; attempt++ {
		time.Sleep(s.late)
		ctx, cancel := turn.With(t.Context(), place), context.CancelFunc(func() {})
		if s.cut > 0 && attempt == 1 {
			ctx, cancel = context.WithTimeout(ctx, s.cut)
		}
		_, err := g.Once(ctx, name(i), func(_ context.Context, tx *modelTx) error {
			if ran++; ran < s.attempts || s.attempts == 0 {
				return errFunction
			}
			tx.write(name(i))
			return nil
		})
		cancel()
		if err == nil || s.attempts == 0 && attempt >= 3 {
			return
		}
		if attempt > 200 {
			t.Errorf("message %d: %v", i, err)
			return
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
	}
}

// inOrder checks the order of the commits.
func (m *model) inOrder(scripts []laneScript) {
	m.t.Helper()
	last := map[int]int{}
	done := map[int]bool{}
	for _, k := range m.order {
		var i int
		if _, err := fmt.Sscan(k.Event, &i); err != nil {
			m.t.Fatal(err)
		}
		lane := scripts[i].lane
		if before, ok := last[lane]; ok && before > i {
			m.t.Errorf("lane %d: message %d took effect behind %d", lane, i, before)
		}
		last[lane] = i
		done[i] = true
	}
	for i, s := range scripts {
		if !s.silent && s.attempts > 0 && !done[i] {
			m.t.Errorf("message %d has not taken effect", i)
		}
	}
}

// A train of one lane is one transaction, however its calls arrive.
func TestTrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 2})
		var lane turn.Lane
		places := make([]*turn.Turn, 60)
		for i := range places {
			places[i] = lane.Join()
		}
		var calls sync.WaitGroup
		call := func(i int) {
			calls.Go(func() {
				ran, err := g.Once(turn.With(t.Context(), places[i]), name(i), func(_ context.Context, tx *modelTx) error {
					tx.write(name(i))
					return nil
				})
				if !ran || err != nil {
					t.Errorf("Once() = %v, %v", ran, err)
				}
			})
		}
		for i := len(places) - 1; i > 0; i-- {
			call(i)
		}
		synctest.Wait()
		if len(m.sizes) != 0 {
			t.Errorf("a group of %v calls began before the first message", m.sizes)
		}
		call(0)
		calls.Wait()
		if len(m.sizes) != 1 || m.sizes[0] != 60 {
			t.Errorf("transactions of %v calls, want one of 60", m.sizes)
		}
	})
}

// A lane is in the next group although more than fit into it have come after it that stand in no order.
func TestLaneIsNotOvertakenForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 10, Side: 1})
		var lane turn.Lane
		var calls sync.WaitGroup
		call := func(ctx context.Context, i int, fn func()) {
			calls.Go(func() {
				if _, err := g.Once(ctx, name(i), func(_ context.Context, tx *modelTx) error {
					fn()
					tx.write(name(i))
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		release := make(chan struct{})
		call(t.Context(), 0, func() { <-release })
		call(turn.With(t.Context(), lane.Join()), 1, func() {})
		for i := 2; i < 40; i++ {
			call(t.Context(), i, func() {})
		}
		close(release)
		calls.Wait()
		if at := slices.Index(m.order, name(1)); at > 10 {
			t.Errorf("the message of the lane took effect behind %d others", at)
		}
	})
}

// A message may call the store once more when its turn is over.
func TestCallAfterTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 10, Side: 1})
		var lane turn.Lane
		first, second := lane.Join(), lane.Join()
		write := func(ctx context.Context, i int, fn func()) {
			if _, err := g.Once(ctx, name(i), func(_ context.Context, tx *modelTx) error {
				fn()
				tx.write(name(i))
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(turn.With(t.Context(), first), time.Hour)
		defer cancel()
		write(ctx, 0, func() {})
		holds := make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() { write(t.Context(), 1, func() { <-holds }) })
		synctest.Wait()
		calls.Go(func() { write(ctx, 2, func() {}) })
		calls.Go(func() { write(turn.With(t.Context(), second), 3, func() {}) })
		synctest.Wait()
		close(holds)
		calls.Wait()
	})
}

// Of two messages of a lane that fail in one group the second one has not failed: it stands behind the first.
func TestOnlyTheFirstOfALaneFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		m.atOnce = true
		g := New(m, Config{Size: 10, Side: 1, AtOnce: true})
		release := make(chan struct{})
		var calls sync.WaitGroup
		call := func(ctx context.Context, i int, fn func() error) {
			calls.Go(func() {
				if _, err := g.Once(ctx, name(i), func(_ context.Context, tx *modelTx) error {
					if err := fn(); err != nil {
						return err
					}
					tx.write(name(i))
					return nil
				}); (err != nil) != (i == 1) {
					t.Errorf("message %d: %v", i, err)
				}
				if p := turn.From(ctx); p != nil {
					p.Settle()
				}
			})
			synctest.Wait()
		}
		call(t.Context(), 0, func() error { <-release; return nil })
		var lane turn.Lane
		ran := 0
		call(turn.With(t.Context(), lane.Join()), 1, func() error { return errFunction })
		call(turn.With(t.Context(), lane.Join()), 2, func() error {
			if ran++; ran == 1 {
				return errFunction
			}
			return nil
		})
		close(release)
		calls.Wait()
		if ran != 2 {
			t.Errorf("the second message ran %d times", ran)
		}
	})
}

// The members of a group that was rolled back come again before all who have come later.
func TestAgainBeforeTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 4, Side: 1})
		release := make(chan struct{})
		var calls sync.WaitGroup
		call := func(i int, fn func() error) {
			calls.Go(func() {
				if _, err := g.Once(t.Context(), name(i), func(_ context.Context, tx *modelTx) error {
					tx.write(name(i))
					return fn()
				}); (err != nil) != (i == 4) {
					t.Errorf("message %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		call(0, func() error { <-release; return nil })
		for i := 1; i <= 12; i++ {
			call(i, func() error {
				if i == 4 {
					return errFunction
				}
				return nil
			})
		}
		close(release)
		calls.Wait()
		for i, want := range []int{0, 1, 2, 3, 5, 6} {
			if m.order[i] != name(want) {
				t.Fatalf("%v took effect at place %d, want message %d", m.order[i], i, want)
			}
		}
	})
}
