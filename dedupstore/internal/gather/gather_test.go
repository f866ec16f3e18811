package gather

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/dedupstore"
)

// behaviour is what a function does.
type behaviour int

const (
	succeeds behaviour = iota
	failsOnce
	failsAlways
	panics
	exits
	sleeps
	hangs // past its context's end, until it is released
	behaviours
)

// script is one call of a history.
type script struct {
	key       int
	does      behaviour
	after     time.Duration // it begins
	cancelled time.Duration // after it began, 0 for never
}

func drawScripts(t *rapid.T) []script {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) script {
		does := succeeds
		if rapid.IntRange(0, 3).Draw(t, "ill") == 0 {
			does = behaviour(rapid.IntRange(0, int(behaviours)-1).Draw(t, "does"))
		}
		s := script{
			key: rapid.IntRange(0, 40).Draw(t, "key"), does: does,
			after: time.Duration(rapid.IntRange(0, 5000).Draw(t, "after")) * time.Microsecond,
		}
		if does == hangs || rapid.IntRange(0, 9).Draw(t, "cancels") == 0 {
			s.cancelled = time.Duration(rapid.IntRange(0, 3000).Draw(t, "cancelled")) * time.Microsecond
		}
		return s
	}), 1, 80).Draw(t, "calls")
}

// Whatever happens, everybody gets an answer that is true, and nothing is committed by halves.
func TestHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		scripts := drawScripts(rt)
		faults := rapid.SliceOfN(rapid.SampledFrom([]error{nil, nil, nil, errDeadlock, errAway, errUnknown, errDefinite,
			errQueued}), 20, 20).Draw(rt, "faults")
		bad := rapid.IntRange(-40, 40).Draw(rt, "bad key")
		cfg := Config{Size: rapid.IntRange(2, 30).Draw(rt, "size"), Side: rapid.IntRange(1, 5).Draw(rt, "side"),
			Grace:  10 * time.Millisecond,
			AtOnce: rapid.Bool().Draw(rt, "at once")}
		rows := rapid.Bool().Draw(rt, "rows")
		synctest.Test(t, func(t *testing.T) { play(t, cfg, rows, scripts, faults, bad) })
	})
}

// play plays a history; rows has functions hand in what is written for all of a group at once.
func play(t *testing.T, cfg Config, rows bool, scripts []script, faults []error, bad int) {
	t.Helper()
	cfg.AtOnce = cfg.AtOnce || rows
	m := newModel(t)
	m.atOnce = cfg.AtOnce && !rows
	var mu sync.Mutex
	others := failures(&mu, faults)
	m.fail = func(moment string, keys []dedupstore.Key) error {
		if slices.Contains(keys, name(bad)) && moment == "begin" {
			return errBadKey
		}
		return others(moment, keys)
	}
	once, under := writing(m, cfg)
	if rows {
		once, under = handingIn(m, cfg)
	}
	release := make(chan struct{})
	answers := make([]answer, len(scripts))
	var calls sync.WaitGroup
	for i, s := range scripts {
		calls.Go(func() { answers[i] = s.run(t, once, release) })
	}
	go func() {
		time.Sleep(time.Minute)
		close(release)
	}()
	calls.Wait()
	synctest.Wait()
	<-release
	m.judge(scripts, answers)
	if m.most > cfg.Side+count(scripts, hangs) {
		t.Errorf("%d transactions side by side, want at most %d", m.most, cfg.Side)
	}
	if active, queue := under(); active != 0 || queue != 0 {
		t.Errorf("%d transactions are under way and %d calls wait at the end", active, queue)
	}
}

// once calls Once with a function that writes keys.
type once func(ctx context.Context, k dedupstore.Key, fn func(ctx context.Context, write func(dedupstore.Key)) error) (ran bool, err error)

// writing has functions that write in the transaction. underWay tells what is under way.
func writing(m *model, cfg Config) (_ once, underWay func() (active, queue int)) {
	g := New(m, cfg)
	return func(ctx context.Context, k dedupstore.Key, fn func(context.Context, func(dedupstore.Key)) error) (bool,
		error) {
		return g.Once(ctx, k, func(ctx context.Context, tx *modelTx) error { return fn(ctx, tx.write) })
	}, func() (int, int) { return g.active, g.queue.len() }
}

// handingIn has functions that hand in what they write.
func handingIn(m *model, cfg Config) (_ once, underWay func() (active, queue int)) {
	g := New(Collect(collecting(m, nil)), cfg)
	return func(ctx context.Context, k dedupstore.Key, fn func(context.Context, func(dedupstore.Key)) error) (bool,
		error) {
		return g.Once(ctx, k, func(ctx context.Context, rows *dedupstore.Rows[dedupstore.Key]) error {
			return fn(ctx, func(k dedupstore.Key) { rows.Add(k) })
		})
	}, func() (int, int) { return g.active, g.queue.len() }
}

func count(scripts []script, does behaviour) (n int) {
	for _, s := range scripts {
		if s.does == does {
			n++
		}
	}
	return n
}

func name(n int) dedupstore.Key { return key(fmt.Sprint(n)) }

type answer struct {
	returned, ran bool
	err           error
}

// run calls Once as a runner would, on a goroutine that may end in it.
func (s script) run(t *testing.T, once once, release <-chan struct{}) (got answer) {
	time.Sleep(s.after)
	ctx := t.Context()
	if s.cancelled > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cancelled)
		defer cancel()
	}
	attempts := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		got.ran, got.err = once(ctx, name(s.key), func(ctx context.Context, write func(dedupstore.Key)) error {
			attempts++
			write(name(s.key))
			return s.behave(ctx, attempts, release)
		})
		got.returned = true
	}()
	<-done
	return got
}

var errFunction = errors.New("the function fails")

func (s script) behave(ctx context.Context, attempt int, release <-chan struct{}) error {
	switch {
	case s.does == failsOnce && attempt == 1, s.does == failsAlways:
		return errFunction
	case s.does == panics:
		panic("the function panics")
	case s.does == exits:
		runtime.Goexit()
	case s.does == sleeps:
		select {
		case <-time.After(15 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	case s.does == hangs:
		<-release
	}
	return nil
}

func (m *model) judge(scripts []script, answers []answer) {
	m.t.Helper()
	ran := map[dedupstore.Key]int{}
	for i, a := range answers {
		k := name(scripts[i].key)
		switch {
		case !a.returned:
			if scripts[i].does != panics && scripts[i].does != exits {
				m.t.Errorf("call %d did not return", i)
			}
		case a.err != nil && a.ran:
			m.t.Errorf("call %d: ran, and %v", i, a.err)
		case a.err == nil && !m.records[k]:
			m.t.Errorf("call %d: done, but there is no record", i)
		case a.ran:
			ran[k]++
			if s := scripts[i]; s.does != succeeds && s.does != sleeps && (s.does != hangs || s.cancelled > 0) {
				m.t.Errorf("call %d: ran, but its function cannot have succeeded in that attempt (%d)", i, s.does)
			}
		}
	}
	for k, n := range m.effects {
		if n != 1 || ran[k] > 1 {
			m.t.Errorf("%v took effect %d times, and %d calls say so", k, n, ran[k])
		}
	}
}

// waiting starts n calls while a first one holds the only transaction, and returns when they wait.
func waiting(t *testing.T, g *Gatherer[*modelTx], n int,
	fn func(i int) func(context.Context, *modelTx) error) (results []answer, wait func()) {
	t.Helper()
	results = make([]answer, n)
	hold := make(chan struct{})
	var calls sync.WaitGroup
	for side := range g.pace.sides() {
		calls.Go(func() {
			_, _ = g.Once(t.Context(), key(fmt.Sprint("first", side)), func(_ context.Context, tx *modelTx) error {
				tx.write(key(fmt.Sprint("first", side)))
				<-hold
				return nil
			})
		})
	}
	synctest.Wait()
	for i := range n {
		calls.Go(func() {
			results[i].ran, results[i].err = g.Once(t.Context(), name(i), fn(i))
			results[i].returned = true
		})
		synctest.Wait()
	}
	return results, func() {
		close(hold)
		calls.Wait()
	}
}

func TestCallsThatWaitShareATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 100, Side: 1})
		var order []string
		results, wait := waiting(t, g, 50, func(i int) func(context.Context, *modelTx) error {
			return func(_ context.Context, tx *modelTx) error {
				order = append(order, fmt.Sprint(i)) // one after the other: the race detector agrees
				tx.write(name(i))
				return nil
			}
		})
		wait()
		for i, r := range results {
			if !r.ran || r.err != nil {
				t.Errorf("call %d: %+v", i, r)
			}
		}
		if !slices.Equal(m.sizes, []int{1, 50}) {
			t.Errorf("transactions of %v calls, want 1 and 50", m.sizes)
		}
		if got, want := strings.Join(order, " "), strings.TrimSpace(numbers(50)); got != want {
			t.Errorf("functions ran in the order %s", got)
		}
	})
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.String()
}

// The one that fails is answered; all others come again in their order, in groups of half the size, which grow again.
func TestOneFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		g := New(m, Config{Size: 64, Side: 1})
		runs := make([]int, 64)
		var committed []int
		results, wait := waiting(t, g, 64, func(i int) func(context.Context, *modelTx) error {
			return func(_ context.Context, tx *modelTx) error {
				runs[i]++
				if i == 10 {
					return errFunction
				}
				tx.write(name(i))
				if runs[i] == 2 || i > 10 {
					committed = append(committed, i)
				}
				return nil
			}
		})
		wait()
		for i, r := range results {
			switch {
			case i == 10 && !errors.Is(r.err, errFunction):
				t.Errorf("the failing call: %+v", r)
			case i != 10 && !r.ran:
				t.Errorf("call %d: %+v", i, r)
			}
		}
		if !slices.IsSorted(committed) || len(committed) != 63 {
			t.Errorf("the others took effect in the order %v", committed)
		}
		if want := []int{1, 64, 32, 31}; !slices.Equal(m.sizes, want) {
			t.Errorf("transactions of %v calls, want %v", m.sizes, want)
		}
		if s := g.Stats(); s.RolledBack != 1 || s.Size != 64 {
			t.Errorf("Stats() = %+v", s)
		}
	})
}

// A group in which all fail costs few extra runs.
func TestAllFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(newModel(t), Config{Size: 200, Side: 1})
		runs := 0
		results, wait := waiting(t, g, 200, func(int) func(context.Context, *modelTx) error {
			return func(context.Context, *modelTx) error {
				runs++
				return errFunction
			}
		})
		wait()
		for i, r := range results {
			if !errors.Is(r.err, errFunction) {
				t.Errorf("call %d: %+v", i, r)
			}
		}
		if runs != 200 {
			t.Errorf("%d runs for 200 calls", runs)
		}
	})
}

// A key that the table refuses is found by halving.
func TestRefusedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		m.fail = func(moment string, keys []dedupstore.Key) error {
			if moment == "begin" && slices.Contains(keys, name(77)) {
				return errBadKey
			}
			return nil
		}
		g := New(m, Config{Size: 128, Side: 1})
		results, wait := waiting(t, g, 128, func(i int) func(context.Context, *modelTx) error {
			return func(_ context.Context, tx *modelTx) error {
				tx.write(name(i))
				return nil
			}
		})
		wait()
		for i, r := range results {
			if i == 77 && !errors.Is(r.err, errBadKey) || i != 77 && !r.ran {
				t.Errorf("call %d: %+v", i, r)
			}
		}
	})
}

// A key that the table refuses is refused for each call that has it.
func TestRefusedTwins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t)
		begun := 0
		m.fail = func(_ string, keys []dedupstore.Key) error {
			if begun++; begun > 100 {
				t.Fatal("it never ends")
			}
			if slices.Contains(keys, key("refused")) {
				return errBadKey
			}
			return nil
		}
		g := New(m, Config{Size: 8, Side: 1})
		_, wait := waiting(t, g, 0, nil)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				_, err := g.Once(t.Context(), key("refused"), func(context.Context, *modelTx) error { return nil })
				if !errors.Is(err, errBadKey) {
					t.Errorf("Once() = %v", err)
				}
			})
		}
		synctest.Wait()
		wait()
		calls.Wait()
	})
}
