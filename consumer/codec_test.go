package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

type line struct {
	SKU   string `json:"sku"`
	Price int    `json:"price"`
}

type order struct {
	ID      string           `json:"id"`
	Total   int              `json:"total"`
	Lines   []line           `json:"lines"`
	ByName  map[string]line  `json:"by_name"`
	ByNo    map[uint8]line   `json:"by_no"`
	At      time.Time        `json:"at"`
	From    netip.Addr       `json:"from"`
	Weight  json.Number      `json:"weight"`
	Quoted  int              `json:"quoted,string"`
	Picture []byte           `json:"picture"`
	Parent  *order           `json:"parent"`
	Loud    loud             `json:"loud"`
	Any     any              `json:"any"`
	Iface   fmt.Stringer     `json:"iface"`
	Extra   map[string]*loud `json:"extra"`
}

// loud is what an UnmarshalJSON must not be: its error repeats what it was given.
type loud struct{}

func (*loud) UnmarshalJSON(b []byte) error { return errors.New("cannot read " + string(b)) }

// decodeWith runs JSON[E] on value. called reports whether the function ran.
func decodeWith[E any](t *testing.T, value []byte) (event E, called bool, err error) {
	t.Helper()
	h := consumer.JSON(func(_ context.Context, e E) error {
		event, called = e, true
		return nil
	})
	err = h.Handle(t.Context(), &consumer.Message{Value: value})
	return event, called, err
}

func TestJSON(t *testing.T) {
	t.Parallel()
	event, called, err := decodeWith[order](t,
		[]byte(`{"id":"o1","total":7,"lines":[{"sku":"a","price":7}],"unknown":true}`))
	if err != nil || !called {
		t.Fatalf("called %v, err %v", called, err)
	}
	if want := (order{ID: "o1", Total: 7, Lines: []line{{"a", 7}}}); !reflect.DeepEqual(event, want) {
		t.Errorf("got %+v, want %+v", event, want)
	}
}

func TestJSONReturnsTheFunctionsError(t *testing.T) {
	t.Parallel()
	want := errors.New("no stock")
	h := consumer.JSON(func(context.Context, order) error { return want })
	if err := h.Handle(t.Context(), &consumer.Message{Value: []byte(`{}`)}); err != want { //nolint:errorlint // as it is
		t.Errorf("got %v, want %v as it is", err, want)
	}
}

func TestJSONTxPassesTransactionAndEvent(t *testing.T) {
	t.Parallel()
	type tx struct{ id int }
	h := consumer.JSONTx(func(ctx context.Context, tx *tx, event order) error {
		if msg, ok := consumer.MessageFrom(ctx); !ok || msg.Offset != 5 {
			t.Errorf("MessageFrom = %v, %v", msg, ok)
		}
		if tx.id != 3 || event.ID != "o1" {
			t.Errorf("got tx %d, event %q", tx.id, event.ID)
		}
		return nil
	})
	msg := &consumer.Message{Offset: 5, Value: []byte(`{"id":"o1"}`)}
	if err := h(consumer.WithMessage(t.Context(), msg), &tx{3}, msg); err != nil {
		t.Fatal(err)
	}
	msg.Value = []byte(`[]`)
	if err := h(t.Context(), nil, msg); !consumer.IsPermanent(err) {
		t.Errorf("undecodable value: got %v, want a permanent error", err)
	}
}

func TestCodecsOfNothingAreNil(t *testing.T) {
	t.Parallel()
	decode := func(*consumer.Message) (int, error) { return 0, nil }
	fn := func(context.Context, int, int) error { return nil }
	if consumer.JSON[order](nil) != nil {
		t.Error("JSON(nil) is not nil: New could not see it")
	}
	if consumer.JSONTx[int, order](nil) != nil ||
		consumer.DecodeTx(decode, (func(context.Context, int, int) error)(nil)) != nil ||
		consumer.DecodeTx((func(*consumer.Message) (int, error))(nil), fn) != nil {
		t.Error("JSONTx or DecodeTx of nil is not nil: Dedup could not see it")
	}
}

// What is decoded into what, where nothing or null is there.
func TestJSONAbsentEvents(t *testing.T) {
	t.Parallel()
	const tombstone = "<tombstone>"
	refused := func(t *testing.T, called bool, err error, isTombstone bool) {
		t.Helper()
		var decode *consumer.DecodeError
		if called || !consumer.IsPermanent(err) || !errors.As(err, &decode) {
			t.Errorf("called %v, err %v; want no call and a permanent *DecodeError", called, err)
		}
		if errors.Is(err, consumer.ErrTombstone) != isTombstone {
			t.Errorf("wraps ErrTombstone: %v, want %v", !isTombstone, isTombstone)
		}
	}
	for _, value := range []string{tombstone, "null", " null\r\n", ""} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			bytes := []byte(value)
			if value == tombstone {
				bytes = nil
			}
			p, called, err := decodeWith[*order](t, bytes)
			if value == "" {
				refused(t, called, err, false)
			} else if p != nil || !called || err != nil {
				t.Errorf("pointer: got %v, called %v, err %v; want nil", p, called, err)
			}
			raw, called, err := decodeWith[json.RawMessage](t, bytes)
			if bytes == nil || value == "" {
				refused(t, called, err, bytes == nil)
			} else if err != nil || strings.TrimSpace(string(raw)) != "null" {
				t.Errorf("RawMessage: got %q, err %v; want the literal", raw, err)
			}
			_, called, err = decodeWith[order](t, bytes)
			refused(t, called, err, bytes == nil)
			_, called, err = decodeWith[time.Time](t, bytes) // its UnmarshalJSON accepts null
			refused(t, called, err, bytes == nil)
			_, called, err = decodeWith[map[string]any](t, bytes)
			refused(t, called, err, bytes == nil)
			_, called, err = decodeWith[any](t, bytes)
			refused(t, called, err, bytes == nil)
			_, called, err = decodeWith[[]byte](t, bytes)
			refused(t, called, err, bytes == nil)
		})
	}
}

func TestJSONFurtherTypes(t *testing.T) {
	t.Parallel()
	value := []byte(`{"a":[1]}`)
	raw, _, err := decodeWith[json.RawMessage](t, value)
	value[0] = '!'
	if string(raw) != `{"a":[1]}` || err != nil {
		t.Errorf("RawMessage: got %s, %v; want a copy of the text", raw, err)
	}
	if got, _, err := decodeWith[[]byte](t, []byte(`"aGk="`)); string(got) != "hi" || err != nil {
		t.Errorf("[]byte: got %q, %v; want the base64 decoded", got, err)
	}
	if got, _, err := decodeWith[any](t, []byte(`[1]`)); !reflect.DeepEqual(got, []any{1.0}) || err != nil {
		t.Errorf("any: got %v, %v", got, err)
	}
}

// versionless is what differs between the versions of encoding/json: offsets, and elements in a path.
var versionless = regexp.MustCompile(` \(after \d+ bytes\)|\.\*`)

func TestDecodeErrorSaysWhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ value, want string }{
		{`{"id":`, "decode consumer_test.order: not valid JSON"},
		{"\x00\x00\x00\x00\x07s3cret",
			"decode consumer_test.order: the value is no JSON but begins as Confluent's wire format does, " +
				"which producers with a schema registry write: decode it by package codec/avrocodec or codec/protocodec"},
		{"\x00\x00s3", "decode consumer_test.order: not valid JSON"},
		{`{"id":"s3cret"} s3cret`, "decode consumer_test.order: not valid JSON"},
		{``, "decode consumer_test.order: the value is empty, which is not JSON"},
		{`{"total":"s3cret"}`, "decode consumer_test.order, field total: a JSON string does not fit into a Go int"},
		{`{"total":4711.5}`, "decode consumer_test.order, field total: a JSON number does not fit into a Go int"},
		{`{"lines":[{"price":4711.5}]}`,
			"decode consumer_test.order, field lines.price: a JSON number does not fit into a Go int"},
		{`{"by_no":{"4711":{}}}`, "decode consumer_test.order, field by_no: a JSON number does not fit into a Go uint8"},
		{`{"at":"s3cret"}`, "decode consumer_test.order: refused by an UnmarshalJSON or UnmarshalText method or by encoding/json (*time.ParseError)"},
		{`{"loud":"s3cret"}`, "decode consumer_test.order: refused by an UnmarshalJSON or UnmarshalText method or by encoding/json (*errors.errorString)"},
	} {
		_, called, err := decodeWith[order](t, []byte(test.value))
		if called || !consumer.IsPermanent(err) {
			t.Errorf("%s: called %v, err %v; want no call and a permanent error", test.value, called, err)
			continue
		}
		if got := versionless.ReplaceAllString(err.Error(), ""); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.value, got, test.want)
		}
	}
}

// Some versions of encoding/json put keys of maps into the field's path, and a method may return an error made by hand.
func TestDecodeErrorHidesMapKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  json.UnmarshalTypeError
		want string
	}{
		{
			json.UnmarshalTypeError{Value: "number 4711", Type: reflect.TypeFor[int](), Field: "by_name.s3cret.price"},
			"decode consumer_test.forged, field by_name.*.price: a JSON number does not fit into a Go int",
		},
		{
			json.UnmarshalTypeError{Value: "s3cret", Field: "Inner.s3cret", Offset: 3},
			"decode consumer_test.forged, field Inner.*: a JSON value does not fit (after 3 bytes)",
		},
		{
			json.UnmarshalTypeError{Value: "bool", Field: strings.Repeat("Inner.", 1000)},
			"decode consumer_test.forged, field " + strings.Repeat("Inner.", 33) + "In...: a JSON bool does not fit",
		},
	} {
		forgedErr.Store(t.Name(), &test.err)
		_, _, err := decodeWith[forged](t, []byte(`"`+t.Name()+`"`))
		if err == nil || err.Error() != test.want {
			t.Errorf("\n got %v\nwant %s", err, test.want)
		}
	}
}

func TestDecodeErrorOffset(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"id":"o1"} o2`, `{"total":"7"}`} {
		_, _, err := decodeWith[order](t, []byte(value))
		var decode *consumer.DecodeError
		if !errors.As(err, &decode) || decode.Offset < 9 || decode.Offset > 13 ||
			!strings.HasSuffix(err.Error(), fmt.Sprintf("(after %d bytes)", decode.Offset)) {
			t.Errorf("%s: %v, %+v; want the place", value, err, decode)
		}
	}
}

func TestDecodeErrorUnwraps(t *testing.T) {
	t.Parallel()
	_, _, err := decodeWith[order](t, []byte(`{"at":"yesterday"}`))
	if _, ok := errors.AsType[*time.ParseError](err); !ok {
		t.Errorf("%#v does not wrap the *time.ParseError", err)
	}
}

func TestDecodeTxErrors(t *testing.T) {
	t.Parallel()
	plain := errors.New("unknown schema")
	for _, test := range []struct {
		name      string
		err       error
		permanent bool
	}{
		{"plain", plain, true},
		{"permanent", consumer.Permanent(plain), true},
		{"retry after", consumer.RetryAfter(time.Second, plain), false},
		{"wrapped retry after", fmt.Errorf("registry: %w", consumer.RetryAfter(time.Second, plain)), false},
	} {
		decode := func(*consumer.Message) (int, error) { return 0, test.err }
		h := consumer.DecodeTx(decode, func(context.Context, int, int) error {
			t.Error("called although decode failed")
			return nil
		})
		err := h(t.Context(), 0, &consumer.Message{})
		if consumer.IsPermanent(err) != test.permanent || !errors.Is(err, plain) {
			t.Errorf("%s: got %v, permanent %v", test.name, err, consumer.IsPermanent(err))
		}
		if d, ok := consumer.Delay(err); ok == test.permanent || !test.permanent && d != time.Second {
			t.Errorf("%s: Delay = %v, %v", test.name, d, ok)
		}
	}
}

// safeText is all that the error of an undecodable order may say: constants, Go types, names of fields, numbers of
// bytes.
var safeText = func() *regexp.Regexp {
	const (
		field  = `(\*|[A-Za-z_]+)`
		goType = `(interface \{\}|[][*\w.]+)`
		kind   = `JSON (array|bool|null|number|object|string|value)`
	)
	reasons := []string{
		`not valid JSON`,
		`the value is empty, which is not JSON`,
		`the value is the JSON literal null, and only an event that is a pointer may be null`,
		regexp.QuoteMeta(consumer.ErrTombstone.Error()),
		`the value (is an envelope of Kafka Connect|is a CloudEvent in structured mode|has none of the fields of the event)[ ,:.=()A-Za-z]*`,
		`a ` + kind + ` does not fit into a Go ` + goType,
		`refused by an UnmarshalJSON or UnmarshalText method or by encoding/json \(` + goType + `\)`,
	}
	return regexp.MustCompile(`^decode ` + goType + `(, field ` + field + `(\.` + field + `)*)?: (` +
		strings.Join(reasons, "|") + `)( \(after \d+ bytes\))?$`)
}()

// FuzzJSON decodes anything into all kinds of events: never a panic, and no error says more than safeText.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{"total":1.5}`, `{"total":99999999999999999999}`, `{"at":"x"}`, `{"loud":1}`,
		`{"from":"::z"}`, `{"weight":"1z"}`,
		`{"quoted":"x"}`, `{"quoted":1}`, `{"picture":"!"}`, `{"by_no":{"300":{}}}`, `{"by_name":{"k":{"price":true}}}`,
		`{"iface":1}`,
		`{"extra":{"k":1}}`, `{"k":1}`, `{"schema":1,"payload":2}`, `{"specversion":"1.0","id":"e","source":"s","type":"t"}`,
		`{"parent":{"parent":{"lines":{}}}}`, "\x00", "\xff\xfe", `"\ud800"`, `{"id":"a"}b`, `1e999`,
		strings.Repeat("[", 10001),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, check := range []func(*testing.T, []byte){
			checkSafe[order], checkSafe[*order], checkSafe[map[string]order], checkSafe[[]line], checkSafe[json.RawMessage],
			checkSafe[[]byte], checkSafe[any],
			checkSafe[float32], checkSafe[time.Time], checkSafe[loud],
		} {
			fuzztest.Bounded(t, len(value), 1<<20, func() { check(t, value) })
		}
	})
}

func checkSafe[E any](t *testing.T, value []byte) {
	t.Helper()
	_, called, err := decodeWith[E](t, value)
	if called != (err == nil) {
		t.Errorf("called %v, err %v", called, err)
	}
	if err != nil && (!consumer.IsPermanent(err) || !safeText.MatchString(err.Error())) {
		t.Errorf("%v of %.200q: permanent %v, says %q", reflect.TypeFor[E](), value, consumer.IsPermanent(err), err)
	}
}

// forged decodes a string to the error that the test of that name stored.
type forged struct {
	Inner  *forged
	ByName map[string]line `json:"by_name"`
}

var forgedErr sync.Map

func (*forged) UnmarshalJSON(b []byte) error {
	err, _ := forgedErr.Load(strings.Trim(string(b), `"`))
	return err.(error)
}
