package losttest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/faultproxy"
	"github.com/einmal-go/einmal/dedupstore/internal/pgtest"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
)

const (
	unavailable = dedupstore.Unavailable
	unknown     = dedupstore.OutcomeUnknown
)

// cutCase is a cut, and what must come of it.
type cutCase struct {
	name      string
	statement func(sql string) bool
	when      faultproxy.When

	want  dedupstore.Class // of the delivery's error
	again bool             // the next delivery runs the function: nothing was committed

	cold     bool     // before the store has a connection
	before   bool     // the event has taken effect before: the delivery that is cut is a redelivery
	looking  bool     // only in stores that look after the function
	function function // instead of one that writes the effect
}

var errOfFunction = errors.New("the function's own")

var cutCases = []cutCase{
	{name: "connecting", cold: true, statement: is(faultproxy.Startup), when: faultproxy.Unsent, want: unavailable,
		again: true},
	{name: "connecting, not answered", cold: true, statement: is(faultproxy.Startup), when: faultproxy.Unanswered,
		want: unavailable, again: true},
	{name: "BEGIN, not sent", statement: begins("begin"), when: faultproxy.Unsent, want: unavailable, again: true},
	{name: "the record, not sent", statement: records, when: faultproxy.Unsent, want: unavailable, again: true},
	{name: "the record, half sent", statement: records, when: faultproxy.HalfSent, want: unavailable, again: true},
	{name: "the record, not answered", statement: records, when: faultproxy.Unanswered, want: unavailable, again: true},
	{name: "in the handler, not sent", statement: begins("insert into effect"), when: faultproxy.Unsent, want: unavailable,
		again: true},
	{name: "in the handler, not answered", statement: begins("insert into effect"), when: faultproxy.Unanswered,
		want: unavailable, again: true},
	{name: "in the handler, its error swallowed", statement: begins("insert into effect"), when: faultproxy.Unsent,
		want: unavailable, again: true, function: swallowing},
	{name: "after the handler", looking: true, statement: begins("select current_setting"), when: faultproxy.Unanswered,
		want: unavailable, again: true},
	{name: "ROLLBACK, not sent", statement: begins("rollback"), when: faultproxy.Unsent, want: dedupstore.Unclassified,
		again: true, function: failing},
	{name: "COMMIT, not sent", statement: begins("commit"), when: faultproxy.Unsent, want: unknown, again: true},
	{name: "COMMIT, half sent", statement: begins("commit"), when: faultproxy.HalfSent, want: unknown, again: true},
	{name: "COMMIT, not answered", statement: begins("commit"), when: faultproxy.Unanswered, want: unknown},
	{name: "COMMIT, half answered", statement: begins("commit"), when: faultproxy.HalfAnswered, want: unknown},
	{name: "COMMIT of a redelivery, not sent", before: true, statement: begins("commit"), when: faultproxy.Unsent,
		want: unknown},
	{name: "COMMIT of a redelivery, not answered", before: true, statement: begins("commit"), when: faultproxy.Unanswered,
		want: unknown},
}

func is(text string) func(string) bool { return func(sql string) bool { return sql == text } }
func begins(text string) func(string) bool {
	return func(sql string) bool { return strings.HasPrefix(sql, text) }
}
func records(sql string) bool {
	return strings.Contains(sql, "insert into") && strings.Contains(sql, "processed_event")
}

func writing(effect string) function {
	return func(ctx context.Context, exec exec) error { return exec(ctx, insertEffect, effect) }
}

const insertEffect = "insert into effect (name) values ($1)"

func swallowing(ctx context.Context, exec exec) error {
	_ = exec(ctx, insertEffect, "swallowed")
	return nil
}

func failing(ctx context.Context, exec exec) error {
	return errors.Join(exec(ctx, insertEffect, "rolled back"), errOfFunction)
}

// The connection is cut once at each message, as the end of the stream and as a reset. The event is delivered again
// until it is acknowledged.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t, pgtest.Plain)
			for _, c := range cutCases {
				if c.looking && !k.looks {
					continue
				}
				for how, way := range map[string]faultproxy.How{"closed": faultproxy.Close, "reset": faultproxy.Reset} {
					t.Run(c.name+"/"+how, func(t *testing.T) { c.run(t, k, db, way) })
				}
			}
		})
	}
}

const poolSize = 4

// behind opens a store whose connections go through a proxy.
func behind(t *testing.T, k kind, db *pgtest.Database, cfg sqlstore.Config) (*store, *faultproxy.Proxy) {
	t.Helper()
	u, err := url.Parse(db.URL)
	must(t, err)
	p, err := faultproxy.Listen(t.Context(), u.Host)
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr
	return k.open(t, u.String(), poolSize, cfg), p
}

func (c cutCase) run(t *testing.T, k kind, db *pgtest.Database, how faultproxy.How) {
	key := dedupstore.Key{Consumer: "lost", Event: t.Name()}
	deliver := func(s *store, f function) (bool, error) { return s.once(t.Context(), key, f) }
	s, p := behind(t, k, db, sqlstore.Config{})
	if !c.cold {
		fill(t, s, poolSize-1, t.Name()+"/before")
	}
	if c.before {
		ran, err := deliver(s, writing(key.Event))
		if must(t, err); !ran {
			t.Fatal("the first delivery did not run")
		}
	}

	struck := p.Arm(faultproxy.Cut{Statement: c.statement, When: c.when, How: how})
	f := c.function
	if f == nil {
		f = writing(key.Event)
	}
	ran, err := deliver(s, f)
	if ran || err == nil || dedupstore.ClassOf(err) != c.want {
		t.Errorf("the delivery that was cut: %v, %v error %v, want %v", ran, dedupstore.ClassOf(err), err, c.want)
	}
	select {
	case <-struck:
	default:
		t.Fatal("nothing was cut")
	}

	for tries := 0; tries == 0 || dedupstore.ClassOf(err) == dedupstore.Unavailable && tries < 10; tries++ { // a machine may be too busy to answer in time
		ran, err = deliver(s, writing(key.Event))
	}
	if err != nil || ran != c.again {
		t.Errorf("the next delivery: %v, %v, want %v", ran, err, c.again)
	}
	if ran, err = deliver(s, writing(key.Event)); err != nil || ran {
		t.Errorf("one more delivery: %v, %v, want a redelivery that is skipped", ran, err)
	}
	wantOnce(t, db, key.Event)
	if n := pgtest.Value[int](db, "select count(*) from effect where name in ('swallowed', 'rolled back')"); n != 0 {
		t.Errorf("%d effects of transactions that must have been rolled back", n)
	}
	fill(t, s, poolSize-1, t.Name()+"/after")
}

// fill uses n connections of the pool at once. The store may use all but one.
func fill(t *testing.T, s *store, n int, name string) {
	t.Helper()
	var all, done sync.WaitGroup
	all.Add(n)
	for i := range n {
		key := dedupstore.Key{Consumer: "lost", Event: fmt.Sprint(name, i)}
		there := sync.OnceFunc(all.Done)
		done.Go(func() {
			defer there() // if it never was
			eventually(t, "a connection can be used", func() bool {
				_, err := s.once(t.Context(), key, func(ctx context.Context, exec exec) error {
					there()
					all.Wait()
					return exec(ctx, insertEffect, name)
				})
				if err != nil && !passing(err) {
					t.Error("the pool is not as it was:", err)
				}
				return err == nil || t.Failed()
			})
		})
	}
	done.Wait()
}

// passing reports whether an error may come of a machine that has much to do: time-outs are short in these tests.
func passing(err error) bool {
	class := dedupstore.ClassOf(err)
	idle := strings.Contains(err.Error(), "25P03") // a function's session, for longer than IdleTimeout
	return idle || errors.Is(err, context.DeadlineExceeded) || class == dedupstore.Unavailable ||
		class == dedupstore.OutcomeUnknown || class == dedupstore.Transient
}

func wantOnce(t *testing.T, db *pgtest.Database, event string) {
	t.Helper()
	effects := pgtest.Value[int](db, "select count(*) from effect where name = $1", event)
	records := pgtest.Value[int](db, "select count(*) from processed_event where event_id = $1", event)
	if effects != 1 || records != 1 {
		t.Errorf("%d effects and %d records of one event", effects, records)
	}
}

// silentCases are those of a network that passes nothing any more and closes nothing, so that the server goes on to
// wait.
var silentCases = []cutCase{
	{name: "the record, not sent", statement: records, when: faultproxy.Unsent, want: unavailable, again: true},
	{name: "the record, not answered", statement: records, when: faultproxy.Unanswered, want: unavailable, again: true},
	{name: "in the handler, not answered", statement: begins("insert into effect"), when: faultproxy.Unanswered,
		want: dedupstore.Unclassified, again: true},
	{name: "COMMIT, not sent", statement: begins("commit"), when: faultproxy.Unsent, want: unknown, again: true},
	{name: "COMMIT, not answered", statement: begins("commit"), when: faultproxy.Unanswered, want: unknown},
}

// The network falls silent: the client's deadlines end the delivery, and IdleTimeout the session that has lost its
// client. Until then a redelivery waits for LockTimeout.
func TestNetworkSilent(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t, pgtest.Plain)
			for _, c := range silentCases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.fallSilent(t, k, db)
				})
			}
		})
	}
}

func (c cutCase) fallSilent(t *testing.T, k kind, db *pgtest.Database) {
	key := dedupstore.Key{Consumer: "lost", Event: t.Name()}
	s, p := behind(t, k, db, sqlstore.Config{LockTimeout: 200 * time.Millisecond, CommitTimeout: 300 * time.Millisecond,
		IdleTimeout: time.Second})
	fill(t, s, poolSize-1, t.Name()+"/before")

	struck := p.Arm(faultproxy.Cut{Statement: c.statement, When: c.when, How: faultproxy.Silence})
	var ran bool
	var err error
	eventually(t, "the network falls silent", func() bool { // a machine that has much to do may come to an end before
		limit := 10 * time.Second // the store's own time-outs come first, on a slow machine too
		if c.want == dedupstore.Unclassified {
			limit = time.Second // as middleware.Timeout has it: nothing else ends a function
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if ran, err = s.once(ctx, key, writing(key.Event)); err == nil {
			t.Fatal("nothing was cut")
		}
		select {
		case <-struck:
			return true
		default:
			return false
		}
	})
	if ran || err == nil || dedupstore.ClassOf(err) != c.want {
		t.Errorf("the delivery that was cut: %v, %v error %v, want %v", ran, dedupstore.ClassOf(err), err, c.want)
	}

	late := false // a redelivery may have committed it, after CommitTimeout
	eventually(t, "the event is acknowledged", func() bool {
		ran, err = s.once(t.Context(), key, writing(key.Event))
		late = late || err != nil && dedupstore.ClassOf(err) == unknown
		if err != nil && !passing(err) {
			t.Fatalf("a redelivery: %v error %v, want it to wait for the lock, or to succeed", dedupstore.ClassOf(err), err)
		}
		return err == nil
	})
	if ran != c.again && !late {
		t.Errorf("the redelivery that succeeded: %v, want %v", ran, c.again)
	}
	wantOnce(t, db, key.Event)
	fill(t, s, poolSize-2, t.Name()+"/after") // one may be left behind: pgdriver waits for its own time-out
	must(t, p.Close())                        // or pgxpool.Pool.Close would wait for an answer, 15 s
}
