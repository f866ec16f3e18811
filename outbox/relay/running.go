package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/internal/sqlstate"
)

// running is a Relay from the start of Run to its end.
//
//	           poll: which buckets have rows?
//	dispatcher ───────────────────────────────▶ worker: a batch of some buckets ─┐
//	    ▲ wake: a worker is done, a signal, a notification, the time              │
//	    └─────────────────────────────────────────────────────────────────────────┘
//	maintenance: what Status tells of the table; sweeping; rows of relays that died
//
// While Kafka is away nothing is claimed: the dispatcher asks it from time to time.
type running struct {
	relay       *Relay
	log         *slog.Logger
	cluster     *cluster
	dispatcher  *dispatcher
	maintenance *maintenance
	blockedLog  *blockedLog

	background sync.WaitGroup
	stop       context.CancelFunc // of the background
}

func newRunning(r *Relay) *running {
	log := r.cfg.Logger.With(slog.String("relay", r.cfg.Name))
	if says := kafkaconf.OpenPassword(r.conf); says != "" {
		log.Warn("outbox: " + says)
	}
	fatal := make(chan error, 1)
	run := &running{relay: r, log: log, cluster: newCluster(r.cfg.Brokers, r.conf), blockedLog: &blockedLog{log: log}}
	run.maintenance = &maintenance{cfg: &r.cfg, table: r.table, status: &r.status, log: log, fatal: fatal}
	run.dispatcher = newDispatcher(&r.cfg, r.table, run.cluster, &r.status, log)
	run.dispatcher.wake, run.dispatcher.fatal = r.wake, fatal
	passedOver := newUnavailable() // by all workers
	for range r.cfg.Workers {
		run.dispatcher.idle = append(run.dispatcher.idle, &worker{
			cfg: &r.cfg, table: r.table, cluster: run.cluster, unavailable: passedOver,
			status: &r.status, log: log, blockedLog: run.blockedLog, stuck: run.dispatcher.stuck,
		})
	}
	return run
}

// start looks at the tables. It waits for a database that does not answer, but not for one that answers no.
func (r *running) start(ctx context.Context) error {
	for wait := newBackoff(100*time.Millisecond, 5*time.Second); ; {
		err := r.relay.table.prepare(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped
		}
		if isMisconfigured(err) {
			return err
		}
		if sqlstate.Of(err) == "25006" { // it is so while another server takes over
			err = fmt.Errorf("%w: %w", errReadOnly, err)
		}
		r.relay.status.failed(err)
		r.log.Warn("outbox: the database does not answer, or takes no writes: waiting for it", slog.Any("error", err))
		sleep(ctx, wait.next())
	}
}

// loop hands out batches until ctx is done, and waits for those in work.
func (r *running) loop(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	r.startBackground(background)
	status := &r.relay.status
	status.begun()
	status.running.Store(true)
	defer status.running.Store(false)
	defer r.dispatcher.drain()
	for ctx.Err() == nil {
		if err := r.dispatcher.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything that Run has begun, in this order: batches, helpers, connections to Kafka. The pool is the
// caller's to close.
func (r *running) close() {
	if r.stop != nil {
		r.stop()
	}
	r.background.Wait()
	r.blockedLog.flush(true)
	for _, w := range r.dispatcher.idle {
		if w.producer != nil {
			w.producer.close()
		}
	}
	r.cluster.close()
}

// startBackground starts what runs beside the batches.
func (r *running) startBackground(ctx context.Context) {
	r.background.Go(func() { r.maintenance.run(ctx) })
	r.background.Go(func() { r.watch(ctx) })
	if r.relay.cfg.Listener != nil {
		r.background.Go(func() { r.listen(ctx) })
	}
}

// listen wakes the relay by notifications. Polling goes on: they can be lost.
func (r *running) listen(ctx context.Context) {
	for wait := newBackoff(100*time.Millisecond, 10*time.Second); ctx.Err() == nil; {
		begun := time.Now()
		err := r.relay.cfg.Listener.Listen(ctx, r.relay.Wake)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > time.Minute {
			wait.reset()
		}
		r.log.Warn("outbox: notifications are not heard, polling goes on", slog.Any("error", err))
		sleep(ctx, wait.next())
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// backoff doubles from least to most, less up to a half.
type backoff struct{ least, most, now time.Duration }

func newBackoff(least, most time.Duration) *backoff { return &backoff{least: least, most: most} }

func (b *backoff) next() time.Duration {
	b.now = min(b.most, max(b.least, 2*b.now))
	return jitter(b.now)
}

func (b *backoff) reset() { b.now = 0 }

func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) } //nolint:gosec // no secret

// isMisconfigured reports whether the server has answered that something is missing or not allowed.
func isMisconfigured(err error) bool {
	if errors.Is(err, ErrOtherMode) {
		return true
	}
	switch code := sqlstate.Of(err); code {
	case "42P01", "42703", "42501", "3F000", "28P01", "28000", "3D000":
		return true
	}
	return false
}
