package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/errtype"
)

// sqlError is a database's.
type sqlError struct{}

func (sqlError) Error() string    { return "planted" }
func (sqlError) SQLState() string { return "23505" }

// fieldError is one of bun's pgdriver.
type fieldError struct{}

func (fieldError) Error() string { return "planted" }

func (fieldError) Field(k byte) string { return map[byte]string{'C': "40001"}[k] }

// The names of the fields are a promise: docs/status.md lists them, and einmal status reads them.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	s := Status{Group: "billing", Phase: Running, Unread: []Unread{{"orders", 2, at, "it has no leader"},
		{"payments", -1, at, "no broker knows it"}}, Totals: Totals{Rebalances: 3, ShortSessions: 2, Topics: []TopicTotals{
		{Topic: "orders", Assigned: 4, Drained: 3, DrainTime: 1500 * time.Millisecond, DrainsCut: 2, OutOfRange: 1,
			Paused: 2 * time.Second},
	}}, Partitions: []PartitionStatus{{
		Topic: "orders", Partition: 1, Assigned: at, Lag: 7, End: 47, Held: 3, Bytes: 400, Running: 1, Parked: 2, Ahead: 5,
		Paused: true, PausedBy: LimitAhead, Progress: at,
		LastError: sqlError{}, FetchError: errors.New("leader not available"), Unread: at, OpenTransaction: at,
		Oldest: 40, OldestSince: at, OldestDue: at, OldestAttempts: 2, Next: 40, Committed: 38, Uncommitted: at,
		Failing:   &Failing{Offset: 40, Attempts: 2, Since: at, RetryAt: at, Err: fmt.Errorf("charge: %w", sqlError{})},
		UserPause: &Pause{Topic: "orders", Partition: -1, By: "ann", Why: "the provider is down", Since: at, Until: at},
	}}, Failing: []FailingMessage{{"orders", 1, Failing{Offset: 40, Attempts: 2, Since: at, Err: sqlError{}}}},
		Pauses: []Pause{{Topic: "payments", Partition: 4, By: "bob", Why: "a repair", Since: at}}}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	seconds, ok := got["partitions"].([]any)[0].(map[string]any)["oldest_open"].(map[string]any)["seconds"].(float64)
	if !ok || seconds < 1000 {
		t.Errorf("the oldest is open for %v s", seconds)
	}
	delete(got["partitions"].([]any)[0].(map[string]any)["oldest_open"].(map[string]any), "seconds")
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const time = `"2026-01-02T02:04:05Z"`
	want := `{"failing":[{"error_type":"23505","failed_attempts":2,"offset":40,"partition":1,"retry_at":null,"since":` +
		time + `,"topic":"orders"}],"group":"billing","kind":"consumer","partitions":[{"ahead":5,"assigned":` + time +
		`,"bytes":400,"committed_offset":38,"end_offset":47,"failing":{"error_type":"23505","failed_attempts":2,"offset":40,"retry_at":` +
		time +
		`,"since":` + time + `},"fetch_error":"leader not available","held":3,"lag":7,"last_error_type":"23505","next_offset":40,"oldest_open":{"due":` + time + `,"failed_attempts":2,"offset":40,"since":` + time +
		`},"open_transaction_since":` + time + `,"parked":2,"partition":1,"paused":true,"paused_by":"ahead","progress":` +
		time + `,"running":1,"topic":"orders","uncommitted_since":` + time + `,"unread_since":` + time +
		`,"user_pause":{"by":"ann","partition":null,"since":` + time + `,"topic":"orders","until":` + time +
		`,"why":"the provider is down"}}],` +
		`"pauses":[{"by":"bob","partition":4,"since":` + time +
		`,"topic":"payments","until":null,"why":"a repair"}],"phase":"running","ready":true,"totals":{"rebalances":3,"short_sessions":2,"topics":[` +
		`{"assigned":4,"drain_seconds":1.5,"drained":3,"drains_cut":2,"out_of_range":1,"paused_seconds":2,"topic":"orders"}]},"unread":[{"partition":2,"reason":"it has no leader","since":` + time + `,"topic":"orders"},{"partition":null,"reason":"no broker knows it","since":` + time + `,"topic":"payments"}]}`
	if string(again) != want {
		t.Errorf("it is\n%s\nwant\n%s", again, want)
	}
}

// What is not known is null, an empty list is one, and the status says what package status asks for.
func TestStatusJSONOfNothing(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Status{Phase: Starting, NotReady: "starting"})
	if want := `{"kind":"consumer","group":"","phase":"starting","ready":false,"not_ready":"starting","partitions":[],"totals":{"rebalances":0,"short_sessions":0,"topics":[]}}`; err != nil || string(text) != want {
		t.Errorf("%v: %s", err, text)
	}
	text, err = json.Marshal(Status{Partitions: []PartitionStatus{{Lag: -1, Next: -1, Committed: -1, Oldest: -1},
		{Oldest: 1}}})
	if err != nil || !strings.Contains(string(text), `"lag":null`) ||
		!strings.Contains(string(text), `"next_offset":null,"committed_offset":null,"oldest_open":null,"failing":null`) ||
		!strings.Contains(string(text), `"due":null`) {
		t.Errorf("%v: %s", err, text)
	}
	if (Status{NotReady: "starting"}).Problem() != "starting" {
		t.Error("Problem is not NotReady")
	}
}

// An error's text may repeat a part of a message; its kind does not.
func TestErrorKind(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"":                    nil,
		"panic":               Permanent(&Panic{Value: "planted"}),
		"23505":               &GaveUp{Attempts: 3, Err: sqlError{}},
		"40001":               fmt.Errorf("planted: %w", fieldError{}),
		"timeout":             fmt.Errorf("planted: %w", context.DeadlineExceeded),
		"no_event_id":         fmt.Errorf("planted: %w", ErrNoEventID),
		"*errors.errorString": RetryAfter(1, fmt.Errorf("planted: %w", errors.New("planted"))),
	} {
		if got := errtype.Of(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
