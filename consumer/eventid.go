package consumer

import (
	"errors"
	"fmt"
)

// DefaultEventIDHeader is the header that holds the event's id unless Topic.EventID says otherwise.
const DefaultEventIDHeader = "event-id"

// ErrNoEventID is wrapped by the error for a message in which the id of its event is missing or empty.
var ErrNoEventID = errors.New("no event id")

// HeaderID returns a function for Topic.EventID that takes the id from the header with that name, the last one if the header
// is repeated. Names of headers are case-sensitive in Kafka. A header that is missing or empty is an error that wraps
// ErrNoEventID.
//
// The id is taken as it stands; whether it can be recorded is checked when it is: see dedupstore.Key.
func HeaderID(name string) func(*Message) (string, error) {
	missing := fmt.Errorf("%w: header %q is missing: let the producer set it, or set Topic.EventID to where the id stands", ErrNoEventID, name)
	empty := fmt.Errorf("%w: header %q is empty: let the producer give every event an id of its own", ErrNoEventID, name)
	return func(msg *Message) (string, error) {
		value, ok := msg.Header(name)
		switch {
		case !ok:
			return "", missing
		case len(value) == 0:
			return "", empty
		}
		return string(value), nil
	}
}
