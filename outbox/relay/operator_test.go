package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// An operator waits until nothing of the bucket is on its way, in both modes.
func TestOperatorTakesTheLock(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.insert("1", "2")
			op := outbox.NewOperator(b.db, nil)
			slow, sent := slowly(b.b, 2*time.Second), make(chan struct{}, 10)
			b.b.Fake.ControlKey(0, func(req kmsg.Request) (kmsg.Response, error, bool) {
				sent <- struct{}{}
				return slow(req)
			})
			start(t, b.config(mode))
			<-sent
			b.insert("3") // which waits behind them
			n, err := op.Discard(t.Context(), outbox.Filter{State: outbox.Pending}, "too late")
			must(t, err)
			if left := b.rows("event_id <> '3'"); n != 1 || left != 0 {
				t.Errorf("%d rows were discarded while %d were on their way", n, left)
			}
			if got := b.topicHas(); got != "1 2" {
				t.Errorf("the topic has %s", got)
			}
		})
	}
}

func TestSwitchMode(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	op := outbox.NewOperator(b.db, nil)
	run := func(mode outbox.Mode) {
		r, err := relay.New(b.config(mode))
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		eventually(t, "all are sent", func() bool { return b.rows("true") == 0 && r.Status().Running })
		cancel()
		must(t, <-ended)
	}
	b.insert("1")
	run(outbox.TwoPhase)
	b.insert("2")
	b.MustExec("update outbox_event set status = 'PUBLISHING', claim_epoch = 9, claimed_until = clock_timestamp()")
	b.MustExec("update outbox_lease set owner = 'alive', leased_until = clock_timestamp() + interval '1 hour' where bucket = 5")
	if err := op.SwitchMode(t.Context(), outbox.SinglePhase); err == nil ||
		!strings.Contains(err.Error(), "alive is at work") {
		t.Errorf("SwitchMode() = %v", err)
	}
	b.MustExec("update outbox_lease set leased_until = clock_timestamp()")
	must(t, op.SwitchMode(t.Context(), outbox.SinglePhase))
	run(outbox.SinglePhase)
	b.insert("3")
	batch, err := b.Begin(t.Context()) // a single-phase relay's
	must(t, err)
	_, err = batch.Exec(t.Context(), "select pg_advisory_xact_lock(hashoid('outbox_event'::regclass), 5)")
	must(t, err)
	short, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	if err := op.SwitchMode(short, outbox.TwoPhase); err == nil {
		t.Error("the mode was switched while a batch is on its way")
	}
	must(t, batch.Rollback(t.Context()))
	must(t, op.SwitchMode(t.Context(), outbox.TwoPhase))
	run(outbox.TwoPhase)
	if got := b.topicHas(); got != "1 2 3" {
		t.Error(got)
	}
	if err := op.SwitchMode(t.Context(), "other"); err == nil {
		t.Error("an unknown mode")
	}
}

// A relay that runs while the mode is switched under it sends nothing more, and ends.
func TestModeSwitchedUnderARelay(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			r, err := relay.New(b.config(mode))
			must(t, err)
			ended := make(chan error, 1)
			go func() { ended <- r.Run(t.Context()) }()
			eventually(t, "it runs", func() bool { return r.Status().Running && !r.Status().Seen.IsZero() })
			b.MustExec("update outbox_mode set mode = case mode when 'two-phase' then 'single-phase' else 'two-phase' end")
			b.insert("1")
			if err := <-ended; !errors.Is(err, relay.ErrOtherMode) {
				t.Errorf("Run() = %v", err)
			}
			if b.rows("status = 'PENDING' and claims = 0") != 1 || b.topicHas() != "" {
				t.Error("it has sent")
			}
		})
	}
}
