package dedupstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name string
		key  dedupstore.Key
		says string // a part of the error, "" for none
	}{
		{"shortest", dedupstore.Key{Consumer: "c", Event: "e"}, ""},
		{"longest", dedupstore.Key{Consumer: x(dedupstore.MaxConsumerLen), Event: x(dedupstore.MaxEventLen)}, ""},
		{"Unicode and control characters", dedupstore.Key{Consumer: "\u00e4", Event: "a\u0308\t\n\u0001 "}, ""},
		{"no event", dedupstore.Key{Consumer: "c"}, "the event id is empty"},
		{"no consumer", dedupstore.Key{Event: "e"}, "the consumer is empty: set Topic.Consumer"},
		{"event too long", dedupstore.Key{Consumer: "c", Event: x(1025)}, "the event id has 1025 bytes, at most 1024"},
		{"consumer too long", dedupstore.Key{Consumer: x(513), Event: "e"},
			"the consumer has 513 bytes, at most 512 are allowed: set Topic.Consumer"},
		{"event not UTF-8", dedupstore.Key{Consumer: "c", Event: "secret\xff"}, "the event id is not UTF-8"},
		{"NUL in event", dedupstore.Key{Consumer: "c", Event: "secret\x00"}, "the event id contains a NUL"},
		{"NUL in consumer", dedupstore.Key{Consumer: "\x00", Event: "e"}, "set Topic.Consumer"},
	} {
		err := c.key.Validate()
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (!errors.Is(err, dedupstore.ErrInvalidKey) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want an ErrInvalidKey with %q", c.name, err, c.says)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error repeats the id: %v", c.name, err)
		}
	}
}

func TestValidateNamesBoth(t *testing.T) {
	t.Parallel()
	err := dedupstore.Key{}.Validate()
	for _, part := range []string{"the consumer is empty", "the event id is empty"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestKeyString(t *testing.T) {
	t.Parallel()
	k := dedupstore.Key{Consumer: "billing/orders", Event: "a \n"}
	if got, want := k.String(), `billing/orders "a \n"`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}

func TestKeyFrom(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if k, ok := dedupstore.KeyFrom(ctx); ok {
		t.Errorf("KeyFrom finds %v in an empty context", k)
	}
	outer, inner := dedupstore.Key{Consumer: "c", Event: "1"}, dedupstore.Key{Consumer: "c", Event: "2"}
	ctx = dedupstore.WithKey(dedupstore.WithKey(ctx, outer), inner)
	if k, ok := dedupstore.KeyFrom(ctx); !ok || k != inner {
		t.Errorf("KeyFrom() = %v, %v, want the key that was set last", k, ok)
	}
}
