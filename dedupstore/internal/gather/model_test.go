package gather

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// The model is a database in memory that does what PostgreSQL does with records: a transaction locks its keys, others
// wait for it, and what it wrote is there after its commit, or not at all. Whatever it commits it checks.
type model struct {
	t testing.TB

	mu      sync.Mutex
	changed *sync.Cond
	held    map[dedupstore.Key]bool
	records map[dedupstore.Key]bool
	effects map[dedupstore.Key]int
	most    int // transactions that were open at once
	open    int
	sizes   []int            // records of each transaction that was begun
	order   []dedupstore.Key // of the effects that were committed

	fail   func(moment string, keys []dedupstore.Key) error // may be nil
	atOnce bool
}

// Failures of the model's database.
var (
	errBadKey   = errors.New("a column refuses a key")
	errDeadlock = errors.New("deadlock")
	errAway     = errors.New("away")
	errUnknown  = errors.New("the outcome is unknown")
	errDefinite = errors.New("deferred constraint")
	errQueued   = errors.New("a queued statement")
	errWaiting  = errors.New("waiting")
)

func newModel(t testing.TB) *model {
	m := &model{t: t, held: map[dedupstore.Key]bool{}, records: map[dedupstore.Key]bool{},
		effects: map[dedupstore.Key]int{}}
	m.changed = sync.NewCond(&m.mu)
	return m
}

func (m *model) failing(moment string, keys []dedupstore.Key) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(moment, keys)
}

// failures are those of a history, in their order.
func failures(mu *sync.Mutex, faults []error) func(moment string, keys []dedupstore.Key) error {
	return func(moment string, _ []dedupstore.Key) error {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) == 0 {
			return nil
		}
		err := faults[0]
		faults = faults[1:]
		if moment == "begin" && (errors.Is(err, errUnknown) || errors.Is(err, errDefinite) || errors.Is(err, errQueued)) {
			return nil
		}
		return err
	}
}

// modelTx is a transaction of the model.
type modelTx struct {
	m       *model
	fresh   map[dedupstore.Key]bool
	written []dedupstore.Key // by one function
	ran     map[int]*modelTx // what each function has seen, by its place
	keys    []dedupstore.Key
	ended   bool
	running bool
}

func (tx *modelTx) write(key dedupstore.Key) { tx.written = append(tx.written, key) }

func (m *model) Begin(_ context.Context, keys []dedupstore.Key) (Transaction[*modelTx], []bool, error) {
	if err := m.failing("begin", keys); err != nil {
		return nil, nil, err
	}
	time.Sleep(300 * time.Microsecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	for slices.ContainsFunc(keys, func(k dedupstore.Key) bool { return m.held[k] }) {
		m.changed.Wait()
	}
	tx := &modelTx{m: m, fresh: map[dedupstore.Key]bool{}, ran: map[int]*modelTx{}, keys: keys}
	fresh := make([]bool, len(keys))
	for i, k := range keys {
		if m.held[k] {
			m.t.Errorf("%v twice in one group", k)
		}
		m.held[k], fresh[i] = true, !m.records[k]
		if fresh[i] {
			tx.fresh[k] = true
		}
	}
	m.sizes = append(m.sizes, len(keys))
	m.open++
	m.most = max(m.most, m.open)
	return tx, fresh, nil
}

func (tx *modelTx) Run(ctx context.Context, place int, fn func(context.Context, *modelTx) error) error {
	tx.m.mu.Lock()
	if tx.running && !tx.m.atOnce || tx.ended {
		tx.m.t.Errorf("a function runs beside another one, or in a transaction that has ended")
	}
	tx.running = true
	tx.m.mu.Unlock()
	defer func() {
		tx.m.mu.Lock()
		tx.running = false
		tx.m.mu.Unlock()
	}()
	its := &modelTx{}
	if err := fn(ctx, its); err != nil {
		return err
	}
	tx.m.mu.Lock()
	tx.ran[place] = its
	tx.m.mu.Unlock()
	return ctx.Err()
}

func (tx *modelTx) Commit(back []dedupstore.Key) error {
	time.Sleep(300 * time.Microsecond)
	err := tx.m.failing("commit", tx.keys)
	places := slices.Sorted(maps.Keys(tx.ran))
	if errors.Is(err, errQueued) {
		if err = nil; tx.m.atOnce && len(places) > 0 {
			place := places[rand.IntN(len(places))]
			return &Blame{place, fmt.Errorf("%w: %v", errQueued, tx.keys[place])}
		}
	}
	if errors.Is(err, errUnknown) && rand.IntN(2) == 0 || err == nil {
		tx.commit(back, places)
		return err
	}
	return err
}

func (tx *modelTx) commit(back []dedupstore.Key, places []int) {
	m := tx.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if tx.ended {
		m.t.Error("a commit after the end")
	}
	for _, k := range back {
		if !tx.fresh[k] {
			m.t.Errorf("%v is taken back, but was not inserted", k)
		}
		delete(tx.fresh, k)
	}
	var effects []dedupstore.Key
	for _, place := range places {
		effects = append(effects, tx.ran[place].written...)
	}
	written := map[dedupstore.Key]bool{}
	for _, k := range effects {
		written[k] = true
	}
	if !maps.Equal(written, tx.fresh) {
		m.t.Errorf("committed effects %v, records %v", written, tx.fresh)
	}
	for k := range tx.fresh {
		m.records[k] = true
		m.effects[k]++
	}
	m.order = append(m.order, effects...)
	tx.end()
}

// end frees the keys. The mutex is held.
func (tx *modelTx) end() {
	if tx.ended {
		return
	}
	tx.ended = true
	for _, k := range tx.keys {
		delete(tx.m.held, k)
	}
	tx.m.open--
	tx.m.changed.Broadcast()
}

// Ended is called for a function of which the model has none.
func (tx *modelTx) Ended([]dedupstore.Key) { tx.m.t.Error("no function ends its transaction here") }

func (tx *modelTx) Rollback() { tx.Abandon() }

func (tx *modelTx) Abandon() {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	tx.end()
}

func (m *model) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *modelTx) error) (bool, error) {
	tx, fresh, err := m.Begin(ctx, []dedupstore.Key{key})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	if fresh[0] {
		if err := tx.Run(ctx, 0, fn); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(nil); err != nil {
		return false, err
	}
	return fresh[0], nil
}

func (m *model) Fault(err error) Fault {
	switch {
	case errors.Is(err, errDeadlock):
		return OfNobody
	case errors.Is(err, errAway), errors.Is(err, errUnknown):
		return OfAll
	case errors.Is(err, errBadKey), errors.Is(err, errDefinite):
		return OfSome
	}
	return OfCall
}

func (m *model) Waiting(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errWaiting, ctx.Err())
}

func key(event string) dedupstore.Key { return dedupstore.Key{Consumer: "c", Event: event} }
