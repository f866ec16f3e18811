package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// orderConfirmed is the event of the README, without its tags.
type orderConfirmed struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

// tagged is the event of the README.
type tagged struct {
	ID    string `einmal:"required" json:"id"`
	Cents int64  `einmal:"required" json:"cents"`
}

const (
	cloudEvent = `{"specversion":"1.0","id":"ev-1","source":"/shop","type":"order.confirmed","data":{"id":"o1","cents":500}}`
	connect    = `{"schema":{"type":"struct","fields":[]},"payload":{"id":"o1","cents":500}}`
	debezium   = `{"before":null,"after":{"id":"o1","cents":500},"op":"c"}`
)

// read decodes a message, and says whether the function ran.
func read[E any](t *testing.T, decode func(*consumer.Message) (E, error), msg *consumer.Message) (event E, called bool,
	err error) {
	t.Helper()
	h := consumer.Decode(decode, func(_ context.Context, e E) error {
		event, called = e, true
		return nil
	})
	err = h.Handle(t.Context(), msg)
	if called != (err == nil) || err != nil && (!consumer.IsPermanent(err) || !errors.Is(err, consumer.ErrUndecodable)) {
		t.Errorf("called %v, permanent %v, err %v; want a call or a permanent ErrUndecodable", called,
			consumer.IsPermanent(err), err)
	}
	if err != nil && (strings.Contains(err.Error(), "o1") || strings.Contains(err.Error(), "ev-1") ||
		strings.Contains(err.Error(), "s3cret")) {
		t.Errorf("the error shows the message: %v", err)
	}
	return event, called, err
}

// plain is the decoder of JSON.
func plain[E any](msg *consumer.Message) (event E, err error) {
	h := consumer.JSON(func(_ context.Context, e E) error { event = e; return nil })
	err = h.Handle(context.Background(), msg)
	return event, err
}

func message(value string, headers ...string) *consumer.Message {
	msg := &consumer.Message{Value: []byte(value)}
	for i := 0; i < len(headers); i += 2 {
		msg.Headers = append(msg.Headers, consumer.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return msg
}

const structuredMode = "application/cloudevents+json; charset=UTF-8"

// What stands around an event never becomes an event in which all that matters is zero.
func TestJSONRefusesEnvelopes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		msg  *consumer.Message
		want string
	}{
		"structured CloudEvent": {message(cloudEvent, "content-type", structuredMode),
			"consumer.ParseCloudEvent"},
		"structured CloudEvent, another spelling": {message(`{"id":"ev-1"}`, "Content-Type",
			"Application/CloudEvents+JSON"), "consumer.ParseCloudEvent"},
		"structured CloudEvent without a content type": {message(cloudEvent), "consumer.ParseCloudEvent"},
		"batch of CloudEvents": {message(`{"id":"ev-1"}`, "content-type",
			"application/cloudevents-batch+json"), "consumer.ParseCloudEvent"},
		"Kafka Connect": {message(connect), "consumer.ConnectJSON"},
		"Kafka Connect without a schema": {message(`{"schema":null,"payload":{"id":"o1"}}`),
			"consumer.ConnectJSON"},
		"Debezium":     {message(debezium), "none of the fields"},
		"under a name": {message(`{"order":{"id":"o1","cents":500}}`), "none of the fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(called bool, err error) {
				if called || err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("called %v, err %v; want an error that says %q", called, err, test.want)
				}
			}
			_, called, err := read(t, plain[orderConfirmed], test.msg)
			check(called, err)
			_, called, err = read(t, plain[*orderConfirmed], test.msg)
			check(called, err)
			_, called, err = read(t, plain[tagged], test.msg)
			check(called, err)
			strict := func(msg *consumer.Message) (tagged, error) { return consumer.StrictJSON[tagged](msg) }
			if _, called, err := read(t, strict, test.msg); called || err == nil {
				t.Errorf("StrictJSON: called %v, err %v", called, err)
			}
		})
	}
}

type (
	wholeCloudEvent struct {
		ID   string          `json:"id"`
		Data *orderConfirmed `json:"data"`
	}
	wholeConnect struct {
		Payload orderConfirmed `json:"payload"`
	}
)

// What is meant to be read is read: the same values, into events that have what is in them.
func TestJSONReadsWhatTheEventKnows(t *testing.T) {
	t.Parallel()
	structured := message(cloudEvent, "content-type", structuredMode)
	if event, _, err := read(t, plain[wholeCloudEvent], structured); err != nil || event.Data == nil ||
		event.Data.Cents != 500 {
		t.Errorf("the whole CloudEvent: %+v, %v", event, err)
	}
	if event, _, err := read(t, plain[map[string]any], structured); err != nil || event["specversion"] != "1.0" {
		t.Errorf("a map: %+v, %v", event, err)
	}
	if event, _, err := read(t, plain[json.RawMessage], structured); err != nil || string(event) != cloudEvent {
		t.Errorf("the text: %s, %v", event, err)
	}
	if event, _, err := read(t, plain[wholeConnect], message(connect)); err != nil || event.Payload.Cents != 500 {
		t.Errorf("the whole of Kafka Connect's: %+v, %v", event, err)
	}
	if _, called, err := read(t, plain[struct{}], message(connect)); !called || err != nil {
		t.Errorf("an event of which nothing is read: called %v, %v", called, err)
	}
	for _, value := range []string{`{}`, `{"cents":0}`, `{"CENTS":0,"more":1}`, `{"id":"","specversion":"1.0"}`} {
		if event, called, err := read(t, plain[orderConfirmed], message(value)); !called || err != nil ||
			event != (orderConfirmed{}) {
			t.Errorf("%s: called %v, %+v, %v; want an event of zeros, which it is", value, called, event, err)
		}
	}
	binary := message(`{"id":"o1","cents":500}`, "ce_specversion", "1.0", "ce_id", "ev-1", "content-type",
		"application/json")
	if event, _, err := read(t, plain[orderConfirmed], binary); err != nil || event != (orderConfirmed{"o1", 500}) {
		t.Errorf("binary mode: %+v, %v", event, err)
	}
}

type (
	base struct {
		Tenant string `einmal:"required" json:"tenant"`
	}
	item struct {
		SKU string `einmal:"required" json:"sku"`
	}
	basket struct {
		base
		Items  []item          `json:"items"`
		ByName map[string]item `json:"by_name"`
		Gift   *item           `einmal:"required" json:"gift"`
		At     time.Time       `json:"at"`
		Parent *basket         `json:"parent"`
	}
)

func TestRequiredFields(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ value, missing string }{
		{`{"tenant":"a","gift":{"sku":"x"}}`, ""},
		{`{"TENANT":"a","gift":{"sku":"","more":[{}]},"items":[],"by_name":null,"at":"2026-01-02T03:04:05Z"}`, ""},
		{`{"tenant":null,"tenant":"a","gift":{"sku":"x"},"items":[{"sku":"x"}],"by_name":{"s3cret":{"sku":"x"}}}`, ""},
		{`{"tenant":"a","gift":{"sku":"x"},"parent":{"tenant":"b","gift":{"sku":"x"}}}`, ""},
		{`{}`, "tenant"},
		{`{"gift":{"sku":"x"}}`, "tenant"},
		{`{"tenant":null,"gift":{"sku":"x"}}`, "tenant"},
		{`{"tenant":"a","tenant":null,"gift":{"sku":"x"}}`, "tenant"},
		{`{"tenant":"a"}`, "gift"},
		{`{"tenant":"a","gift":null}`, "gift"},
		{`{"tenant":"a","gift":{}}`, "gift.sku"},
		{`{"tenant":"a","gift":{"sku":"x"},"items":[{"sku":"x"},{}]}`, "items.sku"},
		{`{"tenant":"a","gift":{"sku":"x"},"by_name":{"s3cret":{"sku":null}}}`, "by_name.*.sku"},
		{`{"tenant":"a","gift":{"sku":"x"},"parent":{"tenant":"b"}}`, "parent.gift"},
	} {
		for name, decode := range map[string]func(*consumer.Message) (basket, error){"JSON": plain[basket],
			"StrictJSON": consumer.StrictJSON[basket]} {
			if name == "StrictJSON" && strings.Contains(test.value, "more") {
				continue
			}
			_, called, err := read(t, decode, message(test.value))
			var wrong *consumer.DecodeError
			if test.missing == "" && !called {
				t.Errorf("%s of %s: %v", name, test.value, err)
			}
			if test.missing != "" && (!errors.As(err, &wrong) || wrong.Field != test.missing ||
				!strings.Contains(err.Error(), `einmal:"required"`)) {
				t.Errorf("%s of %s: called %v, %v; want field %s to be missing", name, test.value, called, err, test.missing)
			}
		}
	}
}

// A tag that says nothing einmal knows must not be taken for one that does. Nothing is wrong with the messages: none is
// given up.
func TestMistakenTagsHoldMessages(t *testing.T) {
	t.Parallel()
	type typo struct {
		ID string `einmal:"requird" json:"id"`
	}
	type within struct{ List []*typo }
	type hidden struct {
		ID string `einmal:"required" json:"-"`
	}
	check := func(err error, want string) {
		t.Helper()
		if _, ok := consumer.Delay(err); !ok || consumer.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, permanent %v; want a RetryAfter that says %q", err, consumer.IsPermanent(err), want)
		}
	}
	_, err := plain[typo](message(`{"id":"o1"}`))
	check(err, `field id of consumer_test.typo has the tag einmal:"requird"`)
	_, err = plain[within](message(`{}`))
	check(err, `einmal:"requird"`)
	_, err = plain[hidden](message(`{}`))
	check(err, "encoding/json never sets it")
	_, err = consumer.ParseCloudEvent[typo](message(cloudEvent, "content-type", structuredMode))
	check(err, `einmal:"requird"`)
}

func TestStrictJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ value, want string }{
		{`{"id":"o1","cents":500} `, ""},
		{`{"id":"o1","cents":500,"s3cret":1}`,
			"decode consumer_test.tagged: the value has a field that the event does not have"},
		{`{"id":"o1"}`, "field cents: it is missing or null"},
		{`{"id":"o1","cents":"5"}`, "field cents: a JSON string does not fit into a Go int64"},
		{`{"id":"o1","cents":500}{}`, "not valid JSON"},
		{`{"id":"o1","cents":500}]`, "not valid JSON"},
		{``, "the value is empty"},
		{`null`, "the JSON literal null"},
	} {
		event, called, err := read(t, consumer.StrictJSON[tagged], message(test.value))
		if test.want == "" && (!called || event != (tagged{"o1", 500})) || test.want != "" &&
			(called || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: called %v, %+v, %v; want %q", test.value, called, event, err, test.want)
		}
	}
	if _, called, err := read(t, consumer.StrictJSON[tagged], &consumer.Message{}); called ||
		!errors.Is(err, consumer.ErrTombstone) {
		t.Errorf("tombstone: called %v, %v", called, err)
	}
}

func TestConnectJSON(t *testing.T) {
	t.Parallel()
	for _, value := range []string{connect, `{"payload":{"id":"o1","cents":500,"more":1},"schema":null}`} {
		if event, _, err := read(t, consumer.ConnectJSON[tagged], message(value)); err != nil ||
			event != (tagged{"o1", 500}) {
			t.Errorf("%s: %+v, %v", value, event, err)
		}
	}
	for _, value := range []string{
		``, `null`, `[]`, `{}`, `{"id":"o1","cents":500}`, `{"payload":{"id":"o1","cents":500}}`,
		`{"schema":{},"payload":{"id":"o1","cents":500},"more":1}`, `{"schema":{},"payload":{"id":"o1"}}`, connect + connect,
		connect[:60],
	} {
		if event, called, err := read(t, consumer.ConnectJSON[tagged], message(value)); called {
			t.Errorf("%s: %+v, %v; want it refused", value, event, err)
		}
	}
	for _, msg := range []*consumer.Message{{}, message(`{"schema":null,"payload":null}`)} {
		if _, called, err := read(t, consumer.ConnectJSON[tagged], msg); called || !errors.Is(err, consumer.ErrTombstone) {
			t.Errorf("tombstone %q: called %v, %v", msg.Value, called, err)
		}
		if event, called, err := read(t, consumer.ConnectJSON[*tagged], msg); !called || event != nil {
			t.Errorf("tombstone %q into a pointer: called %v, %+v, %v", msg.Value, called, event, err)
		}
	}
}

// Both modes give the same event.
func TestParseCloudEvent(t *testing.T) {
	t.Parallel()
	want := consumer.CloudEvent[tagged]{
		ID: "ev-1", Source: "/shop", Type: "order.confirmed", Subject: "o1",
		Time:            time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		DataContentType: "application/vnd.shop+json; charset=utf-8", DataSchema: "urn:order",
		Extensions: map[string]string{"sequence": "7", "test": "true"},
		Data:       tagged{"o1", 500},
	}
	const attributes = `{"specversion":"1.0","id":"ev-1","source":"/shop","type":"order.confirmed","subject":"o1","time":"2026-01-02T03:04:05Z",` +
		`"datacontenttype":"application/vnd.shop+json; charset=utf-8","dataschema":"urn:order","sequence":7,"test":true,"absent":null,`
	for mode, msg := range map[string]*consumer.Message{
		"binary": message(`{"id":"o1","cents":500}`, "ce_specversion", "1.0", "ce_id", "ev-1", "ce_source", "/old",
			"ce_source", "/shop", "ce_type", "order.confirmed",
			"ce_subject", "o1", "ce_time", "2026-01-02T03:04:05Z", "Content-Type", want.DataContentType, "ce_dataschema",
			"urn:order",
			"ce_sequence", "7", "ce_test", "true", "other", "x"),
		"structured": message(attributes+`"data":{"id":"o1","cents":500}}`, "content-type", structuredMode),
		"structured, base64": message(attributes+`"data_base64":"eyJpZCI6Im8xIiwiY2VudHMiOjUwMH0="}`, "content-type",
			"application/cloudevents+json"),
	} {
		got, _, err := read(t, consumer.ParseCloudEvent[tagged], msg)
		if err != nil || !got.Time.Equal(want.Time) {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
		got.Time = want.Time
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", mode, got, want)
		}
	}
}

// What names one event to Dedup and what the handler gets are the same.
func TestParseCloudEventAgreesWithCloudEventID(t *testing.T) {
	t.Parallel()
	for _, msg := range []*consumer.Message{
		message(cloudEvent, "content-type", structuredMode),
		message(`{"id":"o1","cents":5}`, "ce_specversion", "1.0", "ce_id", "ev-1", "ce_source", "/shop", "ce_type", "t"),
	} {
		event, _, err := read(t, consumer.ParseCloudEvent[tagged], msg)
		id, idErr := consumer.CloudEventID(msg)
		if err != nil || idErr != nil || id != event.Source+" "+event.ID {
			t.Errorf("id %q (%v) of %+v (%v)", id, idErr, event, err)
		}
	}
}

func TestParseCloudEventData(t *testing.T) {
	t.Parallel()
	head := func(more string) string {
		return `{"specversion":"1.0","id":"ev-1","source":"/shop","type":"t"` + more + `}`
	}
	binary := []string{"ce_specversion", "1.0", "ce_id", "ev-1", "ce_source", "/shop", "ce_type", "t"}
	for name, test := range map[string]struct {
		msg  *consumer.Message
		want string
	}{
		"binary, anything": {message("\x00\xff", append(binary, "content-type", "application/octet-stream")...), "\x00\xff"},
		"JSON":             {message(head(`,"data":{"a": 1}`), "content-type", structuredMode), `{"a": 1}`},
		"a JSON string":    {message(head(`,"data":"<a/>"`), "content-type", structuredMode), `"<a/>"`},
		"text": {message(head(`,"datacontenttype":"text/xml","data":"<a/>"`), "content-type", structuredMode),
			"<a/>"},
		"base64": {message(head(`,"datacontenttype":"text/xml","data_base64":"AP8="`), "content-type",
			structuredMode), "\x00\xff"},
	} {
		got, _, err := read(t, consumer.ParseCloudEvent[[]byte], test.msg)
		if err != nil || string(got.Data) != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got.Data, err, test.want)
		}
	}
	for name, msg := range map[string]*consumer.Message{
		"structured": message(head(""), "content-type", structuredMode),
		"null":       message(head(`,"data":null`), "content-type", structuredMode),
		"tombstone":  {Headers: message("", binary...).Headers},
	} {
		if event, called, err := read(t, consumer.ParseCloudEvent[tagged], msg); called {
			t.Errorf("%s without data: %+v, %v", name, event, err)
		}
		if event, called, err := read(t, consumer.ParseCloudEvent[*tagged], msg); !called || event.Data != nil ||
			event.ID != "ev-1" {
			t.Errorf("%s without data, into a pointer: %+v, %v", name, event, err)
		}
	}
}

func TestParseCloudEventRefuses(t *testing.T) {
	t.Parallel()
	whole := map[string]string{"specversion": `"1.0"`, "id": `"ev-1"`, "source": `"/shop"`, "type": `"t"`,
		"data": `{"id":"o1","cents":5}`}
	with := func(name, value string) string {
		fields := maps.Clone(whole)
		fields[name] = value
		var parts []string
		for name, value := range fields {
			if value != "" {
				parts = append(parts, `"`+name+`":`+value)
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	if _, called, err := read(t, consumer.ParseCloudEvent[tagged], message(with("id", `"ev-1"`), "content-type",
		structuredMode)); !called {
		t.Fatalf("the event itself: %v", err)
	}
	for _, test := range []struct {
		msg  *consumer.Message
		want string
	}{
		{message(with("id", "")), "neither headers ce_*"},
		{message(cloudEvent), "neither headers ce_*"}, // nothing says that it is one
		{message("["+cloudEvent+"]", "content-type", "application/cloudevents-batch+json"), "batch"},
		{message(cloudEvent, "content-type", "application/cloudevents+avro"), "application/cloudevents+json only"},
		{message(`{"id":"o1","cents":5}`, "ce_id", "ev-1", "ce_source", "/shop", "ce_type", "t"), "specversion is missing"},
		{message(`{"id":"o1","cents":5}`, "ce_specversion", "0.3", "ce_id", "ev-1", "ce_source", "/shop", "ce_type", "t"),
			"specversion is not 1.0"},
		{message(`{"id":"o1","cents":5}`, "ce_specversion", "1.0", "ce_id", "ev-1", "ce_source", "\xff", "ce_type", "t"),
			"UTF-8"},
		{message(`<a/>`, "ce_specversion", "1.0", "ce_id", "ev-1", "ce_source", "/shop", "ce_type", "t", "content-type",
			"text/xml"), "let Data be []byte"},
		{message(`{"s3cret":1}`, "ce_specversion", "1.0", "ce_id", "ev-1", "ce_source", "/shop", "ce_type", "t"),
			"none of the fields"},
		{message(with("id", "")), "neither"},
		{message(with("id", ""), "content-type", structuredMode), "id, source and type"},
		{message(with("source", `""`), "content-type", structuredMode), "id, source and type"},
		{message(with("type", `null`), "content-type", structuredMode), "id, source and type"},
		{message(with("specversion", ""), "content-type", structuredMode), "specversion is missing"},
		{message(with("time", `"s3cret"`), "content-type", structuredMode), "RFC 3339"},
		{message(with("s3cret", `{}`), "content-type", structuredMode), "an attribute"},
		{message(with("s3cret", `1.5`), "content-type", structuredMode), "an attribute"},
		{message(with("subject", `"\ud800"`), "content-type", structuredMode), "an attribute"},
		{message(with("data_base64", `"e30="`), "content-type", structuredMode), "both data and data_base64"},
		{message(cloudEvent[:len(cloudEvent)-1]+`,"id":"ev-2"}`, "content-type", structuredMode), "twice"},
		{message(with("data", `{"id":"o1"}`), "content-type", structuredMode), "field cents"},
		{message(with("data", `{"schema":null,"payload":{}}`), "content-type", structuredMode), "ConnectJSON"},
		{message(with("datacontenttype", `"text/plain"`), "content-type", structuredMode), "let Data be []byte"},
		{message("s3cret", "content-type", structuredMode), "not a JSON object"},
		{&consumer.Message{Headers: message("", "content-type", structuredMode).Headers}, "not a JSON object"},
	} {
		event, called, err := read(t, consumer.ParseCloudEvent[tagged], test.msg)
		if called || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: called %v, %+v, %v; want an error that says %q", test.msg.Value, called, event, err, test.want)
		}
	}
	if _, _, err := read(t, consumer.ParseCloudEvent[[]byte], message(with("datacontenttype", `"text/plain"`),
		"content-type", structuredMode)); err == nil {
		t.Error("an object as data of text is taken for bytes")
	}
	if _, _, err := read(t, consumer.ParseCloudEvent[tagged],
		message(`{"specversion":"1.0","id":"ev-1","source":"s","type":"t","data_base64":"?"}`, "content-type",
			structuredMode)); err == nil {
		t.Error("what is not base64 is taken for it")
	}
}

func TestDecodeOfNothing(t *testing.T) {
	t.Parallel()
	if consumer.Decode[int](nil, func(context.Context, int) error { return nil }) != nil ||
		consumer.Decode(plain[int], nil) != nil {
		t.Error("want nil, which New refuses")
	}
}
