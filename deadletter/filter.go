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
