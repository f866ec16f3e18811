package consumer_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzEventIDs reads ids from a message in each way that there is. An id is there or an error says that there is none,
// and both take as much as the message is large.
func FuzzEventIDs(f *testing.F) {
	f.Add("event-id", []byte("e1"), []byte("key"), []byte(`{"id":"e1","meta":{"id":7}}`))
	f.Add("ce_id", []byte("e1"), []byte(nil), bytes.Repeat([]byte(`{"meta":`), 2000))
	f.Add("content-type", []byte("application/cloudevents+json"), []byte("\xff"),
		[]byte(`{"specversion":"1.0","id":"a","source":"b","type":"c","data":{"x":1},"data_base64":"AA=="}`))
	f.Add("", []byte{}, []byte{}, bytes.Repeat([]byte(`"\ud800`), 1000))
	f.Fuzz(func(t *testing.T, name string, header, key, value []byte) {
		msg := &consumer.Message{Topic: "t", Key: key, Value: value, Headers: []consumer.Header{{Key: name, Value: header},
			{Key: "ce_source", Value: header}}}
		size := len(name) + len(header) + len(key) + len(value)
		for way, from := range map[string]func(*consumer.Message) (string, error){
			"header": consumer.HeaderID("event-id"), "cloudevents": consumer.CloudEventID, "json": consumer.JSONID("id"),
			"nested": consumer.JSONID("meta", "id"),
			"key":    consumer.UniqueKeyID, "both": consumer.CompositeID(consumer.HeaderID("event-id"), consumer.JSONID("id")),
		} {
			fuzztest.Bounded(t, size, 1<<20, func() {
				id, err := from(msg)
				if (err == nil) != (id != "") || err != nil && !errors.Is(err, consumer.ErrNoEventID) {
					t.Errorf("%s: %q, %v", way, id, err)
				}
			})
		}
		fuzztest.Bounded(t, size, 1<<20, func() {
			if event, err := consumer.ParseCloudEvent[map[string]any](msg); err == nil &&
				(event.ID == "" || event.Source == "") {
				t.Errorf("an event without id or source: %+v", event)
			}
		})
	})
}
