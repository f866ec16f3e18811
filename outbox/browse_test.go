package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
)

func numbersOf(rows []outbox.Row) (numbers []int64) {
	for _, r := range rows {
		numbers = append(numbers, r.Number)
	}
	return numbers
}

// The outbox is looked through page by page, from either end, without what is large.
func TestBrowse(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			write, db := d.Open(t, f.URL, nil)
			op := outbox.NewOperator(db, nil)
			var events []outbox.Event
			for i := range 7 {
				events = append(events, outbox.Event{ID: fmt.Sprint(i), Topic: "t", Key: []byte(strings.Repeat("k", 2000)),
					Value: []byte("v"), Headers: []outbox.Header{{Key: "h"}}})
			}
			must(t, write(t.Context(), tabletest.Commit, events...))
			f.MustExec("update outbox_event set status = 'DEAD', last_error = 'ann: no' where id in (2, 3, 5)")
			for _, c := range []struct {
				filter outbox.Filter
				page   outbox.Page
				want   []int64
			}{
				{outbox.Filter{}, outbox.Page{Limit: 3}, []int64{7, 6, 5}},
				{outbox.Filter{}, outbox.Page{Limit: 3, Beyond: 5}, []int64{4, 3, 2}},
				{outbox.Filter{}, outbox.Page{Limit: 3, Beyond: 2}, []int64{1}},
				{outbox.Filter{}, outbox.Page{OldestFirst: true, Beyond: 5}, []int64{6, 7}},
				{outbox.Filter{State: outbox.Dead}, outbox.Page{Limit: 2}, []int64{5, 3}},
				{outbox.Filter{State: outbox.Dead}, outbox.Page{Beyond: 3}, []int64{2}},
				{outbox.Filter{Topic: "other"}, outbox.Page{}, nil},
				{outbox.Filter{Numbers: []int64{4, 6}}, outbox.Page{}, []int64{6, 4}},
			} {
				list, err := op.Browse(t.Context(), c.filter, c.page)
				must(t, err)
				if got := numbersOf(list); !slices.Equal(got, c.want) {
					t.Errorf("%+v, %+v: %v, want %v", c.filter, c.page, got, c.want)
				}
				for _, r := range list {
					if len(r.Event.Key) != outbox.MaxBrowsedKey || r.Event.Value != nil || r.Event.Headers != nil {
						t.Errorf("%d has more than is shown: %d bytes of key", r.Number, len(r.Event.Key))
					}
				}
			}
			for s, want := range map[outbox.State]int64{outbox.Pending: 4, outbox.Dead: 3, outbox.Blocked: 0} {
				if n, more, err := op.CountUpTo(t.Context(), s); n != want || more || err != nil {
					t.Errorf("%s: %d, %v, %v", s, n, more, err)
				}
			}
			if _, _, err := op.CountUpTo(t.Context(), "LOST"); err == nil {
				t.Error("a state that there is not is counted")
			}
			if _, err := op.Browse(t.Context(), outbox.Filter{State: "LOST"}, outbox.Page{}); err == nil {
				t.Error("a state that there is not is found")
			}
			f.MustExec(fmt.Sprintf("insert into outbox_event (event_id, topic) select 'n' || i, 'many' from generate_series(1, %d) i", outbox.MaxCount))
			if n, more, err := op.CountUpTo(t.Context(), outbox.Pending); n != outbox.MaxCount || !more || err != nil {
				t.Errorf("of more than are counted: %d, %v, %v", n, more, err)
			}
		})
	}
}

// Each key of which an event is blocked is shown once, with its first blocked event and how many wait behind it.
func TestBlockedKeys(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			write, db := d.Open(t, f.URL, nil)
			op := outbox.NewOperator(db, nil)
			for i, c := range []struct{ topic, key string }{{"t", "a"}, {"t", "b"}, {"t", "a"}, {"t", "a"}, {"u", "a"},
				{"t", ""}, {"t", ""}, {"t", "a"}, {"t", "c"}} {
				e := outbox.Event{ID: fmt.Sprint(i + 1), Topic: c.topic}
				if c.key != "" {
					e.Key = []byte(c.key)
				}
				must(t, write(t.Context(), tabletest.Commit, e))
			}
			f.MustExec("update outbox_event set status = 'BLOCKED', last_error = 'too large' where id in (3, 4, 5, 6, 7)")
			shown := func(beyond int64, limit int) string {
				list, err := op.BlockedKeys(t.Context(), beyond, limit)
				must(t, err)
				var texts []string
				for _, k := range list {
					texts = append(texts, fmt.Sprintf("%d %s/%s %d %d %v %s", k.First.Number, k.First.Event.Topic, k.First.Event.Key,
						k.Blocked, k.Waiting, k.More, k.First.LastError))
				}
				return strings.Join(texts, ", ")
			}
			if got, want := shown(0, 2), "3 t/a 2 1 false too large, 5 u/a 1 0 false too large"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if got, want := shown(5, 0), "6 t/ 1 0 false too large, 7 t/ 1 0 false too large"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// Leases that hold are told, and what takes too long ends by the server, with an error that says so.
func TestLeasesAndTime(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			_, db := d.Open(t, f.URL, nil)
			op := outbox.NewOperator(db, nil)
			f.MustExec("insert into outbox_lease (bucket, owner, epoch, leased_until) values (3, 'relay-1', 7, now() + interval '1 hour'), (4, 'relay-2', 8, now() - interval '1 hour')")
			list, err := op.Leases(t.Context())
			must(t, err)
			if len(list) != 1 || list[0].Bucket != 3 || list[0].Owner != "relay-1" || list[0].Epoch != 7 ||
				time.Until(list[0].Until) < time.Minute {
				t.Errorf("%+v", list)
			}
			must(t, db.InTx(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
				if _, err := tx.Exec(ctx, "lock table outbox_event"); err != nil {
					return err
				}
				short, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				if _, _, err := op.CountUpTo(short, outbox.Pending); !errors.Is(err, outbox.ErrTooLong) || short.Err() != nil {
					t.Errorf("%v, the server left it to the client: %v", err, short.Err())
				}
				return nil
			}))
		})
	}
}
