package janitor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
)

// Problem says in a few words which table could not be swept the last time, for package status; "" if all could.
func (s Status) Problem() string {
	for i := range s.Tables {
		if last := &s.Tables[i].Last; last.Err != nil {
			return fmt.Sprintf("the last sweep of %s failed: %s", s.Tables[i].Table,
				redact.Text(last.Err.Error(), redact.MaxError))
		}
	}
	return ""
}

// MarshalJSON writes the fields that docs/status.md lists.
func (s Status) MarshalJSON() ([]byte, error) {
	j := statusJSON{Kind: "janitor", Sweeping: s.Sweeping, Tables: []tableJSON{}}
	for i := range s.Tables {
		j.Tables = append(j.Tables, s.Tables[i].json())
	}
	return json.Marshal(j)
}

type statusJSON struct {
	Kind     string      `json:"kind"`
	Sweeping bool        `json:"sweeping"`
	Tables   []tableJSON `json:"tables"`
}

type tableJSON struct {
	Table    string `json:"table"`
	Sweeps   int64  `json:"sweeps"`
	Busy     int64  `json:"busy"`
	Failures int64  `json:"failures"`
	Deleted  int64  `json:"deleted"`
	Batches  int64  `json:"batches"`
	Created  int64  `json:"created"`
	Dropped  int64  `json:"dropped"`

	LastStart   *time.Time `json:"last_start"` // null, as all of the last sweep, before there was one
	LastSeconds *float64   `json:"last_seconds"`
	LastDeleted *int64     `json:"last_deleted"`
	LastStopped bool       `json:"last_stopped"`
	LastError   string     `json:"last_error,omitempty"`
}

func (s *TableStatus) json() tableJSON {
	j := tableJSON{
		Table: s.Table, Sweeps: s.Sweeps, Busy: s.Busy, Failures: s.Failures, Deleted: s.Deleted, Batches: s.Batches,
		Created: s.Created, Dropped: s.Dropped,
	}
	if s.Last.Table == "" {
		return j
	}
	j.LastStart, j.LastSeconds, j.LastDeleted, j.LastStopped = new(s.Last.Start.UTC()), new(s.Last.Duration.Seconds()),
		new(s.Last.Deleted), s.Last.Stopped
	if s.Last.Err != nil {
		j.LastError = redact.Text(s.Last.Err.Error(), redact.MaxError)
	}
	return j
}
