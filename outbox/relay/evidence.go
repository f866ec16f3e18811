package relay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// look is what a look at the table has found.
type look struct {
	at                         time.Time
	backlog, blocked, inFlight int64
	estimated                  bool
	oldest                     time.Duration
	head                       int64 // the number of the first row that waits or is claimed, 0 if there is none
}

func (l *look) large() bool { return max(l.backlog, l.blocked, l.inFlight) > countLimit }

// fullCount is the last look with which all rows were counted.
type fullCount struct {
	look
	again time.Time
	sent  int64 // by this relay since
}

// estimate replaces the numbers that are beyond the limit.
func (f *fullCount) estimate(l *look) {
	l.estimated = true
	for _, n := range []struct {
		now  *int64
		then int64
	}{{&l.backlog, f.backlog - f.sent}, {&l.blocked, f.blocked}, {&l.inFlight, f.inFlight}} {
		if *n.now > countLimit {
			*n.now = max(*n.now, n.then)
		}
	}
}

// evidence is what shows that a relay does its work. That no error was seen is none: a server that is frozen gives no
// errors.
type evidence struct {
	seen    time.Time // the table
	failure error     // of the last look at it, nil if it succeeded

	waiting bool      // rows waited then
	head    int64     // the first of them
	since   time.Time // since when nothing has shown that rows are sent: Kafka's answers here, the table for other relays
}

// patience is how long evidence is fresh. It is twice the time between two looks.
const patience = 2 * lookInterval

func (e *evidence) saw(l look) {
	waited, head := e.waiting, e.head
	e.seen, e.waiting, e.head = l.at, l.head != 0, l.head
	// not before the last look, unless its transaction was long: then it could not be sent before
	written := l.at.Add(-l.oldest)
	switch {
	case !e.waiting, waited && head != l.head:
		e.since = l.at
	case !waited && written.After(e.since):
		e.since = written
	}
}

func (e *evidence) stale(now time.Time) bool { return e.seen.IsZero() || now.Sub(e.seen) > patience }

// trouble says what there is no evidence of, and why.
func (e *evidence) trouble(now time.Time, s *Status) string {
	switch {
	case e.seen.IsZero() && now.Sub(e.since) <= patience:
		return ""
	case e.seen.IsZero():
		return "the table could not be looked at yet: " + causeOf(e.failure, "the database has not answered")
	case e.stale(now):
		return fmt.Sprintf("the table was last read %s ago: %s",
			age(now.Sub(e.seen)), causeOf(e.failure, "the database does not answer"))
	case s.Paused:
		return "Kafka is away, nothing is sent: " + causeOf(s.Error, "it does not answer")
	case e.waiting && now.Sub(e.since) > patience && s.Blocked == 0:
		var cause error
		if s.LastError.After(e.since) {
			cause = s.Error
		}
		return fmt.Sprintf("events wait, and none was sent for %s: %s", age(now.Sub(e.since)),
			causeOf(cause, "Kafka has not answered, or another relay or a session holds the first of them"))
	}
	return ""
}

func causeOf(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return cmp.Or(shownText(err), otherwise)
}

func age(d time.Duration) time.Duration { return d.Round(time.Second) }

// watch logs when trouble begins and when it is over.
func (r *running) watch(ctx context.Context) {
	var since time.Time
	for ctx.Err() == nil {
		switch trouble := r.relay.Status().Trouble; {
		case trouble != "" && since.IsZero():
			since = time.Now()
			r.log.Error("outbox: the relay does not do its work", slog.String("trouble", trouble))
		case trouble == "" && !since.IsZero():
			r.log.Info("outbox: the relay does its work again",
				slog.Float64("after_seconds", time.Since(since).Seconds()))
			since = time.Time{}
		}
		r.blockedLog.flush(false)
		r.outages.tick(time.Now())
		sleep(ctx, time.Second)
	}
}
