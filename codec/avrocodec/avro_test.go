package avrocodec_test

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/einmal-go/einmal/codec/avrocodec"
	"github.com/einmal-go/einmal/codec/internal/codectest"
	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

const confirmed = `{"type": "record", "name": "Confirmed", "fields": [
	{"name": "id", "type": "string"},
	{"name": "cents", "type": "long"},
	{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
	{"name": "note", "type": ["null", "string"], "default": null},
	{"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "text", "type": "string"}]}}, "default": []}]}`

type line struct {
	Text string `avro:"text"`
}

type event struct {
	ID    string    `avro:"id"`
	Cents int64     `avro:"cents"`
	At    time.Time `avro:"at"`
	Note  *string   `avro:"note"`
	Lines []line    `avro:"lines"`
}

func someEvent() event {
	note := codectest.Secret
	return event{ID: "o1", Cents: -5, At: time.UnixMicro(1_700_000_000_000_000).UTC(), Note: &note,
		Lines: []line{{"a"}, {codectest.Secret}}}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// framed is a value in the wire format.
func framed(t *testing.T, id int, schema string, v any) []byte {
	t.Helper()
	b := must[[]byte](t)(avro.Marshal(avro.MustParse(schema), v))
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), b...)
}

func message(value []byte) *consumer.Message { return &consumer.Message{Value: value} }

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	id := s.Add("orders-value", confirmed, sr.TypeAvro)
	enc := must[*avrocodec.Encoder[event]](t)(avrocodec.NewEncoder[event](s.Registry, "orders-value", confirmed, nil))
	if err := enc.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := s.Requests.Load()
	value := must[[]byte](t)(enc.Encode(t.Context(), someEvent()))
	if got := must[[]byte](t)(enc.Encode(t.Context(), someEvent())); !slices.Equal(got, value) ||
		!slices.Equal(value, framed(t, id, confirmed, someEvent())) {
		t.Errorf("Encode() = %x", got)
	}
	if s.Requests.Load() != asked {
		t.Error("the id was asked for after Check")
	}
	decode := must[func(*consumer.Message) (event, error)](t)(avrocodec.NewDecoder[event](s.Registry, confirmed, nil))
	for range 3 {
		if got := must[event](t)(decode(message(value))); !reflect.DeepEqual(got, someEvent()) {
			t.Errorf("decode() = %+v", got)
		}
	}
	if n := s.Requests.Load() - asked; n != 1 {
		t.Errorf("%d requests for one schema", n)
	}
	pointer := must[func(*consumer.Message) (*event, error)](t)(avrocodec.NewDecoder[*event](s.Registry, confirmed, nil))
	if got := must[*event](t)(pointer(message(value))); !reflect.DeepEqual(*got, someEvent()) {
		t.Errorf("decode() = %+v", got)
	}
	if got, err := pointer(message(nil)); got != nil || err != nil {
		t.Errorf("a tombstone is %v, %v", got, err)
	}
	generic := must[func(*consumer.Message) (map[string]any, error)](t)(avrocodec.NewDecoder[map[string]any](s.Registry,
		confirmed, nil))
	if got := must[map[string]any](t)(generic(message(value))); got["id"] != "o1" || got["cents"] != int64(-5) {
		t.Errorf("decode() = %v", got)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	decode := must[func(*consumer.Message) (event, error)](t)(avrocodec.Plain[event](confirmed, nil))
	value := framed(t, 0, confirmed, someEvent())[5:]
	if got := must[event](t)(decode(message(value))); !reflect.DeepEqual(got, someEvent()) {
		t.Errorf("decode() = %+v", got)
	}
	_, err := decode(message(nil))
	codectest.Refused(t, err, "tombstone")
	_, err = decode(message(nil))
	if !errors.Is(err, consumer.ErrTombstone) || !errors.Is(err, consumer.ErrUndecodable) {
		t.Errorf("%v", err)
	}
}

// A schema's readers and writers do not change on one day.
func TestEvolution(t *testing.T) {
	t.Parallel()
	const (
		older = `{"type": "record", "name": "Confirmed", "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "int"}, {"name": "gone", "type": {"type": "map", "values": "string"}}]}`
		newer = `{"type": "record", "name": "Confirmed", "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "long"},
			{"name": "currency", "type": "string", "default": "EUR"}, {"name": "line", "type": {"type": "record", "name": "Line", "fields": [{"name": "text", "type": "string", "default": "none"}]}, "default": {}}]}`
	)
	type old struct {
		ID    string            `avro:"id"`
		Cents int32             `avro:"cents"`
		Gone  map[string]string `avro:"gone"`
	}
	type present struct {
		ID       string `avro:"id"`
		Cents    int64  `avro:"cents"`
		Currency string `avro:"currency"`
		Line     line   `avro:"line"`
	}
	s := codectest.NewServer(t)
	first, second := s.Add("a", older, sr.TypeAvro), s.Add("b", newer, sr.TypeAvro)
	decode := must[func(*consumer.Message) (present, error)](t)(avrocodec.NewDecoder[present](s.Registry, newer, nil))
	was := framed(t, first, older, old{"o1", 7, map[string]string{"k": "v"}})
	if got := must[present](t)(decode(message(was))); got != (present{"o1", 7, "EUR", line{"none"}}) {
		t.Errorf("an older value is %+v", got)
	}
	is := framed(t, second, newer, present{"o2", 8, "CHF", line{"x"}})
	if got := must[present](t)(decode(message(is))); got != (present{"o2", 8, "CHF", line{"x"}}) {
		t.Errorf("a newer value is %+v", got)
	}
	if got := must[present](t)(decode(message(was))); got.Currency != "EUR" {
		t.Errorf("an older value is %+v now", got)
	}

	// the other way round: a long may be too much for an int, and gone has no default
	backwards := must[func(*consumer.Message) (old, error)](t)(avrocodec.NewDecoder[old](s.Registry, older, nil))
	for range 2 {
		_, err := backwards(message(is))
		codectest.Refused(t, err, "schema "+itoa(second), "cannot be read as the schema that this service knows")
	}
}

func itoa(id int) string { return string(rune('0' + id)) }

func TestReferences(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	s.Add("line", `{"type": "record", "name": "Line", "fields": [{"name": "text", "type": "string"}]}`, sr.TypeAvro)
	id := s.Add("orders-value", `{"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}`,
		sr.TypeAvro, sr.SchemaReference{Name: "Line", Subject: "line", Version: 1})
	const whole = `{"type": "record", "name": "Order", "fields": [{"name": "line", "type": {"type": "record", "name": "Line", "fields": [{"name": "text", "type": "string"}]}}]}`
	type order struct {
		Line line `avro:"line"`
	}
	decode := must[func(*consumer.Message) (order, error)](t)(avrocodec.NewDecoder[order](s.Registry, whole, nil))
	if got := must[order](t)(decode(message(framed(t, id, whole, order{line{"x"}})))); got.Line.Text != "x" {
		t.Errorf("%+v", got)
	}
	asked := s.Requests.Load()
	must[order](t)(decode(message(framed(t, id, whole, order{line{"y"}}))))
	if s.Requests.Load() != asked {
		t.Error("what the schema imports is asked for again")
	}
}

// What is wrong with a value is permanent, is said with the schema and the field, and shows nothing of the value.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	id := s.Add("orders-value", confirmed, sr.TypeAvro)
	proto := s.Add("proto", `syntax = "proto3"; message A {}`, sr.TypeProtobuf)
	enum := s.Add("enum", `{"type": "enum", "name": "E", "symbols": ["A", "B"]}`, sr.TypeAvro)
	decode := must[func(*consumer.Message) (event, error)](t)(avrocodec.NewDecoder[event](s.Registry, confirmed, nil))
	value := framed(t, id, confirmed, someEvent())
	header := value[:5]
	for name, test := range map[string]struct {
		value []byte
		texts []string
	}{
		"JSON": {[]byte(`{"id": "` + codectest.Secret + `"}`),
			[]string{"avrocodec_test.event", "wire format"}},
		"no bytes":           {[]byte{}, []string{"wire format"}},
		"a part of a header": {value[:4], []string{"wire format"}},
		"a header alone":     {header, []string{"schema " + itoa(id), "ends too early"}},
		"it ends too early":  {value[:len(value)-8], []string{"schema " + itoa(id), "field Lines", "ends too early"}},
		"more follows": {append(slices.Clone(value), codectest.Secret...),
			[]string{"schema " + itoa(id), "bytes follow"}},
		"a length of -1": {append(slices.Clone(header), 1), []string{"field ID", "length"}},
		"a length of 1 GiB": {append(slices.Clone(header), 0x80, 0x80, 0x80, 0x80, 8),
			[]string{"field ID", "MaxByteSliceSize"}},
		"a schema of another": {binary.BigEndian.AppendUint32([]byte{0}, uint32(proto)),
			[]string{"schema " + itoa(proto), "PROTOBUF, not of Avro"}},
		"an enum": {append(binary.BigEndian.AppendUint32([]byte{0}, uint32(enum)), 0),
			[]string{"schema " + itoa(enum), "cannot be read as"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(message(test.value))
			if !reflect.DeepEqual(got, event{}) {
				t.Errorf("a part of an event: %+v", got)
			}
			codectest.Refused(t, err, test.texts...)
			if !errors.Is(err, consumer.ErrUndecodable) {
				t.Error("it does not wrap ErrUndecodable")
			}
		})
	}
}

// What a method of the event says of a value is not shown.
func TestMethodsOfTheEvent(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}`
	type of struct {
		A picky `avro:"a"`
	}
	decode := must[func(*consumer.Message) (of, error)](t)(avrocodec.Plain[of](schema, nil))
	_, err := decode(message(append([]byte{byte(2 * len(codectest.Secret))}, codectest.Secret...)))
	codectest.Refused(t, err, "field A", "UnmarshalText")
}

type picky string

func (*picky) UnmarshalText(text []byte) error { return errors.New("no: " + string(text)) }

// An array of nothing costs its writer no byte, and must not cost its reader all memory.
func TestArrayOfNothing(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}]}`
	type of struct {
		A []string `avro:"a"`
	}
	decode := must[func(*consumer.Message) (of, error)](t)(avrocodec.Plain[of](schema, nil))
	_, err := decode(message(binary.AppendVarint(nil, 1<<40)))
	codectest.Refused(t, err, "field A", "MaxSliceAllocSize")
}

func TestLargeFields(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 4<<20)
	decode := must[func(*consumer.Message) (string, error)](t)(avrocodec.Plain[string](`"string"`, nil))
	value := must[[]byte](t)(avro.Marshal(avro.MustParse(`"string"`), large))
	if got := must[string](t)(decode(message(value))); got != large {
		t.Error("it is not as it was written")
	}
	small := must[func(*consumer.Message) (string, error)](t)(avrocodec.Plain[string](`"string"`,
		&avrocodec.Config{MaxField: 1 << 20}))
	_, err := small(message(value))
	codectest.Refused(t, err, "MaxByteSliceSize")
}

// A registry that is away is no fault of an event, and known schemas need none.
func TestRegistryAway(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	first, second := s.Add("a", confirmed, sr.TypeAvro),
		s.Add("b", strings.Replace(confirmed, `"Confirmed"`, `"Confirmed", "doc": "b"`, 1), sr.TypeAvro)
	decode := must[func(*consumer.Message) (event, error)](t)(avrocodec.NewDecoder[event](s.Registry, confirmed, nil))
	must[event](t)(decode(message(framed(t, first, confirmed, someEvent()))))
	s.Away.Store(true)
	must[event](t)(decode(message(framed(t, first, confirmed, someEvent()))))
	_, err := decode(message(framed(t, second, confirmed, someEvent())))
	if _, again := consumer.Delay(err); !again || dedupstore.ClassOf(err) != dedupstore.Unavailable {
		t.Errorf("decode() = %v", err)
	}
	enc := must[*avrocodec.Encoder[event]](t)(avrocodec.NewEncoder[event](s.Registry, "a", confirmed, nil))
	if _, err := enc.Encode(t.Context(), someEvent()); err == nil || errors.Is(err, schemaregistry.ErrNotRegistered) {
		t.Errorf("Encode() = %v", err)
	}
	s.Away.Store(false)
	must[[]byte](t)(enc.Encode(t.Context(), someEvent()))
	for again := true; again; _, again = consumer.Delay(err) {
		_, err = decode(message(framed(t, second, confirmed, someEvent())))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestEncoder(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	enc := must[*avrocodec.Encoder[event]](t)(avrocodec.NewEncoder[event](s.Registry, "orders-value", confirmed, nil))
	if _, err := enc.Encode(t.Context(), someEvent()); !errors.Is(err, schemaregistry.ErrNotRegistered) ||
		!strings.Contains(err.Error(), "EncoderConfig.Register") {
		t.Errorf("Encode() = %v", err)
	}
	registering := must[*avrocodec.Encoder[event]](t)(avrocodec.NewEncoder[event](s.Registry, "orders-value", confirmed,
		&avrocodec.EncoderConfig{Register: true}))
	must[[]byte](t)(registering.Encode(t.Context(), someEvent()))
	must[[]byte](t)(enc.Encode(t.Context(), someEvent()))

	const enum = `{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}]}`
	type of struct {
		A string `avro:"a"`
	}
	strict := must[*avrocodec.Encoder[of]](t)(avrocodec.NewEncoder[of](s.Registry, "enum", enum,
		&avrocodec.EncoderConfig{Register: true}))
	_, err := strict.Encode(t.Context(), of{codectest.Secret})
	if err == nil || strings.Contains(err.Error(), codectest.Secret) || !strings.Contains(err.Error(), "field A") {
		t.Errorf("Encode() = %v", err)
	}
}

// A mistake in the code is found when the service starts, and not by the first event, which is right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	type wrong struct {
		Cents string `avro:"cents"`
	}
	type inner struct {
		Lines []struct {
			Text int `avro:"text"`
		} `avro:"lines"`
	}
	type branch struct {
		Note *int `avro:"note"`
	}
	for name, err := range map[string]error{
		"no schema":          second(avrocodec.NewDecoder[event](s.Registry, `{"type": "xyz"}`, nil)),
		"no registry":        second(avrocodec.NewDecoder[event](nil, confirmed, nil)),
		"another type":       second(avrocodec.NewDecoder[wrong](s.Registry, confirmed, nil)),
		"in a list":          second(avrocodec.Plain[inner](confirmed, nil)),
		"in a branch":        second(avrocodec.Plain[branch](confirmed, nil)),
		"an encoder's":       second(avrocodec.NewEncoder[event](s.Registry, "a", `x`, nil)),
		"no subject":         second(avrocodec.NewEncoder[event](s.Registry, "", confirmed, nil)),
		"an encoder without": second(avrocodec.NewEncoder[event](nil, "a", confirmed, nil)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A schema may be made of itself.
func TestRecursion(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "record", "name": "Tree", "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Tree"]}, {"name": "all", "type": {"type": "array", "items": "Tree"}}]}`
	type tree struct {
		N    int    `avro:"n"`
		Next *tree  `avro:"next"`
		All  []tree `avro:"all"`
	}
	decode := must[func(*consumer.Message) (tree, error)](t)(avrocodec.Plain[tree](schema, nil))
	want := tree{N: 1, Next: &tree{N: 2, All: []tree{}}, All: []tree{{N: 3, All: []tree{}}}}
	if got := must[tree](t)(decode(message(framed(t, 0, schema, want)[5:]))); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestConcurrently(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	id := s.Add("orders-value", confirmed, sr.TypeAvro)
	decode := must[func(*consumer.Message) (event, error)](t)(avrocodec.NewDecoder[event](s.Registry, confirmed, nil))
	value, asked := framed(t, id, confirmed, someEvent()), s.Requests.Load()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 50 {
				if got, err := decode(message(value)); err != nil || got.ID != "o1" {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
	all.Wait()
	if n := s.Requests.Load() - asked; n != 1 {
		t.Errorf("%d requests", n)
	}
}

func FuzzDecode(f *testing.F) {
	decode, err := avrocodec.Plain[event](confirmed, nil)
	if err != nil {
		f.Fatal(err)
	}
	value, err := avro.Marshal(avro.MustParse(confirmed), someEvent())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		var got event
		var err error
		fuzztest.Bounded(t, len(value), 1<<20, func() { got, err = decode(message(value)) })
		if err != nil && !errors.Is(err, consumer.ErrUndecodable) {
			t.Errorf("%v", err)
		}
		if err != nil && !reflect.DeepEqual(got, event{}) {
			t.Errorf("a part of an event: %+v", got)
		}
	})
}
