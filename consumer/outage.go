package consumer

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/errtype"
)

// Need is something without which a Consumer cannot do its work.
type Need string

// What a Consumer can be without.
const (
	NeedDatabase    Need = "database"           // does not answer: errors of the class dedupstore.Unavailable
	NeedTables      Need = "database_structure" // answers, and lacks a table, a privilege: dedupstore.Misconfigured
	NeedBrokers     Need = "brokers"            // Kafka's client cannot reach one of them, or a partition has no leader
	NeedCoordinator Need = "coordinator"        // the group cannot be joined
	NeedCommits     Need = "commits"            // the coordinator does not take the offsets of what has finished
)

// Degraded is a need that is not met now. Messages wait for it, and none is given up for it.
type Degraded struct {
	Need      Need
	Since     time.Time
	Failures  int    // since then
	ErrorType string // of the last one, as in error.type
	Err       error  // the last one
}

// needTexts are the lines about a need: when it is not met any more, each minute that this lasts, and when it is met
// again. What the Kafka client reports about brokers has lines of its own, see brokerErrors.
var needTexts = map[Need]struct{ begins, lasts, ends string }{
	NeedDatabase: {
		"einmal: the database is away, messages wait until it is back", "einmal: the database is still away",
		"einmal: the database is back",
	},
	NeedTables: {
		"einmal: the database lacks something, messages wait until it is there", "einmal: the database still lacks something",
		"einmal: the database has what it lacked",
	},
	NeedCoordinator: {
		"einmal: joining or leaving the group failed, trying again", "einmal: the group still cannot be joined",
		"einmal: the group is joined again",
	},
	NeedCommits: {
		"einmal: offsets are not committed any more, trying on: what finishes meanwhile is delivered again after a rebalance",
		"einmal: offsets are still not committed", "einmal: no offset waits for its commit any more",
	},
	NeedBrokers: {ends: "einmal: the Kafka client reports no more errors"},
}

const (
	outageReminder = time.Minute
	outageQuiet    = 2 * time.Second // without a failure, before an outage is over
)

// outages are the needs that are not met. It is safe for concurrent use; the zero value has none.
type outages struct {
	some atomic.Bool // there is one

	mu   sync.Mutex
	open map[Need]*outage
}

type outage struct {
	Degraded
	topics map[string]bool // in which messages wait; of a database only
	cured  bool            // it was met since the last failure
	last   time.Time       // failure
	told   time.Time
	where  bool // the line had its attributes
}

// failed notes that a need is not met, for messages of topic if it is not "".
func (o *outages) failed(log *slog.Logger, need Need, topic string, err error, attrs ...any) {
	o.failedSince(log, need, topic, time.Now(), err, attrs...)
}

// failedSince is failed for a need that is not met since a time before now.
func (o *outages) failedSince(log *slog.Logger, need Need, topic string, since time.Time, err error, attrs ...any) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.open[need]
	begins := out == nil
	if begins {
		if o.open == nil {
			o.open = map[Need]*outage{}
		}
		out = &outage{Degraded: Degraded{Need: need, Since: since}, topics: map[string]bool{}, told: now}
		o.open[need] = out
		o.some.Store(true)
	}
	out.Failures++
	out.ErrorType, out.Err, out.last, out.cured = errtype.Of(err), err, now, false
	if topic != "" {
		out.topics[topic] = true
	}
	if text := needTexts[need].begins; text != "" && (begins || !out.where && len(attrs) > 0) { // the first error may not say why
		out.where = len(attrs) > 0
		log.Error(text, append(attrs, slog.String(attrErrorType, out.ErrorType), slog.String("error", errorText(err)))...)
	}
}

// met notes that a need is met.
func (o *outages) met(need Need) {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if out := o.open[need]; out != nil {
		out.cured = true
	}
}

// tookEffect notes that a message of topic has taken effect, which it cannot without its database.
func (o *outages) tookEffect(topic string) {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, need := range []Need{NeedDatabase, NeedTables} {
		if out := o.open[need]; out != nil {
			delete(out.topics, topic)
			out.cured = out.cured || len(out.topics) == 0
		}
	}
}

// tick reminds of outages and ends those that are over. fails reports whether messages of a topic still wait after a
// failure.
func (o *outages) tick(log *slog.Logger, now time.Time, fails func(topic string) bool) {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for need, out := range o.open {
		length := slog.Float64("outage_seconds", now.Sub(out.Since).Seconds())
		attrs := []any{length, slog.Int("failures", out.Failures), slog.String(attrErrorType, out.ErrorType)}
		switch {
		case out.over(now, fails):
			delete(o.open, need)
			log.Info(needTexts[need].ends, attrs...)
		case now.Sub(out.told) >= outageReminder && needTexts[need].lasts != "":
			out.told = now
			log.Error(needTexts[need].lasts, append(attrs, slog.String("error", errorText(out.Err)))...)
		}
	}
	o.some.Store(len(o.open) > 0)
}

func (out *outage) over(now time.Time, fails func(topic string) bool) bool {
	quiet := now.Sub(out.last)
	if quiet < outageQuiet {
		return false
	}
	switch {
	case out.cured:
		return true
	case out.Need == NeedBrokers, out.Need == NeedCommits: // nothing has failed for long, or others have the partitions
		return quiet > fetchErrFresh
	case out.Need == NeedCoordinator:
		return false
	}
	return !slices.ContainsFunc(slices.Collect(maps.Keys(out.topics)), fails) // they are with another member now
}

// list returns what is not met, the longest first.
func (o *outages) list() []Degraded {
	if !o.some.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Degraded
	for _, out := range o.open {
		all = append(all, out.Degraded)
	}
	slices.SortFunc(all, func(a, b Degraded) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Need, b.Need)) })
	return all
}

// needOf returns the need that err says is not met, or "".
func needOf(err error) Need {
	switch errtype.Class(err) {
	case "unavailable":
		return NeedDatabase
	case "misconfigured":
		return NeedTables
	}
	return ""
}

// brokersAway reports whether an error of Kafka's client says that a broker or a leader is away, and not something
// else.
func brokersAway(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, away := range []error{
		io.EOF, sarama.ErrOutOfBrokers, sarama.ErrNotConnected, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
		sarama.ErrBrokerNotAvailable, sarama.ErrNetworkException, sarama.ErrRequestTimedOut,
		sarama.ErrConsumerCoordinatorNotAvailable,
	} {
		if errors.Is(err, away) {
			return true
		}
	}
	return false
}

// brokersFailed notes that a broker is away.
func (r *running) brokersFailed(err error) { r.outages.failed(r.log, NeedBrokers, "", err) }

// tick writes what is due of the log. It is called about once a second.
func (r *running) tick(now time.Time) {
	r.outages.tick(r.log, now, func(topic string) bool {
		return slices.ContainsFunc(r.allClaims(), func(cl *claim) bool {
			return cl.topic.name == topic &&
				cl.status().Failing != nil
		})
	})
	r.lines.tick(r.log, now)
}
