package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// figures are what became of one group in one episode.
type figures struct {
	fault, client     string
	gapLed, gapOthers time.Duration
	redelivered       int
	oldest            time.Duration // how long before the fault a message was finished that was delivered again
	sessions          int           // that ended, of both members
	short             int           // that the hook ShortSession told, from the first join on
	owners            int           // deliveries after another member had the partition
	lost              int
	doubled, without  int // events
	note              string
}

func (f figures) String() string {
	return fmt.Sprintf("%s, %s: gap %v on what was hit, %v on others; %d delivered again (finished up to %v before), %d sessions ended (%d short ones), %d with two owners, %d lost, %d doubled, %d without effect; %s",
		f.fault, f.client, seconds(f.gapLed), seconds(f.gapOthers), f.redelivered, seconds(f.oldest), f.sessions, f.short,
		f.owners, f.lost, f.doubled, f.without, f.note)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// table is the figures of all episodes.
type table struct {
	mu   sync.Mutex
	rows []figures
}

var results table

func (r *table) add(f figures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, f)
}

// String is a Markdown table.
func (r *table) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	if len(r.rows) > 0 {
		fmt.Fprintf(&b, "\n| fault (broker.session.timeout %v) | client | gap, hit | gap, others | delivered again | sessions ended | two owners | lost | effects doubled | notes |\n|%s\n",
			current().brokerSession, strings.Repeat("---|", 10))
	}
	slices.SortStableFunc(r.rows, func(a, b figures) int { return strings.Compare(a.fault, b.fault) })
	for _, f := range r.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d | %d | %d | %d | %s |\n", f.fault, f.client, seconds(f.gapLed),
			seconds(f.gapOthers),
			f.redelivered, f.sessions, f.owners, f.lost, f.doubled, f.note)
	}
	return b.String()
}
