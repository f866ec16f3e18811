package relay

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An outage is over when nothing fails any more and has not for a while, not when one of several things succeeds. Each
// minute of it is a line.
func TestOutageLogByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		o := newOutageLogs(slog.New(slog.NewTextHandler(&text, nil))).database
		says := func(step string, want ...string) {
			t.Helper()
			got := text.String()
			text.Reset()
			if strings.Count(got, "\n") > 1 || (got == "") != (len(want) == 0) {
				t.Errorf("%s: %q, want %q", step, got, want)
			}
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("%s: %q lacks %q", step, got, part)
				}
			}
		}
		away := errors.New("refused")
		o.tick(time.Now())
		says("nothing has failed")
		o.failed(linePoll, away)
		says("it begins", "level=WARN", linePoll, "error=refused", "error.type=")
		for range 59 {
			time.Sleep(time.Second)
			o.failed(linePoll, away)
			o.failed(lineLook, away)
			o.tick(time.Now())
		}
		says("it goes on")
		time.Sleep(time.Second)
		o.failed(lineLook, away)
		says("after a minute", "level=WARN", lineLook, "outage_seconds=60", "failures=120")
		o.works(linePoll)
		time.Sleep(time.Minute)
		o.tick(time.Now())
		says("the other thing fails")
		o.failed(linePoll, away)
		says("after two minutes", linePoll, "outage_seconds=120")
		o.works(linePoll, lineLook)
		time.Sleep(outageQuiet - time.Second)
		o.tick(time.Now())
		says("it may come back")
		time.Sleep(time.Second)
		o.tick(time.Now())
		says("it is over", "level=INFO", "the database is back", "outage_seconds=122", "failures=121")
		o.tick(time.Now())
		says("nothing fails")
		o.failed(lineBatch, away)
		says("it begins anew", "level=WARN", lineBatch)
	})
}
