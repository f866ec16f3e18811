package record

import (
	"log/slog"
	"testing"
)

// Stores on one pool share its places; those on another pool, or without a bound, have their own.
func TestPlacesOfAPool(t *testing.T) {
	t.Parallel()
	type pool struct{ _ int }
	one, other, log := &pool{}, &pool{}, slog.New(slog.DiscardHandler)
	of := PlacesOf(one, 5, log)
	if PlacesOf(one, 5, log) != of {
		t.Error("two stores on one pool have places of their own")
	}
	if PlacesOf(other, 5, log) == of || PlacesOf(one, 6, log) == of || PlacesOf(one, 0, log) == of {
		t.Error("stores on other pools share their places")
	}
}
