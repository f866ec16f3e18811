package statusfacts

import "time"

// Consumer is a section of the kind consumer.
type Consumer struct {
	Group      string      `json:"group"`
	Phase      string      `json:"phase"`
	Ready      bool        `json:"ready"`
	NotReady   string      `json:"not_ready"`
	Partitions []Partition `json:"partitions"`
	Unread     []Unread    `json:"unread"`
	Degraded   []Degraded  `json:"degraded"`
}

// Unread is a topic or a partition that cannot be read.
type Unread struct {
	Topic     string    `json:"topic"`
	Partition *int32    `json:"partition"`
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`
}

// Degraded is something that a consumer needs and is without.
type Degraded struct {
	Need      string    `json:"need"`
	Since     time.Time `json:"since"`
	Failures  int       `json:"failures"`
	ErrorType string    `json:"error_type"`
}

// Partition is one that the process holds.
type Partition struct {
	Topic       string     `json:"topic"`
	Partition   int32      `json:"partition"`
	Assigned    time.Time  `json:"assigned"`
	Lag         *int64     `json:"lag"`
	Held        int        `json:"held"`
	Bytes       int        `json:"bytes"`
	Running     int        `json:"running"`
	Parked      int        `json:"parked"`
	Paused      bool       `json:"paused"`
	PausedBy    string     `json:"paused_by"`
	Progress    time.Time  `json:"progress"`
	FetchError  string     `json:"fetch_error"`
	UnreadSince *time.Time `json:"unread_since"`
	OpenTxn     *time.Time `json:"open_transaction_since"`
	Next        *int64     `json:"next_offset"`
	Committed   *int64     `json:"committed_offset"`
	Uncommitted *time.Time `json:"uncommitted_since"`
	Oldest      *Open      `json:"oldest_open"`
	Failing     *Failing   `json:"failing"`
	UserPause   *Pause     `json:"user_pause"`
}

// Pause is a user's.
type Pause struct {
	By    string     `json:"by"`
	Why   string     `json:"why"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until"`
}

// Open is a message that is not finished.
type Open struct {
	Offset   int64      `json:"offset"`
	Since    time.Time  `json:"since"`
	Seconds  float64    `json:"seconds"`
	Due      *time.Time `json:"due"`
	Attempts int        `json:"failed_attempts"`
}

// From is since when the message could have been handled.
func (o *Open) From() time.Time {
	if o.Due != nil && o.Due.After(o.Since) {
		return *o.Due
	}
	return o.Since
}

// OpenFor returns for how many seconds the message could have been handled at that time, all by the clock of the
// process. Before it is due they are negative.
func (o *Open) OpenFor(now time.Time) float64 {
	if o.Due == nil {
		return o.Seconds
	}
	return min(o.Seconds, now.Sub(*o.Due).Seconds())
}

// Failing is a message that is open after a failed attempt.
type Failing struct {
	Offset    int64      `json:"offset"`
	Attempts  int        `json:"failed_attempts"`
	Since     time.Time  `json:"since"`
	RetryAt   *time.Time `json:"retry_at"`
	ErrorType string     `json:"error_type"`
}

// Outbox is a section of the kind outbox.
type Outbox struct {
	Name          string     `json:"name"`
	Mode          string     `json:"mode"`
	Running       bool       `json:"running"`
	Paused        bool       `json:"paused"`
	LastError     string     `json:"last_error"`
	LastErrorAt   *time.Time `json:"last_error_at"`
	Trouble       string     `json:"trouble"`
	Estimated     bool       `json:"estimated"`
	Fresh         bool       `json:"fresh"`
	Seen          *time.Time `json:"seen"`
	Backlog       int64      `json:"backlog"`
	OldestSeconds float64    `json:"oldest_seconds"`
	Blocked       int64      `json:"blocked"`
	InFlight      int64      `json:"in_flight"`
	Published     int64      `json:"published"`
	PerSecond     float64    `json:"published_per_second"`
}

// Count is a number of rows of the table, if it was counted just now.
func (o *Outbox) Count(n int64) *int64 {
	if !o.Fresh {
		return nil
	}
	return &n
}

// DeadLetters is a section of the kind dead_letters.
type DeadLetters struct {
	Total int64            `json:"total"`
	Kinds map[string]int64 `json:"kinds"`
}

// Janitor is a section of the kind janitor.
type Janitor struct {
	Sweeping bool `json:"sweeping"`
	Tables   []struct {
		Table       string     `json:"table"`
		Sweeps      int64      `json:"sweeps"`
		Failures    int64      `json:"failures"`
		Deleted     int64      `json:"deleted"`
		LastStart   *time.Time `json:"last_start"`
		LastSeconds *float64   `json:"last_seconds"`
		LastError   string     `json:"last_error"`
		LastDeleted *int64     `json:"last_deleted"`
		LastStopped bool       `json:"last_stopped"`
	} `json:"tables"`
}
