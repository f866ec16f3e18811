package record

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/internal/gather"
)

// GroupError marks err as the reason why a group did not begin.
func GroupError(err error) error { return &groupError{err} }

type groupError struct{ error }

func (e *groupError) Unwrap() error { return e.error }

// GroupsChanged writes a line of what becomes of groups.
func GroupsChanged(log *slog.Logger) func(gather.Change) {
	return func(c gather.Change) {
		switch c {
		case gather.Contended:
			log.Warn("einmal: transactions of groups collide (deadlocks, serialization failures): groups are small and run one at a time for a while; " +
				"let functions lock rows in one order, or lower Group")
		case gather.Eased:
			log.Info("einmal: groups have their full size again")
		case gather.Single:
			log.Info("einmal: groups do not pay, since functions wait or fail: messages have transactions of their own; groups are tried again")
		case gather.Gathering:
			log.Info("einmal: groups pay again")
		}
	}
}

// ErrSessionChanged is the error of a group of which a function has changed the session for those behind it.
var ErrSessionChanged = errors.New("a function has changed the settings of its session, under which others have run")

// FaultOf says whom a failure of a group concerns.
func FaultOf(err error) gather.Fault {
	var begin *groupError
	began := !errors.As(err, &begin)
	if errors.Is(err, ErrSilent) || errors.Is(err, ErrSessionChanged) {
		return gather.OfSome
	}
	unknown := errors.Is(err, dedupstore.ErrOutcomeUnknown)
	switch {
	case strings.HasPrefix(StateOf(err), "40") && !unknown:
		return gather.OfNobody
	case unknown, !began && dedupstore.ClassOf(err) == dedupstore.Unavailable:
		return gather.OfAll
	case !began:
		return gather.OfSome
	}
	return gather.OfCall
}
