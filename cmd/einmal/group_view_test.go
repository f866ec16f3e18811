package main

import (
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// What is not known is not well: -max-lag asks about more than the sum.
func TestGroupProblems(t *testing.T) {
	t.Parallel()
	part := func(member string, start, committed, end int64) consumer.GroupPartition {
		return consumer.GroupPartition{Topic: "t", Member: member, Start: start, Committed: committed, End: end}
	}
	for says, parts := range map[string][]consumer.GroupPartition{
		"":                          {part("m", 0, 5, 5)},
		"no partitions are known":   nil,
		"the lag is 3 messages":     {part("m", 0, 2, 5)},
		"1 partitions is not known": {part("m", 0, 5, 5), part("m", 0, 5, -1)},
		"1 of 2 partitions have no": {part("m", 0, 5, 5), part("", 0, 5, 5)},
		"out of the log's range":    {part("m", 5, 3, 5)},
	} {
		got := strings.Join(newGroupView(&consumer.Group{Partitions: parts}, time.Now()).problems(0), "; ")
		if says == "" && got != "" || !strings.Contains(got, says) {
			t.Errorf("%v: %q, want %q", parts, got, says)
		}
	}
}

// What is open has failed, or is in work: then no failures are told.
func TestGroupNoteOfOpenMessages(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fetched := now.Add(-time.Minute)
	for want, open := range map[string][]groupOpen{
		"@7 open for 1m0s": {{7, &fetched, 0}},
		"@7 open for 1m0s, failed 2 times, and 1 more": {{7, &fetched, 2}, {9, &fetched, 0}},
		"@7 open": {{7, nil, 0}},
	} {
		v := &groupView{now: now}
		if got := v.note(&groupPart{Open: open}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
