package janitor

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"
)

// span is the range of times of a partition of UUIDv7 ids.
type span struct{ from, to time.Time }

// floor is the least id of a time. A UUIDv7 begins with 48 bits of milliseconds.
func floor(at time.Time) string {
	const digits = "0123456789abcdef"
	var id [12]byte
	ms := at.UnixMilli()
	for i := range id {
		id[i] = digits[ms>>(44-4*i)&0xf]
	}
	return string(id[:8]) + "-" + string(id[8:]) + "-0000-0000-000000000000"
}

// bounds is how PostgreSQL shows those of a range partition.
var bounds = regexp.MustCompile(`^FOR VALUES FROM \('([0-9A-Fa-f-]*)'\) TO \('([0-9A-Fa-f-]*)'\)$`)

// upper is the same, where the range has no beginning.
var upper = regexp.MustCompile(`^FOR VALUES FROM \(MINVALUE\) TO \('([0-9A-Fa-f-]*)'\)$`)

// spanOf reads a partition's bounds. ok is false for others than those of times: the partition is nobody's to drop
// then. A bound in the midst of a millisecond makes the span longer than the partition: what is left of the millisecond
// is in no other span.
func spanOf(expression string) (s span, ok bool) {
	if m := upper.FindStringSubmatch(expression); m != nil {
		_, s.to, ok = timeOf(m[1])
		return s, ok
	}
	m := bounds.FindStringSubmatch(expression)
	if m == nil {
		return s, false
	}
	var okFrom, okTo bool
	s.from, _, okFrom = timeOf(m[1])
	_, s.to, okTo = timeOf(m[2])
	return s, okFrom && okTo
}

// timeOf returns the time of the ids that begin with a bound, which may be shorter than an id. A bound in the midst of
// a millisecond is between two times, others are both.
func timeOf(bound string) (begin, end time.Time, ok bool) {
	id := strings.ReplaceAll(bound, "-", "")
	if id == "" || len(id) > 32 {
		return begin, end, false
	}
	id += strings.Repeat("0", 32-len(id))
	b, err := hex.DecodeString(id)
	if err != nil {
		return begin, end, false
	}
	var ms int64
	for _, octet := range b[:6] {
		ms = ms<<8 | int64(octet)
	}
	begin, end = time.UnixMilli(ms).UTC(), time.UnixMilli(ms).UTC()
	if strings.Trim(id[12:], "0") != "" {
		end = end.Add(time.Millisecond)
	}
	return begin, end, true
}

// missing returns the spans that are still to be created, so that there is a partition for each time from the oldest
// that is kept to ahead partitions from now. They end at multiples of width, or where the next partition begins.
//
// None begins before the first partition that exists: those before it may have been dropped with their records, and an
// event that finds a new one there would take effect again. Where all partitions are ahead of now, that of now is made
// nevertheless: without it nothing is consumed.
func missing(existing []span, now time.Time, age, width time.Duration, ahead int) []span {
	existing = slices.SortedFunc(slices.Values(existing), func(a, b span) int { return a.from.Compare(b.from) })
	from, until := now.Add(-age).Truncate(width), now.Truncate(width).Add(time.Duration(ahead+1)*width)
	if len(existing) > 0 {
		from = latest(from, earliest(existing[0].from, now.Truncate(width)))
	}
	var list []span
	fill := func(end time.Time) {
		for from.Before(end) {
			to := earliest(from.Truncate(width).Add(width), end)
			list = append(list, span{from, to})
			from = to
		}
	}
	for _, s := range existing {
		fill(earliest(s.from, until))
		from = latest(from, s.to)
	}
	fill(until)
	return list
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
