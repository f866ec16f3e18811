package crashtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// The event that is struck stands between others.
const (
	strikeAt = 5
	inAll    = 10
	event5   = "event-5"
)

// transaction is what the server knows of the struck process's transaction.
type transaction string

const (
	unseen   transaction = "unseen" // the process dies at once
	whatever transaction = "any"    // the next message may be in work
	none     transaction = "none"
	begun    transaction = "begun, nothing written"
	written  transaction = "begun, something written"
)

// steps are all of them, in their order.
var steps = []struct {
	step step
	tx   transaction // when the process waits at the step
	done bool        // the effect is there when the process is gone: the next one must recognise the repetition
}{
	{beforeBegin, none, false},
	{afterBegin, begun, false},
	{afterRecord, written, false},
	{inHandler, written, false},
	{afterHandler, written, false},
	{commitUnsent, written, false},
	{commitSent, unseen, true},
	{commitAnswered, unseen, true},
	{afterCommit, none, true},
	{offsetCommitUnsent, whatever, true},
	{offsetCommitSent, unseen, true},
}

// A process is killed at each step of a message's life, and another one goes on.
func TestKilledAt(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				first := start(t, w.struckAt(s.step))
				w.awaitStrike(first, s.step, s.tx)
				w.goOn(first, s.step, s.done)
			})
		})
	}
}

// While a process drains after SIGTERM it is killed.
func TestKilledInTheDrain(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		if s.step.beforeHandler() {
			continue // a drain begins with messages that are in a handler
		}
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				o := w.struckAt(s.step)
				o.Gate = true
				first := start(t, o)
				first.Await(sayGate)
				first.Signal(syscall.SIGTERM)
				first.Await(sayEnding)
				first.Tell(hearGo)
				w.awaitStrike(first, s.step, s.tx)
				w.goOn(first, s.step, s.done)
			})
		})
	}
}

// While a process drains because another member joins it is killed.
func TestKilledInARebalance(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		if s.step.beforeHandler() {
			continue
		}
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				o, second := w.struckAt(s.step), w.member("second")
				o.Gate = true
				o.Rebalance, second.Rebalance = 1500*time.Millisecond, 1500*time.Millisecond
				first := start(t, o)
				first.Await(sayGate)
				successor := start(t, second)
				w.awaitState(preparing)
				first.Tell(hearGo)
				w.awaitStrike(first, s.step, s.tx)
				w.finish(first, successor, s.step, s.done)
			})
		})
	}
}

// struckAt returns the orders of a process that is struck.
func (w *world) struckAt(s step) orders {
	o := w.member("first")
	o.Step, o.Event, o.Offset = s, event5, strikeAt
	return o
}

// awaitStrike waits until the process is at its step, looks around, and has it die.
func (w *world) awaitStrike(p *process, s step, want transaction) {
	w.t.Helper()
	p.Await(sayAt + string(s))
	if want != unseen {
		eventually(w.t, "the transaction is "+string(want),
			func() bool { return want == whatever || w.transaction(p.Name) == want })
		w.look()
		p.Tell(hearDie)
	}
	p.AwaitKilled()
}

// look gives commits of a mark that was made too early the time to come, and to be seen.
func (w *world) look() {
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		w.check()
	}
}

func (w *world) transaction(name string) transaction {
	w.t.Helper()
	return query[transaction](w, `select case
		when count(xact_start) = 0 then 'none'
		when count(backend_xid) = 0 then 'begun, nothing written'
		else 'begun, something written' end
		from pg_stat_activity where application_name = $1`, name)
}

// goOn has a second process finish what the first one began.
func (w *world) goOn(first *process, s step, done bool) {
	w.t.Helper()
	w.awaitNoSession(first.Name)
	w.wantAfterDeath(s, done)
	w.finish(first, start(w.t, w.member("second")), s, done)
}

// wantAfterDeath looks at what the dead have left.
func (w *world) wantAfterDeath(s step, done bool) {
	w.t.Helper()
	if by := w.by(); (by != "") != done {
		w.t.Errorf("killed %s: the effect is there: %v, want %v", s, by != "", done)
	}
	if committed := w.check()[0]; committed > strikeAt && s != offsetCommitSent {
		w.t.Errorf("killed %s: %d is committed, the struck message stands at %d", s, committed, strikeAt)
	}
}

// finish waits for the end of the topic, and looks at what has become of the struck event.
func (w *world) finish(first, second *process, s step, done bool) {
	w.t.Helper()
	w.awaitAll()
	second.Stop()
	w.wantOnce()
	by, want := w.by(), second.Name
	if done {
		want = first.Name
	}
	if by != want {
		w.t.Errorf("killed %s: the effect is by %q, want %q", s, by, want)
	}
	if n := w.duplicates(event5); done && n == 0 && s != offsetCommitSent {
		w.t.Errorf("killed %s: no repetition was recognised", s)
	}
}

// awaitState waits until the group is in that state.
func (w *world) awaitState(state string) {
	w.t.Helper()
	eventually(w.t, "the group is in the state "+state, func() bool {
		groups, err := w.admin.DescribeConsumerGroups([]string{w.group})
		return err == nil && len(groups) == 1 && groups[0].State == state
	})
}

// Messages behind the struck one are handled beside it, and finish before it: the offset waits for it.
func TestKilledBehindOthers(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		if s.step != inHandler && s.step != afterHandler && s.step != afterCommit {
			continue // those are known to be the struck message's, with other transactions beside it
		}
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				o := w.struckAt(s.step)
				o.Order = consumer.Unordered
				first := start(t, o)
				first.Await(sayAt + string(s.step))
				eventually(t, "all others have taken effect", func() bool {
					return query[int](w, `select count(*) from effect where event <> $1`, event5) == inAll-1
				})
				w.awaitStrike(first, s.step, s.tx)
				w.goOn(first, s.step, s.done)
				if n := w.duplicates("event-9"); n == 0 {
					t.Error("what finished before the struck message was not delivered again")
				}
			})
		})
	}
}

// A handler ends the process: os.Exit runs no deferred functions, which is as good as a kill.
func TestHandlerExits(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		w.produceMany(inAll)
		first := start(t, w.struckAt(exiting))
		first.AwaitEnd()
		if code := first.Cmd.ProcessState.ExitCode(); code != exitStatus {
			t.Fatalf("exit status %d, want %d", code, exitStatus)
		}
		w.goOn(first, exiting, false)
	})
}
