package record

import (
	"testing"
	"time"
)

func TestUUID7(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Millisecond)
	id := newUUID7()
	born, ok := timeOfUUID7(id)
	if !ok || born.Before(before) || born.After(time.Now()) || len(id) != 36 {
		t.Errorf("%s: %v, %v", id, born, ok)
	}
	if other := newUUID7(); other == id {
		t.Error("two ids are the same")
	}
	for _, c := range []struct {
		id   string
		want int64 // Unix milliseconds; -1 for no UUIDv7
	}{
		{"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1645557742000}, // RFC 9562, A.6
		{"017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000},
		{"017f22e279b07cc398c4dc0c0c07398f", 1645557742000},
		{"017f22e2-79b0-4cc3-98c4-dc0c0c07398f", -1}, // version 4
		{"017f22e2-79b0-7cc3-18c4-dc0c0c07398f", -1}, // another variant
		{"017f22e2-79b0-7cc3-98c4-dc0c0c07398", -1},
		{"017f22e2-79b0-7cc3-98c4-dc0c0c07398f00", -1},
		{"not hex", -1},
		{"", -1},
	} {
		born, ok := timeOfUUID7(c.id)
		if ok != (c.want >= 0) || ok && born.UnixMilli() != c.want {
			t.Errorf("%s: %v, %v", c.id, born, ok)
		}
	}
}
