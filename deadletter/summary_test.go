package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/einmal-go/einmal/deadletter"
)

// counted counts as a table does: what the tables answer to a Filter is tested with them.
type counted map[deadletter.Kind]int64

func (c counted) Count(_ context.Context, f deadletter.Filter) (n int64, err error) {
	for kind, m := range c {
		if f.Kind == "" || f.Kind == kind {
			n += m
		}
	}
	return n, nil
}

type broken struct{}

func (broken) Count(context.Context, deadletter.Filter) (int64, error) { return 0, errors.New("away") }

func TestSummarize(t *testing.T) {
	t.Parallel()
	for want, table := range map[string]counted{
		`{"kind":"dead_letters","total":0,"kinds":{}}`: {},
		`{"kind":"dead_letters","total":5,"kinds":{"gave_up":3,"no_event_id":2}}`: {deadletter.KindGaveUp: 3,
			deadletter.KindNoEventID: 2},
	} {
		s, err := deadletter.Summarize(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(s); err != nil || string(text) != want {
			t.Errorf("%v: %s, want %s", err, text, want)
		}
	}
	if _, err := deadletter.Summarize(t.Context(), broken{}); err == nil {
		t.Error("a table that is away is taken for an empty one")
	}
}
