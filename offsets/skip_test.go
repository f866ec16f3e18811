package offsets

import (
	"errors"
	"testing"
)

func TestSkip(t *testing.T) {
	t.Parallel()
	var tr Tracker
	committable := func(want int64) {
		t.Helper()
		if got, ok := tr.Committable(); got != want || ok != (want > 0) {
			t.Errorf("committable %d, %v; want %d", got, ok, want)
		}
	}
	if tr.Skip(0) {
		t.Error("nothing can be committed at 0")
	}
	if !tr.Skip(7) { // nothing was delivered yet
		t.Error("7 was not taken")
	}
	committable(7)
	if err := tr.Deliver(6); !errors.Is(err, ErrNotAscending) {
		t.Errorf("a skipped offset was taken: %v", err)
	}
	if err := tr.Deliver(8); err != nil {
		t.Fatal(err)
	}
	if tr.Skip(20) {
		t.Error("8 is open")
	}
	committable(7)
	if err := tr.Done(8); err != nil {
		t.Fatal(err)
	}
	committable(9)
	if tr.Skip(8) || tr.Skip(9) {
		t.Error("it went back, or nowhere")
	}
	if !tr.Skip(10) {
		t.Error("10 was not taken")
	}
	committable(10)
}
