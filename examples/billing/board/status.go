package board

import (
	"fmt"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/outbox"
)

// Consumer shows the partitions that a consumer holds.
func Consumer(s consumer.Status) Table {
	t := Table{
		Title: "Consumer, " + string(s.Phase),
		Head:  []string{"topic", "partition", "lag", "held", "running", "parked", "next offset", "oldest open", "attempts failed", "failing"},
	}
	for _, p := range s.Partitions {
		failing := ""
		if p.Failing != nil {
			failing = fmt.Sprintf("offset %d", p.Failing.Offset)
		}
		t.Rows = append(t.Rows, []string{
			p.Topic, strconv.Itoa(int(p.Partition)), orUnknown(p.Lag), strconv.Itoa(p.Held), strconv.Itoa(p.Running), strconv.Itoa(p.Parked),
			orUnknown(p.Next), age(p.OldestSince), strconv.Itoa(p.OldestAttempts), failing,
		})
	}
	return t
}

// Relay shows an outbox, as its relay sees it.
func Relay(s outbox.Status) Table {
	failed := ""
	if s.Error != nil {
		failed = age(s.LastError) + " ago"
	}
	return Table{
		Title: "Outbox, " + string(s.Mode),
		Head:  []string{"backlog", "oldest", "blocked", "published", "per second", "paused", "errors", "last error"},
		Rows: [][]string{{
			strconv.FormatInt(s.Backlog, 10), s.OldestAge.Round(time.Millisecond).String(), strconv.FormatInt(s.Blocked, 10),
			strconv.FormatInt(s.Published, 10), strconv.FormatFloat(s.PublishedPerSecond, 'f', 1, 64), yes(s.Paused),
			strconv.FormatInt(s.Errors, 10), failed,
		}},
	}
}

func orUnknown(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return strconv.FormatInt(n, 10)
}

func age(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return time.Since(since).Round(time.Millisecond).String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
