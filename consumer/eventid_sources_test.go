package consumer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

type eventID = func(*consumer.Message) (string, error)

// wantID checks an id, or an error that wraps ErrNoEventID, says something, and shows nothing of the message.
func wantID(t *testing.T, name string, f eventID, msg *consumer.Message, want, problem string) {
	t.Helper()
	id, err := f(msg)
	switch {
	case id != want, (err == nil) != (problem == ""):
		t.Errorf("%s: %q, %v, want %q, problem %q", name, id, err, want, problem)
	case err != nil && (!errors.Is(err, consumer.ErrNoEventID) || !strings.Contains(err.Error(), problem) ||
		strings.Contains(err.Error(), "s3cret")):
		t.Errorf("%s: %v, want one that wraps ErrNoEventID, says %q and shows nothing", name, err, problem)
	}
}

func TestJSONID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, want, problem string }{
		{`{"id":"e1"}`, "e1", ""},
		{` { "s3cret" : [{"id":"no"}], "id" : "e1" , "ID":"no" } `, "e1", ""},
		{`{"id":"\u0065\u0031 \"\n"}`, "e1 \"\n", ""},
		{`{"\u0069d":"e1"}`, "e1", ""},
		{`{"id":42}`, "42", ""},
		{`{"id":-42}`, "-42", ""},
		{`{"id":123456789012345678901234567890}`, "123456789012345678901234567890", ""},
		{`{"id":"🙂"}`, "🙂", ""},
		{`{"id":"\ud83d\ude42"}`, "🙂", ""},
		{`{}`, "", "is missing"},
		{`{"Id":"s3cret"}`, "", "is missing"},
		{`{"id":null}`, "", "neither a string nor an integer"},
		{`{"id":true}`, "", "neither"},
		{`{"id":1.5}`, "", "neither"},
		{`{"id":1e3}`, "", "neither"},
		{`{"id":["s3cret"]}`, "", "neither"},
		{`{"id":{"id":"s3cret"}}`, "", "neither"},
		{`{"id":""}`, "", "is empty"},
		{`{"id":"s3cret1","id":"s3cret2"}`, "", "is there twice"},
		{`{"id":"s3cret","x":0,"i\u0064":"s3cret"}`, "", "is there twice"},
		{`{"id":"\ud83d"}`, "", "not valid Unicode"}, // half a pair
		{"{\"id\":\"s3cret\xff\"}", "", "not valid Unicode"},
		{`{"id":"s3cret"`, "", "not valid JSON"},
		{`{"id":"s3cret",}`, "", "not valid JSON"},
		{`{"id":"s3cret"} x`, "", "not valid JSON"},
		{`{"id":"s3cret"}{}`, "", "not valid JSON"},
		{`{"id":01}`, "", "not valid JSON"},
		{`{"x":s3cret,"id":"e1"}`, "", "not valid JSON"},
		{`{s3cret}`, "", "not valid JSON"},
		{`[{"id":"s3cret"}]`, "", "JSON object"},
		{`"s3cret"`, "", "JSON object"},
		{`null`, "", "JSON object"},
		{``, "", "JSON object"},
		{"\ufeff{\"id\":\"s3cret\"}", "", "JSON object"}, // a byte order mark
		{`{"x":` + strings.Repeat("[", 100_000), "", "not valid JSON"},
	} {
		wantID(t, fmt.Sprintf("%.60s", c.value), consumer.JSONID("id"), &consumer.Message{Value: []byte(c.value)}, c.want,
			c.problem)
	}
	wantID(t, "tombstone", consumer.JSONID("id"), &consumer.Message{}, "", "tombstone")
	wantID(t, "no path", consumer.JSONID(), &consumer.Message{Value: []byte(`{}`)}, "", "JSONID has no name")
	for value, problem := range map[string]string{
		`{"id":"no","meta":{"x":1,"id":"e1"}}`: "",
		`{"id":"s3cret"}`:                      "is missing",
		`{"meta":{}}`:                          "is missing",
		`{"meta":"s3cret"}`:                    "JSON object",
		`{"meta":null}`:                        "JSON object",
		`{"meta":{"id":"s3cret"},"meta":{"id":"s3cret"}}`: "twice",
	} {
		want := map[bool]string{true: "e1"}[problem == ""]
		wantID(t, value, consumer.JSONID("meta", "id"), &consumer.Message{Value: []byte(value)}, want, problem)
	}
}

// cloudEvent is a message in binary mode; headers are name, value, name, value.
func headers(pairs ...string) []consumer.Header {
	var hs []consumer.Header
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, consumer.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}

func TestCloudEventID(t *testing.T) {
	t.Parallel()
	const structured = "application/cloudevents+json"
	for name, c := range map[string]struct {
		headers       []consumer.Header
		value         string
		want, problem string
	}{
		"binary": {headers("ce_specversion", "1.0", "ce_source", "/crm/1", "ce_id", "e1", "content-type",
			"application/json"), `{"id":"no"}`, "/crm/1 e1", ""},
		"binary, escaped":       {headers("ce_source", "a%20b c", "ce_id", "e 1"), "", "a%2520b%20c e%201", ""},
		"binary, last one wins": {headers("ce_id", "s3cret", "ce_source", "s", "ce_id", "e2"), "", "s e2", ""},
		"binary, no id":         {headers("ce_source", "s3cret"), "", "", `"ce_id" is missing`},
		"binary, no source":     {headers("ce_id", "s3cret"), "", "", `"ce_source" is missing`},
		"binary, empty source":  {headers("ce_id", "s3cret", "ce_source", ""), "", "", `"ce_source" is empty`},
		"binary, other case":    {headers("CE_ID", "s3cret", "ce_source", "s"), "", "", `"ce_id" is missing`},
		"nothing":               {nil, `{"source":"s3cret","id":"s3cret"}`, "", `"ce_id" is missing`},
		"structured": {headers("content-type", structured),
			`{"specversion":"1.0","source":"/crm/1","id":"e1","data":{"id":"no"}}`, "/crm/1 e1", ""},
		"structured, charset": {headers("content-type", "Application/CloudEvents+JSON; charset=UTF-8"),
			`{"source":"s","id":"e1"}`, "s e1", ""},
		"structured, other case": {headers("Content-Type", structured), `{"source":"s","id":"e1"}`, "s e1", ""},
		"structured wins": {headers("content-type", structured, "ce_id", "no", "ce_source", "no"),
			`{"source":"s","id":"e1"}`, "s e1", ""},
		"last content type wins": {headers("content-type", structured, "content-type", "text/plain", "ce_id", "e1",
			"ce_source", "s"), `{}`, "s e1", ""},
		"structured, no id":     {headers("content-type", structured), `{"source":"s3cret"}`, "", "is missing"},
		"structured, no source": {headers("content-type", structured), `{"id":"s3cret"}`, "", "is missing"},
		"structured, number": {headers("content-type", structured), `{"source":"s3cret","id":1}`, "",
			"neither a string"},
		"structured, empty": {headers("content-type", structured), `{"source":"","id":"s3cret"}`, "",
			"source of a CloudEvent in structured mode: it is empty"},
		"structured, twice": {headers("content-type", structured), `{"source":"s","id":"s3cret","id":"s3cret"}`, "",
			"twice"},
		"structured, no JSON":    {headers("content-type", structured), `s3cret`, "", "JSON object"},
		"structured, no Unicode": {headers("content-type", structured), `{"source":"s3cret","id":"\udc00"}`, "", "Unicode"},
		"structured, batch": {headers("content-type", "application/cloudevents-batch+json"),
			`[{"source":"s3cret","id":"s3cret"}]`, "", "binary mode"},
		"structured, other": {headers("content-type", "application/cloudevents+avro"), "s3cret", "", "binary mode"},
		"no structured CloudEven": {headers("content-type", "application/cloud", "ce_id", "e1", "ce_source", "s"), "", "s e1",
			""},
	} {
		wantID(t, name, consumer.CloudEventID, &consumer.Message{Headers: c.headers, Value: []byte(c.value)}, c.want,
			c.problem)
	}
	wantID(t, "structured, tombstone", consumer.CloudEventID,
		&consumer.Message{Headers: headers("content-type", structured)}, "", "tombstone")
}

func TestUniqueKeyID(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"e1": "e1", " ": " ", "ä": "ä",
		"\x00\x00\x00\x01": `\x00000001`, "\xff": `\xff`, "a\x00": `\x6100`,
		`\x00000001`: `\x5c783030303030303031`, // not the one above
		`\y`:         `\y`,
	} {
		wantID(t, fmt.Sprintf("%q", key), consumer.UniqueKeyID, &consumer.Message{Key: []byte(key)}, want, "")
	}
	wantID(t, "none", consumer.UniqueKeyID, &consumer.Message{}, "", "has no key")
	wantID(t, "empty", consumer.UniqueKeyID, &consumer.Message{Key: []byte{}}, "", "is empty")
}

func TestOffsetID(t *testing.T) {
	t.Parallel()
	id := consumer.TopicID{0xfb, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	msg := &consumer.Message{Topic: "s3cret", TopicID: id, Partition: 7, Offset: 1 << 40}
	wantID(t, "place", consumer.OffsetID, msg, "-_8BAgMEBQYHCAkKCwwNDg/7/1099511627776", "")
	again := *msg
	again.TopicID[15]++ // created again
	if a, _ := consumer.OffsetID(msg); a != "" {
		if b, _ := consumer.OffsetID(&again); a == b {
			t.Error("a topic that was created again goes on with the ids of the old one")
		}
	}
	wantID(t, "old broker", consumer.OffsetID, &consumer.Message{Topic: "s3cret", Offset: 1}, "", "Kafka 2.8")
}

func TestCompositeID(t *testing.T) {
	t.Parallel()
	two := consumer.CompositeID(consumer.HeaderID("source"), consumer.HeaderID("event-id"))
	wantID(t, "two", two, &consumer.Message{Headers: headers("source", "crm", "event-id", "42")}, "crm 42", "")
	wantID(t, "one is missing", two, &consumer.Message{Headers: headers("source", "s3cret")}, "", `"event-id" is missing`)
	wantID(t, "no parts", consumer.CompositeID(), &consumer.Message{}, "", "has no parts")
}

// Whatever the parts are, other parts make another id.
func TestCompositeIDsDoNotCollide(t *testing.T) {
	t.Parallel()
	part := rapid.StringMatching(`[ab %250]{1,6}`)
	id := func(t *rapid.T, parts []string) string {
		var fs []eventID
		for _, p := range parts {
			fs = append(fs, func(*consumer.Message) (string, error) { return p, nil })
		}
		id, err := consumer.CompositeID(fs...)(&consumer.Message{})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(part, 1, 4).Draw(t, "a")
		b := slices.Clone(a) // a near miss
		i := rapid.IntRange(0, len(b)-1).Draw(t, "i")
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			b[i] = strings.ReplaceAll(b[i], " ", "%20")
		case 1:
			b[i] = strings.ReplaceAll(b[i], "%", "%25")
		case 2:
			b = slices.Replace(b, i, i+1, strings.Split(b[i], " ")...)
		case 3:
			b = []string{strings.Join(b, " ")}
		}
		if same := fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b); same != (id(t, a) == id(t, b)) {
			t.Fatalf("%q and %q: %q and %q", a, b, id(t, a), id(t, b))
		}
	})
}

// Both modes, whatever stands in the headers and in the value.
func FuzzCloudEventID(f *testing.F) {
	f.Add("/crm", "e1", "/crm", "e2", "application/json", []byte(`{"source":"s","id":"e1"}`))
	f.Add("a", "b c", "a b", "c", "application/cloudevents+json", []byte(`{"id":"e1","source":"s"}`))
	f.Add("a%20", "b", "a ", "b", "APPLICATION/CLOUDEVENTS+JSON;", []byte(`{"source":"\ud800","id":"\ud801"}`))
	f.Add("", "b", "\xff", "\x00", "application/cloudevents", []byte("{\"source\":\"\xff\",\"id\":\"\xfe\"}"))
	f.Add("a", "b", "a", "b", "application/cloudevents+json", []byte(`{"source":"s","id":"e1","ID":"e2"} `))
	f.Fuzz(func(t *testing.T, source1, id1, source2, id2, contentType string, value []byte) {
		binary := func(source, id string) (string, error) {
			return idWithin(t, consumer.CloudEventID, len(source)+len(id),
				&consumer.Message{Headers: headers("ce_source", source, "ce_id", id)})
		}
		a, errA := binary(source1, id1)
		b, errB := binary(source2, id2)
		if (errA == nil) != (source1 != "" && id1 != "") || errA != nil && !errors.Is(errA, consumer.ErrNoEventID) {
			t.Errorf("%q, %q: %q, %v", source1, id1, a, errA)
		}
		if same := source1 == source2 && id1 == id2; errA == nil && errB == nil && same != (a == b) {
			t.Errorf("%q, %q and %q, %q: %q and %q", source1, id1, source2, id2, a, b)
		}
		sameInBothModes(t, source1, id1, a)

		wild, err := idWithin(t, consumer.CloudEventID, len(contentType)+len(value),
			&consumer.Message{Headers: headers("content-type", contentType), Value: value})
		if (err == nil) != (wild != "") || err != nil && !errors.Is(err, consumer.ErrNoEventID) {
			t.Errorf("%q, %q: %q, %v", contentType, value, wild, err)
		}
		if err == nil {
			wantSameAsDecoded(t, value, wild)
		}
	})
}

// idWithin is the id of a message of size bytes, and fails the test if it takes more than such a message is worth.
func idWithin(t *testing.T, from eventID, size int, msg *consumer.Message) (id string, err error) {
	t.Helper()
	fuzztest.Bounded(t, size, 1<<20, func() { id, err = from(msg) })
	return id, err
}

// sameInBothModes checks that an event that JSON can hold has the same id in structured mode.
func sameInBothModes(t *testing.T, source, id, want string) {
	t.Helper()
	value, err := json.Marshal(map[string]string{"source": source, "id": id})
	if err != nil || want == "" {
		return
	}
	got, err := consumer.CloudEventID(&consumer.Message{Headers: headers("content-type", "application/cloudevents+json"),
		Value: value})
	if err == nil && got != want {
		t.Errorf("%q, %q: %q in structured mode, %q in binary", source, id, got, want)
	}
	if strings.ToValidUTF8(source+id, "\ufffd") == source+id && !strings.Contains(source+id, "\ufffd") && err != nil {
		t.Errorf("%q, %q: %v in structured mode", source, id, err)
	}
}

// wantSameAsDecoded checks an id against what encoding/json makes of the value.
func wantSameAsDecoded(t *testing.T, value []byte, id string) {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(value, &fields); err != nil {
		t.Errorf("%q has the id %q, and is not JSON: %v", value, id, err)
		return
	}
	want, _ := consumer.CompositeID(
		func(*consumer.Message) (string, error) { return fmt.Sprint(fields["source"]), nil },
		func(*consumer.Message) (string, error) { return fmt.Sprint(fields["id"]), nil },
	)(nil)
	if id != want {
		t.Errorf("%q has the id %q, encoding/json finds %q", value, id, want)
	}
}

// What is taken from the value is what encoding/json finds there.
func FuzzJSONID(f *testing.F) {
	for _, seed := range []string{`{"id":"e1"}`, `{"id":42}`, `{"id":"a","id":"b"}`, `{"x":{"id":1},"id":"\ud83d\ude42"}`,
		`{"id":1.0}`, `[]`, `{"id":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		id, err := idWithin(t, consumer.JSONID("id"), len(value), &consumer.Message{Value: value})
		if (err == nil) != (id != "") || err != nil && !errors.Is(err, consumer.ErrNoEventID) {
			t.Fatalf("%q: %q, %v", value, id, err)
		}
		if err != nil {
			return
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(value, &fields); err != nil {
			t.Fatalf("%q has the id %q, and is not JSON: %v", value, id, err)
		}
		var text string
		if err := json.Unmarshal(fields["id"], &text); err != nil {
			text = string(fields["id"])
		}
		if text != id {
			t.Errorf("%q: %q, encoding/json finds %q", value, id, text)
		}
	})
}

func ExampleCompositeID() {
	id := consumer.CompositeID(consumer.HeaderID("source"), consumer.HeaderID("event-id"))
	fmt.Println(id(&consumer.Message{Headers: []consumer.Header{{Key: "source", Value: []byte("crm")},
		{Key: "event-id", Value: []byte("42")}}}))
	// Output: crm 42 <nil>
}

func ExampleJSONID() {
	fmt.Println(consumer.JSONID("meta", "id")(&consumer.Message{Value: []byte(`{"meta": {"id": "e1"}, "cents": 100}`)}))
	// Output: e1 <nil>
}
