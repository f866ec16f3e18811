package audit

import (
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
)

// A message without an id, its dead letter, and the message by which it was published again are one event, in tables of
// text and of UUIDs.
func TestPublishedAgainIsTheSameEvent(t *testing.T) {
	t.Parallel()
	msg := &consumer.Message{Topic: "orders", TopicID: consumer.TopicID{1}, Partition: 3, Offset: 42,
		Timestamp: time.UnixMilli(1)}
	inUUID, _ := deadletter.PlaceUUID(msg)
	for place, uuid := range map[string]bool{deadletter.Place(msg): false, inUUID: true} {
		tb := &tables{uuid: uuid, consumer: "billing"}
		if died, again := tb.canonical(place), tb.canonical(deadletter.RedrivenID(place)); died != again {
			t.Errorf("%s died as %s and was published as %s", place, died, again)
		}
		if !tb.takes(deadletter.RedrivenID(place)) || tb.takes(place) {
			t.Errorf("%s: the id of the message that was published is taken for none", place)
		}
	}
}
