package sqlstore

// Waiting is how many calls wait for a group.
func Waiting(s *Store) int { return s.store.Waiting() }
