package record_test

import (
	"strconv"
	"testing"

	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// begun is the session of a process of the server.
func begun(settings string, process int) record.Session {
	return record.Session(settings + "\x1f" + strconv.Itoa(process))
}

// A session that begins otherwise than the first one is refused, until so many in a row do that they are the usual
// ones.
func TestSessionsAsEver(t *testing.T) {
	t.Parallel()
	var s record.Sessions
	if !s.AsEver(begun("usual", 1), false) || !s.AsEver(begun("usual", 2), false) {
		t.Fatal("the usual session is refused")
	}
	if !s.AsEver(begun("own", 3), true) {
		t.Error("a connection's own session is refused")
	}
	refuse := func(n int) {
		t.Helper()
		for i := range n {
			if s.AsEver(begun("other", i), false) {
				t.Fatalf("the %d. other session is taken", i+1)
			}
		}
	}
	refuse(100)
	if !s.AsEver(begun("usual", 1), false) { // counts anew
		t.Fatal("the usual session is refused after others")
	}
	refuse(100)
	if !s.AsEver(begun("other", 1), false) || !s.AsEver(begun("other", 2), false) {
		t.Error("others are refused for ever")
	}
	if s.AsEver(begun("usual", 1), false) {
		t.Error("what was usual is so still")
	}
}

// A process's session is compared with what it was at first, and with the others' only then.
func TestProcesses(t *testing.T) {
	t.Parallel()
	var p record.Processes
	for _, step := range []struct {
		session record.Session
		changed bool
	}{
		{"", false}, // no answer
		{begun("a", 1), false},
		{begun("a", 2), false},
		{begun("a", 1), false},
		{begun("b", 1), true},  // and is closed
		{begun("b", 3), true},  // begins otherwise than the first one
		{begun("a", 2), false}, // others' changes are not its own
		{begun("a", 1), false}, // the number was given to a new process
		{begun("b", 1), true},
	} {
		if changed := p.Changed(step.session); changed != step.changed {
			t.Errorf("Changed(%q) = %v, want %v", step.session, changed, step.changed)
		}
	}
}
