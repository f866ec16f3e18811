package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/names"
)

// outageLog writes about a server that is away: a line when that begins, one a minute while it lasts, and one when it
// is over. Such a server makes several things fail, each of them again and again; the lines between are at Debug. It is
// safe for concurrent use.
type outageLog struct {
	log  *slog.Logger
	back string // the line when it is over

	mu       sync.Mutex
	failing  map[string]bool // by line; nil without an outage
	since    time.Time
	last     time.Time // failure
	told     time.Time
	failures int
}

const (
	outageReminder = time.Minute
	outageQuiet    = 2 * time.Second // without a failure, before an outage is over
)

// The lines of what fails while a server is away.
const (
	lineStart   = "outbox: the database does not answer, or takes no writes: waiting for it"
	linePoll    = "outbox: cannot look for rows"
	lineLook    = "outbox: cannot look at the table"
	lineBatch   = "outbox: a batch failed in the database; it is repeated"
	lineAway    = "outbox: Kafka is away, nothing is claimed until it is back"
	lineUnsent  = "outbox: nothing could be sent; it is tried again"
	lineUnclear = "outbox: it is not known whether Kafka has what was sent; it is sent again, in a way that it knows"
	lineDeaf    = "outbox: notifications are not heard, polling goes on"
)

// failed notes that what the line says has failed.
func (o *outageLog) failed(line string, err error, attrs ...any) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	begins := o.failing == nil
	if begins {
		o.failing, o.since, o.failures, o.told = map[string]bool{}, now, 0, now
	}
	o.failing[line], o.last = true, now
	o.failures++
	attrs = append(attrs, slog.String("error", shownText(err)), slog.String(string(names.ErrorType), errtype.Of(err)))
	level := slog.LevelDebug
	if reminds := now.Sub(o.told) >= outageReminder; begins || reminds {
		level, o.told = slog.LevelWarn, now
		if reminds {
			attrs = append(attrs, o.length(now)...)
		}
	}
	o.log.Log(context.Background(), level, line, attrs...)
}

func (o *outageLog) length(now time.Time) []any {
	return []any{slog.Float64("outage_seconds", now.Sub(o.since).Seconds()), slog.Int("failures", o.failures)}
}

// works notes that what the lines say does not fail any more.
func (o *outageLog) works(lines ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, line := range lines {
		delete(o.failing, line)
	}
}

// tick ends the outage when nothing fails any more, and has not for a while: else what works now and then would be two
// lines each time.
func (o *outageLog) tick(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing == nil || len(o.failing) > 0 || now.Sub(o.last) < outageQuiet {
		return
	}
	o.failing = nil
	o.log.Info(o.back, o.length(now)...)
}

// outageLogs are those of a relay.
type outageLogs struct{ database, kafka, notifications *outageLog }

func newOutageLogs(log *slog.Logger) *outageLogs {
	return &outageLogs{
		database:      &outageLog{log: log, back: "outbox: the database is back"},
		kafka:         &outageLog{log: log, back: "outbox: Kafka is back"},
		notifications: &outageLog{log: log, back: "outbox: notifications are heard again"},
	}
}

func (o *outageLogs) tick(now time.Time) {
	for _, one := range []*outageLog{o.database, o.kafka, o.notifications} {
		one.tick(now)
	}
}
