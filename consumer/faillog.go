package consumer

import (
	"errors"
	"log/slog"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/redact"
)

// What the runner writes about a message does not depend on the links of its chain. A failure is one line: the
// runner's, or that of middleware.Logging, which says so in Result.Logged.
const (
	lineStopped    = "einmal: a message failed, and OnFailure is Stop"
	lineAgain      = "einmal: a message failed, another attempt follows"
	lineWaits      = "einmal: a message failed, what is ordered behind it waits"
	linePanicked   = "einmal: a handler panicked or ended its goroutine, another attempt follows"
	lineDeadLetter = "einmal: wrote a dead letter"
	lineHandedOn   = "einmal: handed a message on"
)

const maxStack = 16 << 10

// errorText is the text of an error of no message for a line.
func errorText(err error) string { return redact.Text(err.Error(), maxErrorText) }

func cutText(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "?") }

// worthALine reports whether the attempt of that number has a line from Info on: the first one and then each whose
// number is twice that of the last, so that a message which fails for days does not fill the log.
func worthALine(attempt int) bool { return bits.OnesCount(uint(max(1, attempt))) == 1 }

// logFailed writes the line about a failed attempt, unless a link of the chain has. What fails because something is
// away has the lines of the outage. What the link cannot know is a line of its own, without the error that the other one
// has: that the Consumer stops, or that the message is tried again though no link has asked for that, and when.
func (cl *claim) logFailed(f *Failing, msg *Message) {
	logged := msg.Result.Logged
	stops := f.RetryAt.IsZero()
	_, asked := Delay(f.Err)
	need := needOf(f.Err)
	if need != "" && !stops {
		cl.run.outages.failed(cl.run.log, need, cl.topic.name, f.Err, cl.attrs(slog.Int64(attrOffset, f.Offset))...)
	}
	if logged && asked {
		return
	}
	attrs := cl.attrs(slog.Int64(attrOffset, f.Offset), slog.Int(attrAttempt, f.Attempts))
	if !stops {
		attrs = append(attrs, slog.Float64(attrDelay, f.delay.Seconds()),
			slog.String("retry_at", f.RetryAt.UTC().Format(time.RFC3339Nano)))
	}
	if !logged {
		attrs = append(attrs, slog.String(attrErrorType, errtype.Of(f.Err)),
			slog.String("error", msg.ErrorText(f.Err, maxErrorText)))
	}
	level, text := slog.LevelWarn, lineWaits
	panicked, isPanic := errors.AsType[*Panic](f.Err)
	switch {
	case stops:
		level, text = slog.LevelError, lineStopped
	case isPanic && !logged:
		level, text = slog.LevelError, linePanicked
		attrs = append(attrs, slog.String(attrStack, cutText(string(panicked.Stack), maxStack)))
	case asked:
		text = lineAgain
	}
	if !stops && (f.waits || need != "" || !worthALine(f.Attempts)) {
		cl.run.log.Debug(text, attrs...)
		return
	}
	cl.run.lines.write(cl.run.log, level, text, attrs)
}

// logDone writes the line about a message that was given up here, unless a link of the chain has.
func (cl *claim) logDone(msg *Message) {
	res := &msg.Result
	if !res.Skipped {
		cl.run.outages.tookEffect(cl.topic.name)
	}
	if res.Logged || !res.Dead && res.HandedOn == nil {
		return
	}
	text, err := lineDeadLetter, res.DeadErr
	if !res.Dead {
		text, err = lineHandedOn, res.HandedOn
	}
	attrs := cl.attrs(slog.Int64(attrOffset, msg.Offset), slog.Int(attrAttempt, msg.Attempt))
	if err != nil {
		attrs = append(attrs, slog.String(attrErrorType, errtype.Of(err)),
			slog.String("error", msg.ErrorText(err, maxErrorText)))
	}
	cl.run.lines.write(cl.run.log, slog.LevelWarn, text, attrs)
}

// linesPerSecond is how many lines of one text a Consumer writes about messages in a second. The others are counted.
const linesPerSecond = 10

// lineLimit bounds the lines about messages. It is safe for concurrent use.
type lineLimit struct {
	mu    sync.Mutex
	kinds map[string]*lineTally
}

type lineTally struct {
	since time.Time // start of the second
	n     int       // lines in it
	more  int       // left out since the last line
}

// write writes the line, or counts it.
func (l *lineLimit) write(log *slog.Logger, level slog.Level, text string, attrs []any) {
	now := time.Now()
	l.mu.Lock()
	t := l.kinds[text]
	if t == nil {
		if l.kinds == nil {
			l.kinds = map[string]*lineTally{}
		}
		t = &lineTally{since: now}
		l.kinds[text] = t
	}
	if now.Sub(t.since) >= time.Second {
		t.since, t.n = now, 0
	}
	if t.n >= linesPerSecond {
		t.more++
		l.mu.Unlock()
		return
	}
	t.n++
	more := t.more
	t.more = 0
	l.mu.Unlock()
	if more > 0 {
		attrs = append(attrs, slog.Int(attrSuppressed, more))
	}
	log.Log(noContext, level, text, attrs...)
}

// tick tells how many lines were left out when no other of their kind has come for a second.
func (l *lineLimit) tick(log *slog.Logger, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text, t := range l.kinds {
		if t.more > 0 && now.Sub(t.since) >= time.Second {
			log.Warn("einmal: lines about messages were left out", slog.String("like", text), slog.Int(attrSuppressed, t.more))
			t.more = 0
		}
	}
}
