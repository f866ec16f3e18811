package relay_test

import (
	"strings"
	"testing"

	"github.com/einmal-go/einmal/outbox"
)

// awayLines are those of what fails while a server is away.
func (o *output) awayLines() (lines []string) {
	for line := range strings.Lines(o.text()) {
		for _, part := range []string{"does not answer, or takes no writes", "cannot look", "a batch failed", "Kafka is away, nothing",
			"nothing could be sent", "it is not known whether", "is back"} {
			if _, text, _ := strings.Cut(line, "msg=\"outbox: "); strings.Contains(text[:strings.Index(text, "\"")+1], part) {
				lines = append(lines, strings.TrimSpace(line))
				break
			}
		}
	}
	return lines
}

// wantOutage compares the lines with one that begins, and one that ends.
func (o *output) wantOutage(t *testing.T, begins []string, ends string) {
	t.Helper()
	lines := o.awayLines()
	if len(lines) != 2 {
		t.Fatalf("%d lines, want one when it begins and one when it is over:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	known := false
	for _, text := range begins {
		known = known || strings.Contains(lines[0], text)
	}
	if !known || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "error=") ||
		!strings.Contains(lines[0], "error.type=") {
		t.Errorf("it begins with %s", lines[0])
	}
	if !strings.Contains(lines[1], ends) || !strings.Contains(lines[1], "level=INFO") ||
		!strings.Contains(lines[1], "outage_seconds=") || !strings.Contains(lines[1], "failures=") {
		t.Errorf("it ends with %s", lines[1])
	}
}

// However often something fails while a server is away, the relay writes a line when that begins, and one when it is
// over.
func TestAnOutageOfTheRelayIsTwoLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault, cure func(f *faulty)
		begins      []string
		ends        string
	}{
		"database": {
			func(f *faulty) { f.database.refuse() }, func(f *faulty) { f.database.refused.Store(false) },
			[]string{"cannot look for rows", "cannot look at the table", "a batch failed"}, "outbox: the database is back",
		},
		"Kafka": {
			func(f *faulty) { f.kafka.refuse() }, func(f *faulty) { f.kafka.refused.Store(false) },
			[]string{"Kafka is away", "nothing could be sent", "it is not known whether"}, "outbox: Kafka is back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, outbox.SinglePhase)
			f.insert("1")
			eventually(t, "it does its work", func() bool { return f.rows("true") == 0 })
			failures := f.relay.Status().Errors
			c.fault(f)
			f.insert("2")
			eventually(t, "much fails", func() bool { return f.relay.Status().Errors >= failures+4 })
			c.cure(f)
			eventually(t, "it is over", func() bool { return f.rows("true") == 0 && f.log.has(c.ends) })
			f.log.wantOutage(t, c.begins, c.ends)
		})
	}
}

// A relay that starts while its database is away says so once, and once when it is there.
func TestAStartWithoutADatabaseIsTwoLines(t *testing.T) {
	t.Parallel()
	f := newFaultyDatabase(t)
	f.database.refuse()
	r, stop := run(t, f.faultyConfig(outbox.SinglePhase))
	defer stop()
	eventually(t, "much fails", func() bool { return r.Status().Errors >= 5 })
	f.database.refused.Store(false)
	eventually(t, "it is over", func() bool { return f.log.has("outbox: the database is back") })
	f.log.wantOutage(t, []string{"does not answer, or takes no writes"}, "outbox: the database is back")
}
