package storetest

import (
	"errors"

	"github.com/einmal-go/einmal/dedupstore"
)

func (s *suite[Tx]) outcomeUnknown() {
	for _, at := range []Moment{BeforeCommit, AfterCommit, CommitHangs} {
		k, effect := key(at.String()), at.String()
		ran, err := s.once(s.Cut(s.t, at), k, s.writes(effect))
		if ran || !errors.Is(err, dedupstore.ErrOutcomeUnknown) {
			s.t.Errorf("%s: Once() = %v, %v, want false and an error that wraps ErrOutcomeUnknown", at, ran, err)
		}
		s.wantClass(err, dedupstore.OutcomeUnknown)
		ran, err = s.once(s.Store, k, s.writes(effect))
		if err != nil {
			s.t.Errorf("%s: the next attempt: %v", at, err)
		}
		if ran != (at == BeforeCommit) {
			s.t.Errorf("%s: the next attempt ran: %v. Harness.Cut does not cut at that moment, or the store settles it wrongly",
				at, ran)
		}
		s.wantEffects(effect, 1)
		s.wantSkipped(k)
	}
}
