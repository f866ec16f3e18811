package janitor

import (
	"encoding/hex"
	"regexp"
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

// spanOf reads a partition's bounds. ok is false for others than those of times: the partition is nobody's to drop then.
func spanOf(expression string) (s span, ok bool) {
	if m := upper.FindStringSubmatch(expression); m != nil {
		s.to, ok = timeOf(m[1])
		return s, ok
	}
	m := bounds.FindStringSubmatch(expression)
	if m == nil {
		return s, false
	}
	var okFrom, okTo bool
	s.from, okFrom = timeOf(m[1])
	s.to, okTo = timeOf(m[2])
	return s, okFrom && okTo
}

// timeOf returns the time of the ids that begin with a bound, which may be shorter than an id. A bound in the midst of a millisecond
// counts as the next one: the partition before it has ids of this one.
func timeOf(bound string) (time.Time, bool) {
	id := strings.ReplaceAll(bound, "-", "")
	if id == "" || len(id) > 32 {
		return time.Time{}, false
	}
	id += strings.Repeat("0", 32-len(id))
	b, err := hex.DecodeString(id)
	if err != nil {
		return time.Time{}, false
	}
	var ms int64
	for _, octet := range b[:6] {
		ms = ms<<8 | int64(octet)
	}
	if strings.Trim(id[12:], "0") != "" {
		ms++
	}
	return time.UnixMilli(ms).UTC(), true
}

// missing returns the spans that are still to be created, so that there is a partition for each time from the oldest that is kept to
// ahead partitions from now. They begin where the last one that exists ends, and end at multiples of width.
func missing(existing []span, now time.Time, age, width time.Duration, ahead int) []span {
	from := now.Add(-age).Truncate(width)
	for _, s := range existing {
		if s.to.After(from) {
			from = s.to
		}
	}
	var list []span
	for until := now.Truncate(width).Add(time.Duration(ahead+1) * width); from.Before(until); {
		to := from.Truncate(width).Add(width)
		list = append(list, span{from, to})
		from = to
	}
	return list
}
