package outbox

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
//
// While Kafka is away nothing is claimed: the dispatcher asks it from time to time.
type running struct {
	*Relay
	log     *slog.Logger
	cluster *cluster
	holds   holds

	blockedLog blockedLog
	unclear    chan error  // why a worker waits for Kafka, now and then
	done       chan result // of workers
	idle       []*worker
	busy       map[int64]bool // buckets in work

	background sync.WaitGroup
	stop       context.CancelFunc // of the background
	fatal      chan error
}

// result is what a worker says about a batch.
type result struct {
	worker  *worker
	buckets []int64
	locked  []int64       // buckets
	barren  []int64       // of these, buckets of whose rows none can be sent
	took    time.Duration // to look for rows
	done    int           // rows that need not be looked at again: sent or blocked
	full    bool          // there may be more
	kafka   error         // if nothing could be sent
	err     error         // of the database
}

func newRunning(r *Relay) *running {
	log := r.cfg.Logger.With(slog.String("relay", r.cfg.Name))
	run := &running{
		Relay: r, log: log, blockedLog: blockedLog{log: log}, cluster: newCluster(r.cfg.Brokers, r.conf),
		holds: holds{until: map[place]hold{}}, done: make(chan result), busy: map[int64]bool{}, unclear: make(chan error, 1), fatal: make(chan error, 1),
	}
	if says := kafkaconf.OpenPassword(r.conf); says != "" {
		log.Warn("outbox: " + says)
	}
	for range r.cfg.Workers {
		run.idle = append(run.idle, &worker{running: run})
	}
	return run
}

// start looks at the tables. It waits for a database that does not answer, but not for one that answers no.
func (r *running) start(ctx context.Context) error {
	for wait := newBackoff(100*time.Millisecond, 5*time.Second); ; {
		err := r.prepare(ctx)
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
		r.status.failed(err)
		r.log.Warn("outbox: the database does not answer, or takes no writes: waiting for it", slog.Any("error", err))
		sleep(ctx, wait.next())
	}
}

// prepare declares the mode, and checks it.
func (r *running) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	return r.cfg.Database.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, r.sql.declare); err != nil {
			return r.explained(err)
		}
		if r.cfg.Mode == TwoPhase {
			if _, err := tx.Exec(ctx, r.sql.seed); err != nil {
				return r.explained(err)
			}
		}
		for _, sql := range r.sql.rights {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return r.explained(err)
			}
		}
		return r.checkMode(ctx, tx)
	})
}

func (r *running) checkMode(ctx context.Context, tx Tx) error {
	var mode string
	err := tx.Query(ctx, r.sql.mode, nil, func(scan func(...any) error) error { return scan(&mode) })
	switch {
	case err != nil:
		return err
	case mode != string(r.cfg.Mode):
		return fmt.Errorf("%w: it is %s, this relay is %s: stop all relays and call SwitchMode, or set Config.Mode", ErrOtherMode, mode, r.cfg.Mode)
	}
	return nil
}

// loop hands out batches until ctx is done, and waits for those in work.
func (r *running) loop(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	r.startBackground(background)
	r.status.begun()
	r.status.running.Store(true)
	defer r.status.running.Store(false)
	d := newDispatcher(r)
	for ctx.Err() == nil {
		if err := d.round(ctx); err != nil {
			r.drain()
			return err
		}
	}
	r.drain()
	return nil
}

// stuck notes that a worker waits for Kafka to make an outcome known.
func (r *running) stuck(err error) {
	r.status.failed(err)
	select {
	case r.unclear <- err:
	default:
	}
}

// drain waits for the workers.
func (r *running) drain() {
	for len(r.idle) < r.cfg.Workers {
		res := <-r.done
		r.idle = append(r.idle, res.worker)
	}
}

// close ends everything that Run has begun, in this order: batches, helpers, connections to Kafka. The pool is the caller's to close.
func (r *running) close() {
	if r.stop != nil {
		r.stop()
	}
	r.background.Wait()
	r.blockedLog.flush(true)
	for _, w := range r.idle {
		if w.producer != nil {
			w.producer.close()
		}
	}
	r.cluster.close()
}

// startBackground starts what runs beside the batches.
func (r *running) startBackground(ctx context.Context) {
	r.background.Go(func() { r.keepHouse(ctx) })
	r.background.Go(func() { r.watch(ctx) })
	if r.cfg.Listener != nil {
		r.background.Go(func() { r.listen(ctx) })
	}
}

// listen wakes the relay by notifications. Polling goes on: they can be lost.
func (r *running) listen(ctx context.Context) {
	for wait := newBackoff(100*time.Millisecond, 10*time.Second); ctx.Err() == nil; {
		begun := time.Now()
		err := r.cfg.Listener.Listen(ctx, r.Wake)
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

// explained adds what to do about a table that is missing.
func (r *running) explained(err error) error {
	switch sqlstate.Of(err) {
	case "42P01", "42703", "3F000":
		return fmt.Errorf("%w: run the SQL of schema.Postgres.SQL(cfg, schema.Outbox)", err)
	case "42501":
		return fmt.Errorf("%w: GRANT SELECT, INSERT, UPDATE, DELETE ON %s, %s, %s TO the relay's role", err, r.tables.event, r.tables.lease, r.tables.mode)
	}
	return err
}
