package consumer

import (
	"context"
	"errors"
	"testing"
	"time"
)

// places is how many places of the workers are free.
func (w *workers) places() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.free
}

// What is fetched after the news that a partition goes takes no worker's place, and nor does what was parked or waited
// for one.
func TestNothingStartsAfterTheStop(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(Unordered, func(context.Context, *Message) error {
		t.Error("a message has started")
		return nil
	})
	cl.topic.workers = newWorkers(Topic{Order: Unordered, Workers: 2})
	cl.revoke()
	feed(cl, 0, 1, 2)
	cl.end(time.Minute)
	if n := cl.topic.workers.places(); n != 2 {
		t.Errorf("%d of 2 places are free", n)
	}
}

// What a claim held is no longer counted when it has ended, whatever became of it.
func TestLoadOfAnEndedClaim(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	for name, h := range map[string]HandlerFunc{
		"finishes": func(context.Context, *Message) error { return nil },
		"fails":    func(context.Context, *Message) error { return errors.New("no") },
		"is cut":   func(ctx context.Context, _ *Message) error { <-ctx.Done(); return ctx.Err() },
		"is stuck": func(context.Context, *Message) error { <-release; return nil },
	} {
		cl, _ := testClaim(PartitionOrder, h)
		feed(cl, 0, 1, 2)
		cl.end(0)
		if m, b := cl.run.load.messages.Load(), cl.run.load.bytes.Load(); m != 0 || b != 0 {
			t.Errorf("a handler that %s: %d messages and %d bytes are held by nobody", name, m, b)
		}
	}
	close(release)
}

// A handler that rolls back when its context is cancelled has time for it, and is not taken for stuck.
func TestTimeForARollback(t *testing.T) {
	t.Parallel()
	returned := make(chan struct{})
	cl, _ := testClaim(PartitionOrder, func(ctx context.Context, _ *Message) error {
		<-ctx.Done()
		time.Sleep(cancelGrace / 10)
		close(returned)
		return ctx.Err()
	})
	feed(cl, 0)
	cl.end(0)
	select {
	case <-returned:
	default:
		t.Error("the claim has ended before the handler")
	}
	if err := cl.run.stuckError(); err != nil || len(cl.run.stuckClaims) != 0 {
		t.Errorf("it is taken for stuck: %v", err)
	}
}

// Abort ends a drain that has time left.
func TestAbortEndsADrain(t *testing.T) {
	t.Parallel()
	cl, _ := testClaim(PartitionOrder, func(ctx context.Context, _ *Message) error {
		<-ctx.Done()
		return ctx.Err()
	})
	cl.run.abort = make(chan struct{})
	feed(cl, 0)
	ended := make(chan struct{})
	go func() { cl.end(time.Hour); close(ended) }()
	select {
	case <-ended:
		t.Fatal("it does not drain")
	case <-time.After(10 * time.Millisecond):
	}
	close(cl.run.abort)
	if !waitFor(ended, 30*time.Second) {
		t.Error("it drains although it was aborted")
	}
}

// An attempt that the end of its claim cut short has not failed: with OnFailure Stop it does not end Run.
func TestAttemptThatWasCutIsNoFailure(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, onFailure := range []OnFailure{KeepTrying, Stop} {
		tp := &topic{onFailure: onFailure}
		if f := tp.judge(ended, 0, history{}, errors.New("cut short")); f != nil {
			t.Errorf("OnFailure %v: %+v", onFailure, f)
		}
		if f := tp.judge(t.Context(), 0, history{}, errors.New("failed")); f == nil || f.Attempts != 1 ||
			f.RetryAt.IsZero() != (onFailure == Stop) {
			t.Errorf("OnFailure %v, a failure: %+v", onFailure, f)
		}
	}
	cl, _ := testClaim(PartitionOrder, func(ctx context.Context, _ *Message) error {
		<-ctx.Done()
		return ctx.Err()
	})
	cl.topic.onFailure = Stop
	cl.run.stop = func(err error) { t.Errorf("Run is stopped: %v", err) }
	feed(cl, 0)
	cl.end(0)
	if !waitFor(cl.idle, 30*time.Second) {
		t.Fatal("it does not end")
	}
}

// What has finished is marked within a second although the next message takes its time.
func TestWatchMarksBehindASlowMessage(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	cl, m := testClaim(PartitionOrder, func(_ context.Context, msg *Message) error {
		if msg.Offset == 1 {
			close(started)
			<-release
		}
		return nil
	})
	cl.settled = time.Now().Add(time.Hour) // as if it had been just before the first one finished
	feed(cl, 0, 1)
	<-started
	if got := m.all(); len(got) != 0 {
		t.Fatalf("marks %v", got)
	}
	cl.watch(cl.settled.Add(time.Second))
	if got := m.all(); len(got) != 1 || got[0] != 1 {
		t.Errorf("marks %v, want [1]", got)
	}
}
