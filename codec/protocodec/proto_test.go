package protocodec_test

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/einmal-go/einmal/codec/internal/codectest"
	"github.com/einmal-go/einmal/codec/protocodec"
	"github.com/einmal-go/einmal/codec/protocodec/internal/orders"
	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

type confirmed = *orders.Shop_Confirmed

func someEvent() confirmed {
	return &orders.Shop_Confirmed{Id: "o1", Cents: -5, Line: &orders.Shop_Line{Text: codectest.Secret}}
}

// schema is what the messages were generated from.
func schema(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("internal/orders/orders.proto")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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

// framed is a value in the wire format. Index is what stands before the message.
func framed(t *testing.T, id int, index []byte, m proto.Message) []byte {
	t.Helper()
	b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), index...)
	return append(b, must[[]byte](t)(proto.Marshal(m))...)
}

func message(value []byte) *consumer.Message { return &consumer.Message{Value: value} }

func decoder(t *testing.T, s *codectest.Server) func(*consumer.Message) (confirmed, error) {
	t.Helper()
	return must[func(*consumer.Message) (confirmed, error)](t)(protocodec.NewDecoder[confirmed](s.Registry))
}

// inShop is the path of Shop.Confirmed: two steps, the second message of the file, the first one in that. Numbers are
// zigzag.
var inShop = []byte{4, 2, 0}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	id := s.Add("orders-value", schema(t), sr.TypeProtobuf)
	enc := must[*protocodec.Encoder[confirmed]](t)(protocodec.NewEncoder[confirmed](s.Registry, "orders-value"))
	if err := enc.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := s.Requests.Load()
	value := must[[]byte](t)(enc.Encode(t.Context(), someEvent()))
	if want := framed(t, id, inShop, someEvent()); !slices.Equal(value[:8], want[:8]) || s.Requests.Load() != asked {
		t.Errorf("Encode() = %x, want %x", value, want)
	}
	decode := decoder(t, s)
	for range 3 {
		if got := must[confirmed](t)(decode(message(value))); !proto.Equal(got, someEvent()) {
			t.Errorf("decode() = %v", got)
		}
	}
	if n := s.Requests.Load() - asked; n != 1 {
		t.Errorf("%d requests for one schema", n)
	}

	// the first message of a file has a path of one byte
	first := must[*protocodec.Encoder[*orders.Cancelled]](t)(protocodec.NewEncoder[*orders.Cancelled](s.Registry,
		"orders-value"))
	cancelled := must[[]byte](t)(first.Encode(t.Context(), &orders.Cancelled{Id: "o1"}))
	if want := framed(t, id, []byte{0}, &orders.Cancelled{Id: "o1"}); !slices.Equal(cancelled, want) {
		t.Errorf("Encode() = %x, want %x", cancelled, want)
	}
	_, err := decode(message(cancelled))
	codectest.Refused(t, err, "schema "+itoa(id), "it is a shop.Cancelled")
}

func itoa(id int) string { return string(rune('0' + id)) }

func TestPlain(t *testing.T) {
	t.Parallel()
	value := must[[]byte](t)(proto.Marshal(someEvent()))
	if got := must[confirmed](t)(protocodec.Plain[confirmed](message(value))); !proto.Equal(got, someEvent()) {
		t.Errorf("decode() = %v", got)
	}
	if got := must[confirmed](t)(protocodec.Plain[confirmed](message([]byte{}))); !proto.Equal(got,
		&orders.Shop_Confirmed{}) {
		t.Errorf("no bytes are %v", got)
	}
	_, err := protocodec.Plain[confirmed](message(nil))
	codectest.Refused(t, err, "tombstone")
	if !errors.Is(err, consumer.ErrTombstone) {
		t.Errorf("%v", err)
	}
}

// Writers may have another version of the schema, in which messages stand in another order.
func TestEvolution(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	older := s.Add("a", `syntax = "proto3"; package shop; message Shop { message Confirmed { string id = 1; } }`,
		sr.TypeProtobuf)
	newer := s.Add("b", `syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
		message Shop { message Line { string text = 1; } message Confirmed { string id = 1; int64 cents = 2; Line line = 3; google.protobuf.Timestamp at = 9; } }`, sr.TypeProtobuf)
	decode := decoder(t, s)
	if got := must[confirmed](t)(decode(message(framed(t, older, []byte{4, 0, 0},
		&orders.Shop_Confirmed{Id: "o1"})))); !proto.Equal(got, &orders.Shop_Confirmed{Id: "o1"}) {
		t.Errorf("an older value is %v", got)
	}
	value := framed(t, newer, []byte{4, 0, 2}, someEvent())
	at := must[[]byte](t)(proto.Marshal(&timestamppb.Timestamp{Seconds: 5}))
	value = append(append(value, 9<<3|2, byte(len(at))), at...)
	got := must[confirmed](t)(decode(message(value)))
	if len(got.ProtoReflect().GetUnknown()) == 0 {
		t.Error("the field that it does not know is lost")
	}
	got.ProtoReflect().SetUnknown(nil)
	if !proto.Equal(got, someEvent()) {
		t.Errorf("a newer value is %v", got)
	}
	_, err := decode(message(framed(t, newer, inShop, someEvent()))) // in the newer one that is nothing
	codectest.Refused(t, err, "schema "+itoa(newer), "no message at [1 0]")
}

func TestReferences(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	s.Add("line", `syntax = "proto3"; package shop; message Text { string text = 1; }`, sr.TypeProtobuf)
	id := s.Add("orders-value", `syntax = "proto3"; package shop; import "shop/text.proto"; message Cancelled { Text id = 1; }`, sr.TypeProtobuf,
		sr.SchemaReference{Name: "shop/text.proto", Subject: "line", Version: 1})
	decode := must[func(*consumer.Message) (*orders.Cancelled,
		error)](t)(protocodec.NewDecoder[*orders.Cancelled](s.Registry))
	if got := must[*orders.Cancelled](t)(decode(message(framed(t, id, []byte{0},
		&orders.Cancelled{Id: "x"})))); got.GetId() != "x" {
		t.Errorf("%v", got)
	}
	asked := s.Requests.Load()
	must[*orders.Cancelled](t)(decode(message(framed(t, id, []byte{0}, &orders.Cancelled{Id: "y"}))))
	if s.Requests.Load() != asked {
		t.Error("what the schema imports is asked for again")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	id := s.Add("orders-value", schema(t), sr.TypeProtobuf)
	avro := s.Add("avro", `"string"`, sr.TypeAvro)
	broken := s.Add("broken", `message {`, sr.TypeProtobuf)
	decode := decoder(t, s)
	value := framed(t, id, inShop, someEvent())
	for name, test := range map[string]struct {
		value []byte
		texts []string
	}{
		"a tombstone":       {nil, []string{"tombstone"}},
		"JSON":              {[]byte(`{"id": "` + codectest.Secret + `"}`), []string{"orders.Shop_Confirmed", "wire format"}},
		"a header alone":    {value[:5], []string{"schema " + itoa(id), "path"}},
		"a long path":       {append(slices.Clone(value[:5]), 0x80, 0x80, 0x80, 0x80, 8), []string{"path"}},
		"a path below zero": {append(slices.Clone(value[:5]), 2, 1), []string{"no message at [-1]"}},
		"it ends too early": {value[:len(value)-3], []string{"schema " + itoa(id), "not those of such a message"}},
		"an Avro schema":    {framed(t, avro, inShop, someEvent()), []string{"AVRO, not of Protobuf"}},
		"a broken schema":   {framed(t, broken, inShop, someEvent()), []string{"schema " + itoa(broken), "cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(message(test.value))
			if got != nil {
				t.Errorf("a part of an event: %v", got)
			}
			codectest.Refused(t, err, test.texts...)
			if !errors.Is(err, consumer.ErrUndecodable) {
				t.Error("it does not wrap ErrUndecodable")
			}
		})
	}
}

// A required field of proto2 that is missing is named.
func TestRequired(t *testing.T) {
	t.Parallel()
	value := must[[]byte](t)(proto.MarshalOptions{AllowPartial: true}.Marshal(&descriptorpb.UninterpretedOption{Name: []*descriptorpb.UninterpretedOption_NamePart{{}}}))
	got, err := protocodec.Plain[*descriptorpb.UninterpretedOption](message(value))
	if got != nil {
		t.Error("a part of an event")
	}
	codectest.Refused(t, err, "google.protobuf.UninterpretedOption.NamePart.name_part")
}

func TestRegistryAway(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	id := s.Add("orders-value", schema(t), sr.TypeProtobuf)
	decode := decoder(t, s)
	s.Away.Store(true)
	_, err := decode(message(framed(t, id, inShop, someEvent())))
	if _, again := consumer.Delay(err); !again || dedupstore.ClassOf(err) != dedupstore.Unavailable {
		t.Errorf("decode() = %v", err)
	}
	s.Away.Store(false)
	for again := true; again; _, again = consumer.Delay(err) {
		_, err = decode(message(framed(t, id, inShop, someEvent())))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestEncoder(t *testing.T) {
	t.Parallel()
	s := codectest.NewServer(t)
	enc := must[*protocodec.Encoder[confirmed]](t)(protocodec.NewEncoder[confirmed](s.Registry, "orders-value"))
	if _, err := enc.Encode(t.Context(), someEvent()); !errors.Is(err, schemaregistry.ErrNotRegistered) {
		t.Errorf("Encode() = %v", err)
	}
	s.Add("orders-value", `syntax = "proto3"; message Other {}`, sr.TypeProtobuf)
	if _, err := enc.Encode(t.Context(), someEvent()); !errors.Is(err, schemaregistry.ErrNotRegistered) ||
		!strings.Contains(err.Error(), "has no message shop.Shop.Confirmed") {
		t.Errorf("Encode() = %v", err)
	}
	s.Add("good", schema(t), sr.TypeProtobuf)
	enc = must[*protocodec.Encoder[confirmed]](t)(protocodec.NewEncoder[confirmed](s.Registry, "good"))
	if _, err := enc.Encode(t.Context(), nil); err == nil {
		t.Error("a nil event was written")
	}
	_, err := enc.Encode(t.Context(), &orders.Shop_Confirmed{Id: codectest.Secret + "\xff"})
	if err == nil || strings.Contains(err.Error(), codectest.Secret) {
		t.Errorf("Encode() = %v", err)
	}
	for name, err := range map[string]error{
		"no registry":        second(protocodec.NewDecoder[confirmed](nil)),
		"no subject":         second(protocodec.NewEncoder[confirmed](s.Registry, "")),
		"an encoder without": second(protocodec.NewEncoder[confirmed](nil, "a")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func FuzzDecode(f *testing.F) {
	value, err := proto.Marshal(someEvent())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		var err error
		fuzztest.Bounded(t, len(value), 1<<20, func() { _, err = protocodec.Plain[confirmed](message(value)) })
		if err != nil && !errors.Is(err, consumer.ErrUndecodable) {
			t.Errorf("%v", err)
		}
	})
}
