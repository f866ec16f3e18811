package janitor

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// A page and einmal status read the JSON: what is not known yet is null, and no error has a secret.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	s := Status{Sweeping: true, Tables: []TableStatus{{Table: "a"}, {Table: "b", Sweeps: 2}}}
	if got := s.Problem(); got != "" {
		t.Errorf("a problem: %s", got)
	}
	s.Tables[1].add(Report{Table: "b", Start: time.Unix(1, 0), Duration: 1500 * time.Millisecond, Deleted: 3,
		Err: errors.New("no table: password=hunter2")})
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"janitor"`, `"sweeping":true`, `"last_start":null`,
		`"last_start":"1970-01-01T00:00:01Z"`, `"last_seconds":1.5`, `"failures":1`, `"last_deleted":3`,
		`"last_error":"no table`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if got := s.Problem(); !strings.Contains(got, "the last sweep of b failed: no table") ||
		strings.Contains(got+string(text), "hunter2") {
		t.Errorf("the problem is %s in %s", got, text)
	}
}
