package consumer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

func TestHeaderID(t *testing.T) {
	t.Parallel()
	header := func(key, value string) consumer.Header { return consumer.Header{Key: key, Value: []byte(value)} }
	for _, test := range []struct {
		name    string
		headers []consumer.Header
		want    string
		problem string // part of the error; empty for none
	}{
		{"set", []consumer.Header{header("event-id", "e1")}, "e1", ""},
		{"as it stands", []consumer.Header{header("event-id", " e\x001\xff ")}, " e\x001\xff ", ""},
		{"last one wins", []consumer.Header{header("event-id", "e1"), header("x", "y"), header("event-id", "e2")}, "e2", ""},
		{"other case", []consumer.Header{header("Event-Id", "e1")}, "",
			`"event-id" is missing, and "Event-Id" differs from it in case only`},
		{"no headers", nil, "", `header "event-id" is missing`},
		{"nil keys", []consumer.Header{{}, {}}, "", `header "event-id" is missing`},
		{"empty", []consumer.Header{header("event-id", "")}, "", `header "event-id" is empty`},
		{"nil value", []consumer.Header{{Key: "event-id"}}, "", `header "event-id" is empty`},
		{"last one is empty", []consumer.Header{header("event-id", "e1"), header("event-id", "")}, "",
			`header "event-id" is empty`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			id, err := consumer.HeaderID(consumer.DefaultEventIDHeader)(&consumer.Message{Headers: test.headers})
			if id != test.want {
				t.Errorf("id %q, want %q", id, test.want)
			}
			if (err != nil) != (test.problem != "") || err != nil &&
				(!errors.Is(err, consumer.ErrNoEventID) || !strings.Contains(err.Error(), test.problem)) {
				t.Errorf("err %v, want one that wraps ErrNoEventID and says %q", err, test.problem)
			}
		})
	}
}

func ExampleHeaderID() {
	id := consumer.HeaderID("ce_id")
	fmt.Println(id(&consumer.Message{Headers: []consumer.Header{{Key: "ce_id", Value: []byte("42")}}}))
	_, err := id(&consumer.Message{})
	fmt.Println(errors.Is(err, consumer.ErrNoEventID))
	// Output:
	// 42 <nil>
	// true
}
