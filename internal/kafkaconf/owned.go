package kafkaconf

import (
	"net"
	"reflect"
	"strconv"

	"github.com/IBM/sarama"
)

// Owned is a field that a user's function must leave as it is.
type Owned struct {
	Name   string // "Producer.Idempotent"
	Field  func(*sarama.Config) any
	Remedy string // what to do instead
}

// Changed returns those of the fields that differ.
func Changed(fields []Owned, ours, theirs *sarama.Config) (changed []Owned) {
	for _, f := range fields {
		if !reflect.DeepEqual(f.Field(theirs), f.Field(ours)) {
			changed = append(changed, f)
		}
	}
	return changed
}

// IsAddress reports whether addr is "host:port".
func IsAddress(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, perr := strconv.Atoi(port)
	return err == nil && host != "" && perr == nil && n >= 1 && n <= 65535
}
