package idempotency_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
)

// Keys that were sent are kept by servers for weeks, and events come again for as long: a value in this table never
// changes.
func TestKeyGoldenValues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want  string
		parts []string
	}{
		{"ed3ab4f2-a7e8-8372-adc2-38107625b72b", nil},
		{"5dca7f3b-c548-8871-99f4-c5a9c56115b5", []string{""}},
		{"045850b3-8337-823c-977e-b0295f047d46", []string{"", ""}},
		{"c63abb2b-e3e3-808b-a876-b43e9a5fd3ce", []string{"charge"}},
		{"14a5f855-38d5-8d83-b6f0-15ce9d7b74b1", []string{"a", "bc"}},
		{"a15c297a-b89a-820e-aeeb-8b76b168b22f", []string{"ab", "c"}},
		{"4a9050f2-1af6-892f-be08-83f1398ad7d9", []string{"abc"}},
		{"453f397b-fec4-8cfd-81de-f46901d44b50", []string{"billing/orders.confirmed", "4711", "charge"}},
		{"f9786c2e-4f09-84a7-9ecc-b89b5941caea", []string{"Bestellung №7", "\x00\xff"}},
		{"68897e18-2095-8d6a-987e-e8288217453b", []string{strings.Repeat("x", 10_000)}},
	} {
		if got := idempotency.Key(tc.parts...); got != tc.want {
			t.Errorf("Key(%.40q) = %q, want %q for ever", tc.parts, got, tc.want)
		}
	}
}

var uuid8 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestKeyProperties(t *testing.T) {
	t.Parallel()
	parts := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringMatching(`[ab]{0,3}`)))
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		key := idempotency.Key(a...)
		if !uuid8.MatchString(key) {
			t.Fatalf("Key(%q) = %q is no UUID of version 8", a, key)
		}
		if again := idempotency.Key(slices.Clone(a)...); again != key {
			t.Fatalf("Key(%q) = %q, then %q", a, key, again)
		}
		if same := idempotency.Key(b...) == key; same != slices.Equal(a, b) {
			t.Fatalf("Key(%q) and Key(%q) are the same: %v", a, b, same)
		}
	})
}

// The border between two parts matters, wherever it is.
func TestKeyTellsBordersApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(1, 40, -1).Draw(t, "s")
		i := rapid.IntRange(0, len(s)).Draw(t, "i")
		j := rapid.IntRange(0, len(s)).Filter(func(j int) bool { return j != i }).Draw(t, "j")
		if idempotency.Key(s[:i], s[i:]) == idempotency.Key(s[:j], s[j:]) {
			t.Fatalf("%q divided at %d and at %d is one key", s, i, j)
		}
	})
}

// A part may contain what stands between parts.
func TestKeyOfPartsThatLookLikeABorder(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		for _, b := range []string{"\x00", "\x01", "\xff"} {
			if border := strings.Repeat(b, n); idempotency.Key("a", "b") == idempotency.Key("a"+border+"b") {
				t.Errorf("%q is the same as two parts", "a"+border+"b")
			}
		}
	}
}

func TestKeyForIsKeyOfTheEffectAndTheStep(t *testing.T) {
	t.Parallel()
	ctx := dedupstore.WithKey(t.Context(), dedupstore.Key{Consumer: "billing/orders.confirmed", Event: "4711"})
	for _, more := range [][]string{nil, {"1"}, {"1", "2"}} {
		got, err := idempotency.KeyFor(ctx, "charge", more...)
		want := idempotency.Key(append([]string{"billing/orders.confirmed", "4711", "charge"}, more...)...)
		if err != nil || got != want {
			t.Errorf("KeyFor(charge, %q) = %q, %v, want %q", more, got, err, want)
		}
	}
}

func TestKeyForWithoutAnEffect(t *testing.T) {
	t.Parallel()
	effect := dedupstore.Key{Consumer: "billing", Event: "4711"}
	for name, tc := range map[string]struct {
		ctx  context.Context
		step string
		says string
	}{
		"no event":    {t.Context(), "charge", "middleware.Dedup"},
		"no step":     {dedupstore.WithKey(t.Context(), effect), "", "step"},
		"no id":       {dedupstore.WithKey(t.Context(), dedupstore.Key{Consumer: "billing"}), "charge", "no id"},
		"no consumer": {dedupstore.WithKey(t.Context(), dedupstore.Key{Event: "4711"}), "charge", "no consumer"},
	} {
		key, err := idempotency.KeyFor(tc.ctx, tc.step)
		if key != "" || !errors.Is(err, idempotency.ErrNoKey) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: KeyFor() = %q, %v, want an error that wraps ErrNoKey and says %q", name, key, err, tc.says)
		}
	}
}
