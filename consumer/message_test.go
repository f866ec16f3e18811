package consumer_test

import (
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

func TestMessageHeader(t *testing.T) {
	t.Parallel()
	msg := &consumer.Message{Headers: []consumer.Header{
		{Key: "a", Value: []byte("1")}, {}, {Key: "b"}, {Key: "a", Value: []byte("2")}, {Key: "c", Value: []byte{}},
	}}
	if v, ok := msg.Header("a"); !ok || string(v) != "2" {
		t.Errorf("repeated header: got %q, %v; want the last", v, ok)
	}
	if v, ok := msg.Header("b"); !ok || v != nil {
		t.Errorf("nil value: got %v, %v", v, ok)
	}
	if v, ok := msg.Header("c"); !ok || v == nil || len(v) != 0 {
		t.Errorf("empty value: got %v, %v", v, ok)
	}
	if _, ok := msg.Header(""); !ok {
		t.Error("a header with an empty key is not found")
	}
	if v, ok := msg.Header("A"); ok {
		t.Errorf("other case: got %q", v)
	}
	if _, ok := new(consumer.Message).Header("a"); ok {
		t.Error("found a header where there are none")
	}
}

func TestMessageFrom(t *testing.T) {
	t.Parallel()
	if msg, ok := consumer.MessageFrom(t.Context()); ok || msg != nil {
		t.Errorf("empty context: got %v, %v", msg, ok)
	}
	want := &consumer.Message{Offset: 7}
	ctx := consumer.WithMessage(consumer.WithMessage(t.Context(), &consumer.Message{}), want)
	if msg, ok := consumer.MessageFrom(ctx); !ok || msg != want {
		t.Errorf("got %v, %v; want the innermost message", msg, ok)
	}
}
