package consumertest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// Message returns a message with its event's id in the default header, consumer.DefaultEventIDHeader, followed by
// headers, and a Timestamp of now. Everything else can be set in what it returns. An empty eventID leaves the header
// out.
func Message(topic, eventID string, value []byte, headers ...consumer.Header) *consumer.Message {
	msg := &consumer.Message{Topic: topic, Value: value, Timestamp: time.Now()}
	if eventID != "" {
		msg.Headers = append(msg.Headers, consumer.Header{Key: consumer.DefaultEventIDHeader, Value: []byte(eventID)})
	}
	msg.Headers = append(msg.Headers, headers...)
	return msg
}

// JSON is Message with event encoded by encoding/json. It panics if event cannot be encoded.
func JSON(topic, eventID string, event any, headers ...consumer.Header) *consumer.Message {
	value, err := json.Marshal(event)
	if err != nil {
		panic(fmt.Sprintf("consumertest.JSON: %v", err))
	}
	return Message(topic, eventID, value, headers...)
}
