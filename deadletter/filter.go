package deadletter

import "time"

// Filter says which dead letters are meant. Fields that are zero do not restrict: the zero Filter means all.
type Filter struct {
	IDs       []int64
	Consumer  string
	Topic     string
	Kind      Kind
	ErrorType string
	Since     time.Time // that died then or later
	Until     time.Time // that died before
}

// Holds reports whether dead letters of that kind are held by a Redrive with this filter: those must be named, by Kind
// or by IDs.
func (f Filter) Holds(k Kind) bool { return k.asked() && f.Kind != k && len(f.IDs) == 0 }
