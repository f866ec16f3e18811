package relay

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/outbox"
)

// The names of the fields are a promise: docs/status.md lists them, and einmal status reads them.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	text, err := json.Marshal(Status{
		Name: "a", Mode: outbox.TwoPhase, Running: true, Paused: true, Error: errors.New("no broker"), LastError: at,
		Errors: 2, Backlog: 3, OldestAge: 1500 * time.Millisecond,
		Blocked: 4, InFlight: 5, Estimated: true, Seen: at, Fresh: true, Acknowledged: at, Trouble: "frozen", Published: 6,
		PublishedPerSecond: 7.5, BlockedHere: 8, LeaseLost: 9, Returned: 10,
	})
	const want = `{"kind":"outbox","name":"a","mode":"two-phase","running":true,"paused":true,"last_error":"no broker","last_error_type":"*errors.errorString","last_error_at":"2026-01-02T02:04:05Z","errors":2,` +
		`"backlog":3,"oldest_seconds":1.5,"blocked":4,"in_flight":5,"estimated":true,"seen":"2026-01-02T02:04:05Z","fresh":true,"acknowledged":"2026-01-02T02:04:05Z","trouble":"frozen","published":6,"published_per_second":7.5,"blocked_here":8,"lease_lost":9,"returned":10}`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	for says, s := range map[string]Status{
		"":                    {Running: true, Seen: time.Now(), Backlog: 1e6},
		"does not run: away":  {Error: errors.New("away")},
		"the reason":          {Running: true, Seen: time.Now(), Paused: true, Trouble: "the reason"},
		"about 3 rows are":    {Running: true, Seen: time.Now(), Blocked: 3, Estimated: true},
		"does not run":        {Seen: time.Now()},
		"Kafka is away":       {Running: true, Seen: time.Now(), Paused: true},
		"not be looked at":    {Running: true},
		"2 rows are blocked:": {Running: true, Seen: time.Now(), Blocked: 2},
	} {
		if got := s.Problem(); got != says && (says == "" || !strings.Contains(got, says)) {
			t.Errorf("%+v: %q, want %q", s, got, says)
		}
	}
}
