package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// dispatcher decides when to look for rows, and hands buckets to workers.
type dispatcher struct {
	cfg     *Config
	table   *table
	cluster *cluster
	status  *statusKeeper
	outages *outageLogs

	wake    <-chan struct{} // there may be rows
	fatal   <-chan error    // why Run must end
	unclear chan error      // why a worker waits for Kafka, now and then
	done    chan result     // of workers
	idle    []*worker
	busy    map[int64]bool // buckets in work

	nextPoll time.Time
	parking  parking
	interval *backoff  // between polls
	paused   *backoff  // while Kafka is away, or may be; nil if it is not
	asked    time.Time // when Kafka was asked last whether it is there, because a worker waits for it
	trouble  *backoff  // between batches of which nothing could be sent
	database *backoff  // while the database does not answer
}

func newDispatcher(cfg *Config, t *table, c *cluster, status *statusKeeper, outages *outageLogs) *dispatcher {
	return &dispatcher{
		cfg: cfg, table: t, cluster: c, status: status, outages: outages,
		unclear: make(chan error, 1), done: make(chan result), busy: map[int64]bool{},
		parking: parking{}, interval: newBackoff(cfg.PollInterval, cfg.IdleInterval),
		paused:   newBackoff(250*time.Millisecond, 10*time.Second), // until the brokers have answered once
		trouble:  newBackoff(100*time.Millisecond, 10*time.Second),
		database: newBackoff(100*time.Millisecond, 5*time.Second),
	}
}

// crowded is how long a relay waits whose buckets all others have.
const crowded = 10 * time.Millisecond

// round does what there is to do now, then waits.
func (d *dispatcher) round(ctx context.Context) error {
	if d.ready() && !time.Now().Before(d.nextPoll) {
		d.work(ctx)
	}
	var due <-chan time.Time
	if d.ready() {
		timer := time.NewTimer(time.Until(d.nextPoll))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case res := <-d.done:
		d.finished(res)
	case err := <-d.unclear:
		d.ask(err)
	case <-d.wake:
		d.woken()
	case err := <-d.fatal:
		return err
	case <-due:
	case <-ctx.Done():
	}
	return nil
}

// ready reports whether there is something to do when the time has come.
func (d *dispatcher) ready() bool { return len(d.idle) > 0 || d.paused != nil }

// askAgain is how long the answer of Kafka is taken for true that it is there, while a worker waits for it.
const askAgain = 2 * time.Second

// ask has Kafka asked whether it is there: a worker waits for it.
func (d *dispatcher) ask(err error) {
	if d.paused != nil || time.Since(d.asked) < askAgain {
		return
	}
	d.outages.kafka.failed(lineUnclear, err)
	d.asked, d.paused, d.nextPoll = time.Now(), newBackoff(250*time.Millisecond, 10*time.Second), time.Time{}
}

// woken polls at once, unless something is known to be away.
func (d *dispatcher) woken() {
	if d.paused == nil && d.database.now == 0 {
		d.interval.reset()
		d.nextPoll = time.Time{}
	}
}

// work hands out what a poll finds.
func (d *dispatcher) work(ctx context.Context) {
	if d.paused != nil && !d.resume(ctx) || len(d.idle) == 0 {
		return
	}
	found, err := d.poll(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		d.status.failed(err)
		d.nextPoll = time.Now().Add(d.database.next())
		d.outages.database.failed(linePoll, err)
		return
	}
	d.database.reset()
	d.outages.database.works(linePoll)
	if len(found) == 0 && len(d.busy) == 0 { // nothing is left that could fail
		d.outages.database.works(lineBatch)
		d.outages.kafka.works(lineUnsent, lineUnclear)
	}
	d.nextPoll = time.Now().Add(d.interval.next())
	d.handOut(ctx, found)
}

// resume asks Kafka, and reports whether it is back.
func (d *dispatcher) resume(ctx context.Context) bool {
	err := d.cluster.reach(ctx)
	if err == nil {
		d.paused = nil
		d.status.resumed()
		d.outages.kafka.works(lineAway)
		return true
	}
	if ctx.Err() == nil {
		d.pause(err)
	}
	return false
}

func (d *dispatcher) pause(err error) {
	wait := d.paused.next()
	d.nextPoll = time.Now().Add(wait)
	d.status.pausedBy(err)
	d.outages.kafka.failed(lineAway, err, slog.Float64("again_in_seconds", wait.Seconds()))
}

// poll returns the buckets that have rows and are not in work here, in random order.
func (d *dispatcher) poll(ctx context.Context) (found []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	buckets, lasts := d.parking.lasts()
	err = d.table.inTx(ctx, func(ctx context.Context, tx outbox.Tx) error {
		args := []any{outboxsql.BigintArray(buckets), outboxsql.BigintArray(lasts)}
		return tx.Query(ctx, d.table.sql.pending, args, func(scan func(...any) error) error {
			var bucket, blocked int64
			var last *int64
			var sum *string
			var fresh bool
			if err := scan(&bucket, &last, &blocked, &sum, &fresh); err != nil {
				return err
			}
			now := bucketFacts{last: deref(last), blocked: blocked, sum: deref(sum)}
			if !d.busy[bucket] && d.parking.open(bucket, now, fresh) {
				found = append(found, bucket)
			}
			return nil
		})
	})
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] }) //nolint:gosec // no secret
	return found, err
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// handOut divides the buckets among the idle workers, and leaves some to other relays.
func (d *dispatcher) handOut(ctx context.Context, found []int64) {
	each := min(8, max(4, (len(found)+4*d.cfg.Workers-1)/(4*d.cfg.Workers)))
	for len(found) > 0 && len(d.idle) > 0 {
		n := min(each, len(found))
		buckets := found[:n:n]
		found = found[n:]
		w := d.idle[len(d.idle)-1]
		d.idle = d.idle[:len(d.idle)-1]
		for _, b := range buckets {
			d.busy[b] = true
		}
		go func() { d.done <- w.batch(ctx, buckets) }()
	}
}

// finished takes back a worker and decides when to look again.
func (d *dispatcher) finished(res result) {
	d.idle = append(d.idle, res.worker)
	for _, b := range res.buckets {
		delete(d.busy, b)
	}
	if res.err == nil {
		d.parking.looked(res.locked, res.barren, res.took)
		d.outages.database.works(lineBatch)
	}
	if res.kafka == nil && res.done > 0 {
		d.outages.kafka.works(lineUnsent, lineUnclear)
	}
	switch {
	case res.err != nil:
		d.status.failed(res.err)
		d.nextPoll = time.Now().Add(d.database.next())
		d.outages.database.failed(lineBatch, res.err)
	case res.kafka != nil: // it is asked whether it is there at all before anything else is claimed
		d.outages.kafka.failed(lineUnsent, res.kafka)
		if d.paused == nil {
			d.paused = newBackoff(250*time.Millisecond, 10*time.Second)
			d.nextPoll = time.Now().Add(d.trouble.next())
		}
	case d.paused != nil: // another worker has seen that
	case res.done > 0 || res.full:
		d.interval.reset()
		d.trouble.reset()
		d.nextPoll = time.Time{}
	case len(res.locked) == 0:
		d.nextPoll = time.Now().Add(jitter(crowded))
	}
}

// stuck notes that a worker waits for Kafka to make an outcome known.
func (d *dispatcher) stuck(err error) {
	d.status.failed(err)
	select {
	case d.unclear <- err:
	default:
	}
}

// drain waits for the workers.
func (d *dispatcher) drain() {
	for len(d.idle) < d.cfg.Workers {
		res := <-d.done
		d.idle = append(d.idle, res.worker)
	}
}
