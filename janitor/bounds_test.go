package janitor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFloor(t *testing.T) {
	t.Parallel()
	at := time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC) // RFC 9562, A.6
	if got, want := floor(at), "017f22e2-79b0-0000-0000-000000000000"; got != want {
		t.Errorf("floor = %s, want %s", got, want)
	}
}

func TestSpanOf(t *testing.T) {
	t.Parallel()
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().String() }
	for _, c := range []struct {
		bounds   string
		from, to string // empty for none
		ok       bool
	}{
		{"FOR VALUES FROM ('017f22e2-79b0-0000-0000-000000000000') TO ('017f22e2-79b1-0000-0000-000000000000')",
			at(1645557742000), at(1645557742001), true},
		{"FOR VALUES FROM ('017f22e2-79b0-0000-0000-000000000001') TO ('017f22e2-79b1')", at(1645557742000),
			at(1645557742001), true},
		{"FOR VALUES FROM ('017F22E279B0') TO ('017f22e2-79b0-0000-0000-000000000001')", at(1645557742000), at(1645557742001),
			true},
		{"FOR VALUES FROM (MINVALUE) TO ('0190')", "", at(0x019000000000), true},
		{"FOR VALUES FROM ('0190') TO (MAXVALUE)", "", "", false},
		{"FOR VALUES FROM ('0190') TO ('xyz')", "", "", false},
		{"FOR VALUES FROM ('0190', 'a') TO ('0191', 'a')", "", "", false},
		{"FOR VALUES FROM ('') TO ('0191')", "", "", false},
		{"FOR VALUES WITH (modulus 2, remainder 0)", "", "", false},
		{"FOR VALUES IN ('0190')", "", "", false},
		{"DEFAULT", "", "", false},
	} {
		s, ok := spanOf(c.bounds)
		if ok != c.ok || ok && (s.to.String() != c.to || c.from != "" && s.from.String() != c.from) {
			t.Errorf("%s: %v, %v", c.bounds, s, ok)
		}
	}
}

// The floor of a time is the bound that it is read back from, and ids sort as their times do.
func TestFloorsAreInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(0, 1<<48-1).Draw(t, "a"), rapid.Int64Range(0, 1<<48-1).Draw(t, "b")
		fa, fb := floor(time.UnixMilli(a)), floor(time.UnixMilli(b))
		if (a < b) != (fa < fb) {
			t.Fatalf("%d, %d: %s, %s", a, b, fa, fb)
		}
		if begin, end, ok := timeOf(fa); !ok || begin.UnixMilli() != a || !end.Equal(begin) {
			t.Fatalf("%d: %s is read as %v, %v", a, fa, begin, ok)
		}
	})
}

// Whatever there is, afterwards each time from the oldest kept one, or from the first partition, to ahead from now has
// one partition; none is made before the first one, whose predecessors may have been dropped.
func TestMissingHasNoGap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMilli(rapid.Int64Range(1e12, 2e12).Draw(t, "now")).UTC()
		width := time.Duration(rapid.Int64Range(1, 1000).Draw(t, "width")) * time.Minute
		age := time.Duration(rapid.Int64Range(1, 100).Draw(t, "age")) * width / 3
		ahead := rapid.IntRange(1, 10).Draw(t, "ahead")
		var existing []span
		at := now.Add(time.Duration(rapid.Int64Range(-300, 100).Draw(t, "from")) * width / 7)
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			at = at.Add(time.Duration(rapid.Int64Range(0, 50).Draw(t, "gap")) * width / 5)
			to := at.Add(time.Duration(rapid.Int64Range(1, 50).Draw(t, "long")) * width / 5)
			existing = append(existing, span{at, to})
			at = to
		}
		begin := now.Add(-age)
		if len(existing) > 0 && existing[0].from.After(begin) {
			begin = earliest(existing[0].from, now.Truncate(width))
		}
		mixed := rapid.Permutation(existing).Draw(t, "order")
		list := missing(mixed, now, age, width, ahead)
		all := slices.SortedFunc(slices.Values(append(slices.Clone(existing), list...)),
			func(a, b span) int { return a.from.Compare(b.from) })
		end := begin
		for i, s := range all {
			switch {
			case !s.from.Before(s.to) || i > 0 && s.from.Before(all[i-1].to):
				t.Fatalf("%v is empty, or overlaps another one: %v", s, all)
			case s.from.After(end) && end.Before(now.Add(time.Duration(ahead)*width)):
				t.Fatalf("there is no partition from %v to %v: %v", end, s.from, all)
			}
			end = latest(end, s.to)
		}
		if end.Before(now.Add(time.Duration(ahead) * width)) {
			t.Fatalf("%v ends at %v, now is %v", all, end, now)
		}
		for _, s := range list {
			if s.to.Sub(s.from) > width || s.from.Before(begin.Truncate(width)) || len(existing) > 0 && s.from.Before(begin) &&
				!existing[0].from.Before(begin) {
				t.Fatalf("%v is too long, or before %v, where none may be made", s, begin)
			}
		}
		if again := missing(append(existing, list...), now, age, width, ahead); len(again) > 0 {
			t.Fatalf("again: %v", again)
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 1000: time.Minute} {
		if got := backoff(failures); got != want {
			t.Errorf("backoff(%d) = %v, want %v", failures, got, want)
		}
	}
}

func TestNewNameIsShortEnough(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for table, want := range map[string]string{
		"events":                       `"s""x"."events_20260102_030405_006"`,
		strings.Repeat("ä", 31):        `"s""x"."` + strings.Repeat("ä", 21) + `_20260102_030405_006"`,
		strings.Repeat("x", 63):        `"s""x"."` + strings.Repeat("x", 43) + `_20260102_030405_006"`,
		`a"` + strings.Repeat("ä", 30): `"s""x"."a""` + strings.Repeat("ä", 20) + `_20260102_030405_006"`,
	} {
		k := &keeper{t: &Table{Schema: `s"x`, Name: table}}
		if got := k.newName(span{from: from}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
