package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/outbox"
)

// Status is what a Relay knows of itself and of the table, for a probe, a page or metrics. Counters begin at 0 with
// the Relay.
type Status struct {
	Name    string
	Mode    outbox.Mode
	Running bool

	// Paused reports that Kafka is away: nothing is claimed until it answers.
	Paused bool
	// Error is the last error that was no row's own, at LastError; nil if there was none. Errors counts them.
	Error     error
	LastError time.Time
	Errors    int64

	// Backlog counts the rows that wait; OldestAge is the age of the oldest that waits or is claimed. Blocked are
	// rows that can never be sent as they are, each of which blocks its key; InFlight are claimed by two-phase
	// relays. All four are of the whole table, as of Seen, which is zero if it could not be looked at yet. It is
	// looked at every 5 seconds: when Fresh is false, they are what they were.
	//
	// The counts are exact as long as Estimated is false. Above 10,000 they are counted now and then, and Estimated
	// is true between: they are those of the last count then, without what this Relay has sent since.
	Backlog   int64
	OldestAge time.Duration
	Blocked   int64
	InFlight  int64
	Estimated bool
	Seen      time.Time
	Fresh     bool

	// Acknowledged is when Kafka last acknowledged something that this Relay has sent, zero if it has not yet.
	Acknowledged time.Time

	// Trouble says why the relay does not do its work, and with which cause: there is no fresh evidence that it does.
	// The table was not read for 10 seconds, or rows wait, and for 10 seconds Kafka has acknowledged none of them,
	// nor has another relay sent any. "" if there is such evidence. It is logged when it begins and when it ends.
	Trouble string

	// Published counts the rows that this Relay has sent, and marked or deleted; PublishedPerSecond is over the last
	// 10 seconds or so. BlockedHere counts those that it found to be unsendable.
	Published          int64
	PublishedPerSecond float64
	BlockedHere        int64

	// LeaseLost counts rows that were sent and not marked, because another relay had taken them back: they are sent
	// twice. Returned counts rows that were taken back from relays that died.
	LeaseLost int64
	Returned  int64
}

// Status returns a snapshot. It does no I/O: what it says of the table is up to some seconds old. It is safe for
// concurrent use.
func (r *Relay) Status() Status {
	s := r.status.snapshot()
	s.Name, s.Mode = r.cfg.Name, r.cfg.Mode
	return s
}

// statusKeeper is safe for concurrent use.
type statusKeeper struct {
	running atomic.Bool

	mu    sync.Mutex
	now   Status
	proof evidence
	full  fullCount
	rates []mark
	wide  map[int64]int64 // by bucket: how much further to look, because of blocked keys
}

// mark is a number of published rows at a time.
type mark struct {
	at time.Time
	n  int64
}

const rateWindow = 10 * time.Second

func (k *statusKeeper) snapshot() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.now
	s.Running = k.running.Load()
	k.markRate(time.Now())
	now := time.Now()
	s.Fresh = s.Running && !k.proof.stale(now)
	if s.Running {
		s.Trouble = k.proof.trouble(now, &s)
	}
	if first := k.rates[0]; time.Since(first.at) > 0 {
		s.PublishedPerSecond = float64(s.Published-first.n) / time.Since(first.at).Seconds()
	}
	return s
}

// markRate notes the count at most once a second, and forgets what is older than the window.
func (k *statusKeeper) markRate(now time.Time) {
	for len(k.rates) > 1 && now.Sub(k.rates[1].at) >= rateWindow {
		k.rates = k.rates[1:]
	}
	if n := len(k.rates); n == 0 || now.Sub(k.rates[n-1].at) >= time.Second {
		k.rates = append(k.rates, mark{now, k.now.Published})
	}
}

func (k *statusKeeper) failed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Error, k.now.LastError = err, time.Now()
	k.now.Errors++
}

func (k *statusKeeper) pausedBy(err error) {
	k.failed(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Paused = true
}

func (k *statusKeeper) resumed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Paused = false
}

func (k *statusKeeper) sent(rows []*row, blocked int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.markRate(time.Now())
	k.now.Published += int64(len(rows))
	k.full.sent += int64(len(rows))
	k.now.BlockedHere += int64(blocked)
}

func (k *statusKeeper) lost(n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.LeaseLost += n
}

func (k *statusKeeper) returned(n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Returned += n
}

func (k *statusKeeper) saw(l look) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Backlog, k.now.Blocked, k.now.InFlight, k.now.Estimated = l.backlog, l.blocked, l.inFlight, l.estimated
	k.now.OldestAge, k.now.Seen = l.oldest, l.at
	k.proof.saw(l)
}

// begun notes the start of Run, looked the end of a look at the table, acknowledged an answer of Kafka.
func (k *statusKeeper) begun() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.proof.since = time.Now()
}

func (k *statusKeeper) looked(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.proof.failure = err
}

func (k *statusKeeper) acknowledged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now.Acknowledged = time.Now()
	k.proof.since = k.now.Acknowledged
}

// countAgain reports whether it is time to count all rows; counted notes the outcome, and estimate makes another from
// that.
func (k *statusKeeper) countAgain() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !time.Now().Before(k.full.again)
}

func (k *statusKeeper) counted(l *look, all bool, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full.again = time.Now().Add(max(time.Minute, 100*took))
	if all {
		k.full.look, k.full.sent = *l, 0
		return
	}
	k.full.estimate(l)
}

func (k *statusKeeper) estimate(l *look) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full.estimate(l)
}

// wider is the factor by which to look further into a bucket; widen sets it for the next time.
func (k *statusKeeper) wider(bucket int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(1, k.wide[bucket])
}

func (k *statusKeeper) widen(bucket int64, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !more {
		delete(k.wide, bucket)
		return
	}
	if k.wide == nil {
		k.wide = map[int64]int64{}
	}
	k.wide[bucket] = min(maxLook, 4*max(1, k.wide[bucket]))
}
