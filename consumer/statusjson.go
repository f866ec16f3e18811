package consumer

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/redact"
)

// Problem is NotReady, or else what the Consumer is without (Degraded), for package status.
func (s Status) Problem() string { return cmp.Or(s.NotReady, s.degraded()) }

// MarshalJSON writes the fields that docs/status.md lists. Texts of the handlers' errors are left out, since they may
// repeat a part of a message: errors have a type there, and their texts are in the log.
func (s Status) MarshalJSON() ([]byte, error) {
	now := time.Now()
	j := statusJSON{
		Kind: "consumer", Group: s.Group, Phase: s.Phase, Ready: s.NotReady == "", NotReady: s.NotReady,
		Partitions: []partitionJSON{}, Totals: s.Totals.json(),
	}
	for _, p := range s.Partitions {
		j.Partitions = append(j.Partitions, p.json(now))
	}
	for _, d := range s.Degraded {
		j.Degraded = append(j.Degraded, degradedJSON{d.Need, d.Since.UTC(), d.Failures, d.ErrorType})
	}
	for _, f := range s.Failing {
		j.Failing = append(j.Failing, failingMessageJSON{f.Topic, f.Partition, f.json()})
	}
	for _, p := range s.Pauses {
		j.Pauses = append(j.Pauses, *p.json())
	}
	for _, u := range s.Unread {
		j.Unread = append(j.Unread, unreadJSON{u.Topic, known(int64(u.Partition)), u.Since.UTC(), u.Reason})
	}
	return json.Marshal(j)
}

type statusJSON struct {
	Kind       string          `json:"kind"`
	Group      string          `json:"group"`
	Phase      Phase           `json:"phase"`
	Ready      bool            `json:"ready"`
	NotReady   string          `json:"not_ready,omitempty"`
	Partitions []partitionJSON `json:"partitions"`
	Unread     []unreadJSON    `json:"unread,omitempty"`
	Degraded   []degradedJSON  `json:"degraded,omitempty"`
	Totals     totalsJSON      `json:"totals"`
	Pauses     []pauseJSON     `json:"pauses,omitempty"`

	Failing []failingMessageJSON `json:"failing,omitempty"`
}

// failingMessageJSON is a FailingMessage.
type failingMessageJSON struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	failingJSON
}

// pauseJSON is a Pause. Its partition is null if it is the whole topic.
type pauseJSON struct {
	Topic     string     `json:"topic"`
	Partition *int64     `json:"partition"`
	By        string     `json:"by"`
	Why       string     `json:"why"`
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until"`
}

func (p *Pause) json() *pauseJSON {
	if p == nil {
		return nil
	}
	return &pauseJSON{p.Topic, known(int64(p.Partition)), p.By, p.Why, p.Since.UTC(), instant(p.Until)}
}

// unreadJSON is an Unread. Its partition is null if it is the whole topic.
type unreadJSON struct {
	Topic     string    `json:"topic"`
	Partition *int64    `json:"partition"`
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`
}

// degradedJSON is a Degraded.
type degradedJSON struct {
	Need      Need      `json:"need"`
	Since     time.Time `json:"since"`
	Failures  int       `json:"failures"`
	ErrorType string    `json:"error_type"`
}

// totalsJSON is a Totals.
type totalsJSON struct {
	Rebalances    int64             `json:"rebalances"`
	ShortSessions int64             `json:"short_sessions"`
	Topics        []topicTotalsJSON `json:"topics"`
}

type topicTotalsJSON struct {
	Topic         string  `json:"topic"`
	Assigned      int64   `json:"assigned"`
	Drained       int64   `json:"drained"`
	DrainSeconds  float64 `json:"drain_seconds"`
	DrainsCut     int64   `json:"drains_cut"`
	OutOfRange    int64   `json:"out_of_range"`
	PausedSeconds float64 `json:"paused_seconds"`

	Groups *groupsJSON `json:"groups,omitempty"`
}

// groupsJSON is a GroupStats.
type groupsJSON struct {
	Transactions int64 `json:"transactions"`
	Calls        int64 `json:"messages"`
	RolledBack   int64 `json:"rolled_back"`
	Size         int   `json:"size"`
	Side         int   `json:"side"`
	Contended    bool  `json:"contended"`
	Single       bool  `json:"single"`
}

func (t *Totals) json() totalsJSON {
	j := totalsJSON{Rebalances: t.Rebalances, ShortSessions: t.ShortSessions, Topics: []topicTotalsJSON{}}
	for _, of := range t.Topics {
		j.Topics = append(j.Topics, topicTotalsJSON{
			of.Topic, of.Assigned, of.Drained, of.DrainTime.Seconds(), of.DrainsCut, of.OutOfRange, of.Paused.Seconds(),
			(*groupsJSON)(of.Groups),
		})
	}
	return j
}

// partitionJSON is a PartitionStatus. What is not known, or not there, is null or missing.
type partitionJSON struct {
	Topic         string       `json:"topic"`
	Partition     int32        `json:"partition"`
	Assigned      time.Time    `json:"assigned"`
	Lag           *int64       `json:"lag"`
	End           *int64       `json:"end_offset"`
	Held          int          `json:"held"`
	Bytes         int          `json:"bytes"`
	Running       int          `json:"running"`
	Parked        int          `json:"parked"`
	Ahead         int          `json:"ahead"`
	Paused        bool         `json:"paused"`
	PausedBy      Limit        `json:"paused_by,omitempty"`
	Progress      time.Time    `json:"progress"`
	LastErrorType string       `json:"last_error_type,omitempty"`
	FetchError    string       `json:"fetch_error,omitempty"`
	UnreadSince   *time.Time   `json:"unread_since,omitempty"`
	OpenTxnSince  *time.Time   `json:"open_transaction_since,omitempty"`
	NextOffset    *int64       `json:"next_offset"`
	Committed     *int64       `json:"committed_offset"`
	Uncommitted   *time.Time   `json:"uncommitted_since,omitempty"`
	Oldest        *oldestJSON  `json:"oldest_open"`
	Failing       *failingJSON `json:"failing"`
	UserPause     *pauseJSON   `json:"user_pause,omitempty"`
}

type oldestJSON struct {
	Offset   int64      `json:"offset"`
	Since    time.Time  `json:"since"`
	Seconds  float64    `json:"seconds"`
	Due      *time.Time `json:"due"`
	Attempts int        `json:"failed_attempts"`
}

type failingJSON struct {
	Offset    int64      `json:"offset"`
	Attempts  int        `json:"failed_attempts"`
	Since     time.Time  `json:"since"`
	RetryAt   *time.Time `json:"retry_at"`
	ErrorType string     `json:"error_type"`
}

func (p *PartitionStatus) json(now time.Time) partitionJSON {
	j := partitionJSON{
		Topic: p.Topic, Partition: p.Partition, Assigned: p.Assigned.UTC(), Lag: known(p.Lag), End: known(p.End),
		Held: p.Held, Bytes: p.Bytes, Running: p.Running, Parked: p.Parked, Ahead: p.Ahead, Paused: p.Paused,
		PausedBy: p.PausedBy,
		Progress: p.Progress.UTC(), LastErrorType: errtype.Of(p.LastError), NextOffset: known(p.Next),
		OpenTxnSince: instant(p.OpenTransaction),
		Committed:    known(p.Committed), Uncommitted: instant(p.Uncommitted), UserPause: p.UserPause.json(),
	}
	if p.FetchError != nil {
		j.FetchError, j.UnreadSince = redact.Text(p.FetchError.Error(), maxErrorText), instant(p.Unread)
	}
	if p.Oldest >= 0 {
		j.Oldest = &oldestJSON{p.Oldest, p.OldestSince.UTC(), max(0, now.Sub(p.OldestSince).Seconds()), instant(p.OldestDue),
			p.OldestAttempts}
	}
	if p.Failing != nil {
		j.Failing = new(p.Failing.json())
	}
	return j
}

func (f *Failing) json() failingJSON {
	return failingJSON{f.Offset, f.Attempts, f.Since.UTC(), instant(f.RetryAt), errtype.Of(f.Err)}
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
