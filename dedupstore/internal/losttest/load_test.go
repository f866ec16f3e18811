package losttest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers"
)

const workers = 16

// load delivers events to a store, from as many workers at once, until it is told to stop; each again and again until
// it is acknowledged. One in five is delivered once more after that.
type load struct {
	kind   kind
	schema string
	store  *store
	t      testing.TB

	ctx           context.Context // ends with the test
	issued, acked atomic.Int64
	errors        [dedupstore.Permanent + 1]atomic.Int64 // by class
	stopping      atomic.Bool
	done          sync.WaitGroup
}

// newLoads makes one load of each kind, in schemas of the instance. They use the URL.
func newLoads(t testing.TB, i *servers.Instance, hosts string) (loads []*load) {
	t.Helper()
	return newLoadsWith(t, i, hosts, sqlstore.Config{LockTimeout: 300 * time.Millisecond,
		CommitTimeout: 400 * time.Millisecond})
}

func newLoadsWith(t testing.TB, i *servers.Instance, hosts string, cfg sqlstore.Config) (loads []*load) {
	t.Helper()
	for _, k := range slices.Concat(kinds, grouped) {
		schema, err := (&servers.Database{URL: i.URL()}).NewSchema(t.Context(), k.name)
		must(t, err)
		pgtest.OpenAt(t, schema.URL, pgtest.Plain)
		loads = append(loads, newLoad(t, k, schema.Name, hosts, cfg))
	}
	return loads
}

func newLoad(t testing.TB, k kind, schema, hosts string, cfg sqlstore.Config) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{kind: k, schema: schema, t: t, ctx: ctx}
	l.store = k.open(t, l.in(hosts), workers+1, cfg)
	t.Cleanup(func() { // a test that failed has not stopped it
		cancel()
		l.done.Wait()
	})
	eventually(t, k.name+": the check passes, whose time-outs are short",
		func() bool { return l.store.check(t.Context()) == nil })
	return l
}

// in is the URL with the load's schema.
func (l *load) in(hosts string) string { return inSchema(l.t, hosts, l.schema) }

func inSchema(t testing.TB, hosts, schema string) string {
	t.Helper()
	u, err := url.Parse(hosts)
	must(t, err)
	q := u.Query()
	q.Set("search_path", schema)
	q.Set("application_name", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func start(loads []*load) {
	for _, l := range loads {
		for range workers {
			l.done.Go(l.work)
		}
	}
}

// stop waits until all that was issued is acknowledged.
func stop(t testing.TB, loads []*load) {
	t.Helper()
	for _, l := range loads {
		l.stopping.Store(true)
	}
	for _, l := range loads {
		finished := make(chan struct{})
		go func() { l.done.Wait(); close(finished) }()
		select {
		case <-finished:
		case <-time.After(3 * time.Minute):
			t.Fatalf("%s: %d of %d events are acknowledged", l.kind.name, l.acked.Load(), l.issued.Load())
		}
	}
}

func (l *load) work() {
	for !l.stopping.Load() && l.ctx.Err() == nil {
		n := l.issued.Add(1)
		event := fmt.Sprintf("event-%d", n)
		l.deliver(event)
		l.acked.Add(1)
		if n%5 == 0 && l.deliver(event) {
			l.t.Errorf("%s: %s was acknowledged, and ran again: it had been lost", l.kind.name, event)
		}
	}
}

// deliver returns when the event is acknowledged, and reports whether the function ran in the attempt that was.
func (l *load) deliver(event string) (ran bool) {
	for {
		ran, err := l.attempt(event)
		if err == nil || l.ctx.Err() != nil {
			return ran
		}
		class := dedupstore.ClassOf(err)
		l.errors[class].Add(1)
		if !passing(err) {
			l.t.Errorf("%s: %v error: %v", l.kind.name, class, err)
		}
		time.Sleep(20 * time.Millisecond) // the backoff of a consumer that is in a hurry
	}
}

func (l *load) attempt(event string) (bool, error) {
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	return l.store.once(ctx, dedupstore.Key{Consumer: "lost", Event: event}, writing(event))
}

// wantOnce looks into the instance: every event has one effect and one record.
func (l *load) wantOnce(t testing.TB, i *servers.Instance) {
	t.Helper()
	db := pgtest.OpenEmpty(t, l.in(i.URL()))
	ids := int(l.issued.Load())
	effects, distinct, records := db.Effects(), pgtest.Value[int](db, "select count(distinct name) from effect"),
		recordsOf(db)
	t.Logf("%s: %d ids, %d effects, %d records; errors: %s", l.kind.name, ids, effects, records, l.classes())
	if effects != ids || distinct != ids || records != ids {
		t.Errorf("%s: %d ids, %d effects of %d events, %d records", l.kind.name, ids, effects, distinct, records)
	}
}

func recordsOf(db *pgtest.Database) int {
	return pgtest.Value[int](db, "select count(*) from processed_event where consumer_id = 'lost'")
}

func (l *load) classes() (text string) {
	for class := range l.errors {
		if n := l.errors[class].Load(); n > 0 {
			text += fmt.Sprintf("%d %v ", n, dedupstore.Class(class))
		}
	}
	return text
}

// each waits until the condition holds for each load.
func each(t testing.TB, loads []*load, what string, condition func(l *load) bool) {
	t.Helper()
	for _, l := range loads {
		eventually(t, l.kind.name+": "+what, func() bool { return condition(l) })
	}
}

// more is the condition that n more are counted.
func more(loads []*load, n int64, count func(l *load) int64) func(l *load) bool {
	before := map[*load]int64{}
	for _, l := range loads {
		before[l] = count(l)
	}
	return func(l *load) bool { return count(l) >= before[l]+n }
}

func acked(l *load) int64 { return l.acked.Load() }

func failed(l *load) (n int64) {
	for class := range l.errors {
		n += l.errors[class].Load()
	}
	return n
}
