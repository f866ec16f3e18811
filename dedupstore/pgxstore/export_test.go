package pgxstore

import (
	"time"

	"github.com/einmal-go/einmal/dedupstore/internal/gather"
)

// Waiting is how many calls wait for a group.
func Waiting(s *Store) int { return s.groups.Waiting() }

// Unhurried lets a group take as long as its functions need, however busy the machine is: it does not commit early.
func Unhurried(s *Store) *Store {
	cfg := s.gathering(false)
	cfg.Span = time.Hour
	s.groups = gather.New(&groups{store: s}, cfg)
	return s
}
