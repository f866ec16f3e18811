package dedupstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	for _, c := range []struct {
		err  error
		want dedupstore.Class
	}{
		{nil, dedupstore.Unclassified},
		{plain, dedupstore.Unclassified},
		{dedupstore.ErrInvalidKey, dedupstore.Permanent},
		{dedupstore.Key{}.Validate(), dedupstore.Permanent},
		{dedupstore.ErrTooOld, dedupstore.Permanent},
		{dedupstore.ErrTxEnded, dedupstore.Permanent},
		{dedupstore.ErrLocked, dedupstore.Transient},
		{dedupstore.ErrUnavailable, dedupstore.Unavailable},
		{dedupstore.ErrOutcomeUnknown, dedupstore.OutcomeUnknown},
		{dedupstore.WithClass(dedupstore.Misconfigured, plain), dedupstore.Misconfigured},
		{fmt.Errorf("a: %w", dedupstore.WithClass(dedupstore.Transient, plain)), dedupstore.Transient},
		{fmt.Errorf("%w: %w", dedupstore.ErrOutcomeUnknown, dedupstore.ErrUnavailable), dedupstore.OutcomeUnknown},
		{dedupstore.WithClass(dedupstore.Permanent, dedupstore.ErrUnavailable), dedupstore.Permanent}, // the outermost
		{errors.Join(plain, dedupstore.ErrLocked), dedupstore.Transient},
	} {
		if got := dedupstore.ClassOf(c.err); got != c.want {
			t.Errorf("ClassOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestWithClassChangesNothingElse(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	err := dedupstore.WithClass(dedupstore.Transient, plain)
	if !errors.Is(err, plain) || err.Error() != "plain" {
		t.Errorf("WithClass: %v", err)
	}
	if err := dedupstore.WithClass(dedupstore.Transient, nil); err != nil {
		t.Errorf("WithClass(nil) = %v", err)
	}
	if errors.Is(dedupstore.ErrTxEnded, dedupstore.ErrInvalidKey) {
		t.Error("errors of one class are taken for each other")
	}
}

func TestClassString(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(dedupstore.OutcomeUnknown, dedupstore.Unclassified, dedupstore.Permanent,
		dedupstore.Class(9)); got != "outcome_unknown unclassified permanent Class(9)" {
		t.Error(got)
	}
}
