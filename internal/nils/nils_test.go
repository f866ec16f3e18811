package nils_test

import (
	"errors"
	"testing"

	"github.com/einmal-go/einmal/internal/nils"
)

func TestIs(t *testing.T) {
	t.Parallel()
	var pointer *int
	var function func()
	var err error
	for i, nothing := range []any{nil, pointer, function, err} {
		if !nils.Is(nothing) {
			t.Errorf("%d: it is nothing", i)
		}
	}
	for _, something := range []any{0, "", struct{}{}, new(int), func() {}, errors.New(""), map[string]int(nil),
		[]int(nil)} {
		if nils.Is(something) {
			t.Errorf("%T is something", something)
		}
	}
}
