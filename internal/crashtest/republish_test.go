package crashtest

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// afterForget is a step of a redrive that publishes: the event's record was deleted.
const afterForget step = "after the record was deleted"

// struckRepublish is a redrive's store, table and outbox with a striker in them.
type struckRepublish struct {
	struckRedrive
	events *pgxoutbox.Writer
}

func (s struckRepublish) Forget(ctx context.Context, tx pgx.Tx, key dedupstore.Key) error {
	err := s.Store.Forget(ctx, tx, key)
	if err == nil {
		s.at(afterForget)
	}
	return err
}

// Write stands for the outbox's writer: the table's is not called.
func (s struckRepublish) Write(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
	err := s.events.Write(ctx, tx, events...)
	if err == nil {
		s.at(inHandler)
	}
	return err
}

// republish is the work of a process that has dead letters published again.
func (c *child) republish(ctx context.Context) error {
	pool, err := c.openPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	struck := struckRedrive{pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil), &c.striker}
	all := struckRepublish{struck, pgxoutbox.NewWriter(nil)}
	_, err = forward.Redrive[pgx.Tx](ctx, all, struck, all,
		&forward.RedriveConfig{RedriveConfig: deadletter.RedriveConfig{PerSecond: -1}})
	return err
}

// A process that publishes dead letters again is killed at each step, another one begins anew, and so does a third,
// which finds nothing to do: each is published once, and its record is gone when its event is there.
func TestRepublishKilledAt(t *testing.T) {
	t.Parallel()
	steps := slices.Concat(redriveSteps, redriveSteps[:1])
	steps[len(redriveSteps)].step = afterForget
	for _, s := range steps {
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			const dead = 5
			w := newGraveyard(t, dead)
			o := w.member("first")
			o.Republish, o.Step = true, s.step
			first := start(t, o)
			first.Await(sayAt + string(s.step))
			first.Tell(hearDie)
			first.AwaitKilled()
			w.awaitNoSession(first.Name)
			w.wantRepublished(s.done, dead-s.done)
			for _, name := range []string{"second", "third"} {
				o := w.member(name)
				o.Republish = true
				next := start(t, o)
				next.AwaitEnd()
				if !next.Cmd.ProcessState.Success() {
					t.Errorf("the %s ended with %v", name, next.Cmd.ProcessState)
				}
				w.wantRepublished(dead, 0)
			}
		})
	}
}

func (w *world) wantRepublished(events, dead int) {
	w.t.Helper()
	n, distinct := query[int](w, "select count(*) from outbox_event"),
		query[int](w, "select count(distinct event_id) from outbox_event")
	_, left := w.counts()
	records := query[int](w, "select count(*) from processed_event")
	if n != events || distinct != events || left != dead || records != dead {
		w.t.Errorf("%d events (%d distinct), %d dead letters, %d records; want %d, %d, %d", n, distinct, left, records,
			events, dead, dead)
	}
}
