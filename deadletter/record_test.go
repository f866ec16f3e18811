package deadletter_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

// Headers come back as they were, and are JSON that can be searched where they are text.
func TestHeadersRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) consumer.Header {
			h := consumer.Header{Key: string(rapid.SliceOf(rapid.Byte()).Draw(t, "key"))}
			if rapid.Bool().Draw(t, "value") {
				h.Value = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
			}
			return h
		}), 0, 5).Draw(t, "headers")
		text := deadletter.EncodeHeaders(some)
		if strings.Contains(text, `\u0000`) || !json.Valid([]byte(text)) {
			t.Fatalf("jsonb does not take %s", text)
		}
		got, err := deadletter.DecodeHeaders(text)
		if err != nil || len(got) != len(some) || len(some) > 0 && !reflect.DeepEqual(got, some) {
			t.Fatalf("%q became %q (%s), %v", some, got, text, err)
		}
	})
	if got := deadletter.EncodeHeaders([]consumer.Header{{Key: "event-id",
		Value: []byte("e1")}}); got != `[{"key":"event-id","text":"e1"}]` {
		t.Error(got)
	}
}

// Without a topic's id a place is that of this very message.
func TestPlace(t *testing.T) {
	t.Parallel()
	base := consumer.Message{Topic: "orders", Partition: 1, Offset: 2, Value: []byte("v"), Key: []byte("k"),
		Headers: []consumer.Header{{Key: "a"}}}
	withID := base
	withID.TopicID = consumer.TopicID{1}
	if got, want := deadletter.Place(&withID), "einmal:place:"+withID.TopicID.String()+"/1/2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := deadletter.RedrivenID(deadletter.Place(&withID)), "einmal:redriven:"+withID.TopicID.String()+
		"/1/2"; got != want || deadletter.Reserved(got) {
		t.Errorf("published again as %s, want %s", got, want)
	}
	if got := deadletter.RedrivenID("of its own"); got != "of its own" {
		t.Errorf("another id becomes %q", got)
	}
	seen := map[string]string{deadletter.Place(&base): "the message"}
	for name, edit := range map[string]func(*consumer.Message){
		"value":  func(m *consumer.Message) { m.Value = []byte("w") },
		"key":    func(m *consumer.Message) { m.Key, m.Value = []byte("kv"), nil },
		"time":   func(m *consumer.Message) { m.Timestamp = time.UnixMilli(1) },
		"header": func(m *consumer.Message) { m.Headers = nil },
		"offset": func(m *consumer.Message) { m.Offset = 3 }, "partition": func(m *consumer.Message) { m.Partition = 2 },
		"topic": func(m *consumer.Message) { m.Topic = "o" },
	} {
		msg := base
		edit(&msg)
		place := deadletter.Place(&msg)
		if other, ok := seen[place]; ok {
			t.Errorf("%s and %s have the place %s", name, other, place)
		}
		seen[place] = name
		if err := (dedupstore.Key{Consumer: "c", Event: place}).Validate(); err != nil || place != deadletter.Place(&msg) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

// Times that a database cannot hold are left out: the row must be written.
func TestOddTimestamps(t *testing.T) {
	t.Parallel()
	for _, stamp := range []time.Time{time.UnixMilli(1<<63 - 1), time.UnixMilli(-1 << 63), {}} {
		if rec := deadletter.NewRecord(&consumer.Message{Timestamp: stamp}, dedupstore.Key{}); !rec.Timestamp.IsZero() {
			t.Errorf("%v became %v", stamp, rec.Timestamp)
		}
	}
}

func TestRedriveNeedsWhatItNeeds(t *testing.T) {
	t.Parallel()
	_, err := deadletter.Redrive[int](t.Context(), nil, nil, nil, nil)
	for _, want := range []string{"the store is nil", "the table is nil", "the handler is nil",
		"Filter.Consumer is empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A place as a UUID is a UUIDv7 of the message's time, always the same, and another one for another place.
func TestPlaceUUID(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(0x018cc251f400)
	msg := &consumer.Message{Topic: "orders", TopicID: consumer.TopicID{1}, Partition: 3, Offset: 42, Timestamp: at,
		Value: []byte("x")}
	id, ok := deadletter.PlaceUUID(msg)
	if !ok || !regexp.MustCompile(`^018cc251-f400-7[0-9a-f]{3}-[ef][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("%q, %v", id, ok)
	}
	republished := deadletter.RedrivenID(id)
	if !regexp.MustCompile(`^018cc251-f400-7[0-9a-f]{3}-[ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(republished) ||
		deadletter.Reserved(republished) {
		t.Errorf("published again as %q", republished)
	}
	seen := map[string]bool{id: true}
	for _, m := range []consumer.Message{
		{Topic: "orders", TopicID: consumer.TopicID{1}, Partition: 3, Offset: 43, Timestamp: at},
		{Topic: "orders", TopicID: consumer.TopicID{1}, Partition: 4, Offset: 42, Timestamp: at},
		{Topic: "orders", TopicID: consumer.TopicID{2}, Partition: 3, Offset: 42, Timestamp: at},
		{Topic: "orders", Partition: 3, Offset: 42, Timestamp: at},
		{Topic: "orders", TopicID: consumer.TopicID{1}, Partition: 3, Offset: 42, Timestamp: at.Add(time.Millisecond)},
	} {
		other, ok := deadletter.PlaceUUID(&m)
		if !ok || seen[other] {
			t.Errorf("%+v: %q, %v", m, other, ok)
		}
		seen[other] = true
	}
	for own, want := range map[string]bool{
		id: true, deadletter.Place(msg): true, "AQAAAAAAAAAAAAAAAAAAAA/3/42": false, "": false, "e1": false,
		strings.ToUpper(id):                    true,
		"018cc251-f400-7abc-8abc-0123456789ab": false, "018cc251-f400-7abc-eabc-0123456789ab": true,
		"018cc251-f400-7abc-fabc-0123456789ab": true, "018cc251-f400-4abc-babc-0123456789ab": false,
		"018cc251xf400x4abcxfabcx0123456789ab": false,
	} {
		if deadletter.Reserved(own) != want {
			t.Errorf("Reserved(%q) is %v", own, !want)
		}
	}
	again := *msg
	again.Attempt, again.Value = 7, []byte("y")
	if same, _ := deadletter.PlaceUUID(&again); same != id {
		t.Errorf("another delivery has %q, want %q", same, id)
	}
	for _, when := range []time.Time{{}, time.UnixMilli(-1), time.UnixMilli(1 << 48)} {
		if id, ok := deadletter.PlaceUUID(&consumer.Message{Timestamp: when}); ok {
			t.Errorf("%v: %q", when, id)
		}
	}
}
