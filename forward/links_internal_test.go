package forward

import (
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// When a message is due says its header, within the delay after it was written; what is no time is no header.
func TestDueOfAStage(t *testing.T) {
	t.Parallel()
	written := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := stage{topic: "orders.retry.10m", delay: 10 * time.Minute}
	at := func(d time.Duration) string { return written.Add(d).Format(time.RFC3339Nano) }
	for name, test := range map[string]struct {
		timestamp time.Time
		header    string
		want      time.Time
	}{
		"within":              {written, at(9 * time.Minute), written.Add(9 * time.Minute)},
		"at once":             {written, at(-time.Hour), written.Add(-time.Hour)},
		"beyond":              {written, at(11 * time.Minute), written.Add(10 * time.Minute)},
		"no time":             {written, "soon", written.Add(10 * time.Minute)},
		"none":                {written, "", written.Add(10 * time.Minute)},
		"no timestamp":        {time.Time{}, at(time.Hour), written.Add(time.Hour)},
		"nothing is known":    {time.Time{}, "", time.Time{}},
		"nothing can be read": {time.Time{}, "soon", time.Time{}},
	} {
		msg := &consumer.Message{Timestamp: test.timestamp,
			Headers: []consumer.Header{{Key: RetryDueHeader, Value: []byte(test.header)}}}
		if got := s.due(msg); !got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Attempts before are a positive number, or not known.
func TestEarlierOfAStage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"7": 7, "0": 0, "-3": 0, "x": 0, "": 0, "99999999999": 0} {
		msg := &consumer.Message{Headers: []consumer.Header{{Key: RetryAttemptsHeader, Value: []byte(text)},
			{Key: RetryFirstAttemptHeader, Value: []byte("2026-01-02T03:04:05Z")}}}
		if e := earlier(msg); e.Attempts != want || e.FirstAttempt.Year() != 2026 {
			t.Errorf("%q: %+v", text, e)
		}
	}
}

// An empty id in the header is none: the event has that by which its consumer knows it.
func TestEventWithAnEmptyID(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{"": "known", "given": "given"} {
		msg := &consumer.Message{EventID: "known", Headers: []consumer.Header{{Key: "event-id", Value: []byte(header)}}}
		if e := eventOf(msg, "t", func(string) bool { return false }); e.ID != want || len(e.Headers) != 0 {
			t.Errorf("%q: %+v", header, e)
		}
	}
}
