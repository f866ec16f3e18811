package relay

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/outbox"
)

// Problem says in a few words why the outbox needs an operator, for package status; "" if it does not.
func (s Status) Problem() string {
	switch {
	case !s.Running && s.Error != nil:
		return "the relay does not run: " + shownText(s.Error)
	case !s.Running:
		return "the relay does not run"
	case s.Trouble != "":
		return s.Trouble
	case s.Paused:
		return "Kafka is away, nothing is sent"
	case s.Seen.IsZero():
		return "the table could not be looked at yet"
	case s.Blocked > 0:
		return fmt.Sprintf("%s%d rows are blocked: each holds back its key, see einmal outbox list -state BLOCKED",
			about(s.Estimated), s.Blocked)
	}
	return ""
}

// shownText is what may be seen of an error's text.
func shownText(err error) string { return redact.Text(err.Error(), redact.MaxError) }

func about(estimated bool) string {
	if estimated {
		return "about "
	}
	return ""
}

// MarshalJSON writes the fields that docs/status.md lists.
func (s Status) MarshalJSON() ([]byte, error) {
	j := statusJSON{
		Kind: "outbox", Name: s.Name, Mode: s.Mode, Running: s.Running, Paused: s.Paused, Errors: s.Errors,
		LastErrorAt: instant(s.LastError), Backlog: s.Backlog, OldestSeconds: s.OldestAge.Seconds(), Blocked: s.Blocked,
		InFlight: s.InFlight, Seen: instant(s.Seen), Estimated: s.Estimated, Fresh: s.Fresh,
		Acknowledged: instant(s.Acknowledged), Trouble: s.Trouble, Published: s.Published,
		PublishedPerSecond: s.PublishedPerSecond, BlockedHere: s.BlockedHere, LeaseLost: s.LeaseLost, Returned: s.Returned,
	}
	if s.Error != nil {
		j.LastError, j.LastErrorType = shownText(s.Error), errtype.Of(s.Error)
	}
	return json.Marshal(j)
}

type statusJSON struct {
	Kind               string      `json:"kind"`
	Name               string      `json:"name"`
	Mode               outbox.Mode `json:"mode"`
	Running            bool        `json:"running"`
	Paused             bool        `json:"paused"`
	LastError          string      `json:"last_error,omitempty"`
	LastErrorType      string      `json:"last_error_type,omitempty"`
	LastErrorAt        *time.Time  `json:"last_error_at,omitempty"`
	Errors             int64       `json:"errors"`
	Backlog            int64       `json:"backlog"`
	OldestSeconds      float64     `json:"oldest_seconds"`
	Blocked            int64       `json:"blocked"`
	InFlight           int64       `json:"in_flight"`
	Estimated          bool        `json:"estimated"`
	Seen               *time.Time  `json:"seen"`
	Fresh              bool        `json:"fresh"`
	Acknowledged       *time.Time  `json:"acknowledged"`
	Trouble            string      `json:"trouble,omitempty"`
	Published          int64       `json:"published"`
	PublishedPerSecond float64     `json:"published_per_second"`
	BlockedHere        int64       `json:"blocked_here"`
	LeaseLost          int64       `json:"lease_lost"`
	Returned           int64       `json:"returned"`
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
