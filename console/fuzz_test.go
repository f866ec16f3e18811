package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzArguments reads addresses and forms that a stranger has made. What is accepted is in its range.
func FuzzArguments(f *testing.F) {
	f.Add("id=7&kind=failed&key=hex:00ff&since=36h&until=2026-01-02T15:04&error=(none)")
	f.Add("number=1&number=x&state=BLOCKED&topic=orders")
	f.Add("topic=orders&partition=3&offset=-1&page=9223372036854775808&rate=1e309")
	f.Add("consumer=c&error=%1b[31m&last=2026-01-02T15:04:05Z&value=%zz&since=-1h&page=-9")
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	rows := make([]int, 3*perPage+1)
	f.Fuzz(func(t *testing.T, text string) {
		args, _ := url.ParseQuery(text) // as net/http does: what could be read
		fuzztest.Bounded(t, len(text), 4<<20, func() {
			if s, err := searchOf(args, now); err == nil {
				for _, id := range s.IDs {
					if id < 1 {
						t.Errorf("the id %d", id)
					}
				}
			}
			if filter, err := outboxFilter(args); err == nil && len(filter.Numbers) == 0 && filter.State == "" {
				t.Error("a filter that means all events")
			}
			v := messageView{Topic: args.Get("topic"), Partition: args.Get("partition"), Offset: args.Get("offset")}
			if partition, offset, ok := v.place(); ok && (partition < 0 || offset < 0 || v.Topic == "") {
				t.Errorf("the place %s[%d]@%d", v.Topic, partition, offset)
			}
			if rate, err := rateOf(args); err == nil && !(rate >= 0 && rate < 1e300) { // NaN too
				t.Errorf("the rate %v", rate)
			}
			page, p := paged(rows, args)
			if len(page) == 0 || len(page) > perPage || p.To-p.From+1 != len(page) {
				t.Errorf("rows %d to %d of %d: %d", p.From, p.To, p.All, len(page))
			}
			behind(args)
			visible(&strings.Builder{}, text, false)
		})
	})
}
