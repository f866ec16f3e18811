package deadtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/einmal-go/einmal/deadletter"
)

// browser is the table as one that people look through.
func (h Harness[Tx]) browser(t *testing.T) deadletter.Browser {
	t.Helper()
	b, ok := h.Table.(deadletter.Browser)
	if !ok {
		t.Fatalf("a %T is no deadletter.Browser", h.Table)
	}
	return b
}

func idsOf(list []*deadletter.Record) (ids []int64) {
	for _, rec := range list {
		ids = append(ids, rec.ID)
	}
	return ids
}

// A table is looked through page by page, from either end, whatever goes meanwhile.
func browses[Tx any](t *testing.T, h Harness[Tx]) {
	b := h.browser(t)
	var recs []*deadletter.Record
	for offset := range int64(7) {
		recs = append(recs, record(offset))
	}
	recs[2].Key, recs[3].Key, recs[4].Key = nil, []byte{}, slices.Repeat([]byte("k"), deadletter.MaxBrowsedKey+1)
	ids := h.write(t, h.Table, recs...)
	for _, oldest := range []bool{false, true} {
		want := slices.Clone(ids)
		if !oldest {
			slices.Reverse(want)
		}
		var got []int64
		page := deadletter.Page{OldestFirst: oldest, Limit: 3}
		for range 3 {
			list, err := b.Browse(t.Context(), deadletter.Search{}, page)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, idsOf(list)...)
			page.Beyond = list[len(list)-1].ID
			for _, rec := range list {
				sent := recs[slices.Index(ids, rec.ID)]
				wantKey := sent.Key[:min(len(sent.Key), deadletter.MaxBrowsedKey)]
				if string(rec.Key) != string(wantKey) || (rec.Key == nil) != (sent.Key == nil) || rec.Event != sent.Event ||
					rec.Error != sent.Error || rec.Value != nil {
					t.Errorf("%d has key %q, event %q", rec.ID, rec.Key, rec.Event)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("oldest first %v: %v, want %v", oldest, got, want)
		}
		if list, err := b.Browse(t.Context(), deadletter.Search{}, page); err != nil || len(list) > 0 {
			t.Errorf("behind the last page: %v, %v", idsOf(list), err)
		}
	}
	if _, err := h.Table.Discard(t.Context(), deadletter.Filter{IDs: ids[3:4]}); err != nil {
		t.Fatal(err)
	}
	list, err := b.Browse(t.Context(), deadletter.Search{}, deadletter.Page{Beyond: ids[3], Limit: 2}) // behind one that has gone
	if got := idsOf(list); err != nil || !slices.Equal(got, []int64{ids[2], ids[1]}) {
		t.Errorf("behind %d: %v, %v", ids[3], got, err)
	}
}

// Dead letters are found by the fields of a search, which hold together, and texts are no patterns.
func searches[Tx any](t *testing.T, h Harness[Tx]) {
	b := h.browser(t)
	one, two, three, four := record(1), record(2), record(3), record(4)
	one.Error, two.Error, three.RedriveError = "Card DECLINED by bank", "100%_sure \\ no", ""
	two.Key, three.Topic = []byte{0, 0xff}, "shipments"
	four.Kind, four.ErrorType = deadletter.KindTooOld, "too_old"
	ids := h.write(t, h.Table, one, two, three, four)
	if err := h.Table.Failed(t.Context(), ids[2], "the depot is shut"); err != nil {
		t.Fatal(err)
	}
	h.Backdate(ids[0], time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name   string
		search deadletter.Search
		want   []int64
	}{
		{"all", deadletter.Search{}, ids},
		{"event", deadletter.Search{Event: one.Event}, ids[:1]},
		{"key", deadletter.Search{Key: []byte{0, 0xff}}, ids[1:2]},
		{"no key", deadletter.Search{Key: []byte{}}, nil},
		{"text", deadletter.Search{Text: "declined BY"}, ids[:1]},
		{"text and key", deadletter.Search{Text: "SURE", Key: []byte{0, 0xff}, Filter: deadletter.Filter{Consumer: two.Consumer}}, ids[1:2]},
		{"event and another key", deadletter.Search{Event: one.Event, Key: []byte{0, 0xff}}, nil},
		{"event of another consumer", deadletter.Search{Event: one.Event, Filter: deadletter.Filter{Consumer: "nobody"}}, nil},
		{"no pattern", deadletter.Search{Text: "0%_s"}, ids[1:2]},
		{"no joker", deadletter.Search{Text: "%"}, ids[1:2]},
		{"backslash", deadletter.Search{Text: `\`}, ids[1:2]},
		{"the redrive's error", deadletter.Search{Text: "depot"}, ids[2:3]},
		{"the topic", deadletter.Search{Text: "SHIP"}, ids[2:3]},
		{"the type", deadletter.Search{Text: "too_old"}, ids[3:]},
		{"id", deadletter.Search{Filter: deadletter.Filter{IDs: ids[1:3]}}, ids[1:3]},
		{"time", deadletter.Search{Filter: deadletter.Filter{Until: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)}}, ids[:1]},
		{"together", deadletter.Search{Filter: deadletter.Filter{Kind: deadletter.KindGaveUp}, Text: "shipments"}, ids[2:3]},
		{"none", deadletter.Search{Filter: deadletter.Filter{Kind: deadletter.KindTooOld}, Text: "shipments"}, nil},
		{"what no table holds", deadletter.Search{Text: "a\x00b"}, nil},
		{"no text", deadletter.Search{Event: "\xff"}, nil},
	} {
		list, err := b.Browse(t.Context(), c.search, deadletter.Page{OldestFirst: true})
		n, more, countErr := b.CountUpTo(t.Context(), c.search, 10)
		if got := idsOf(list); err != nil || countErr != nil || !slices.Equal(got, c.want) || n != int64(len(c.want)) ||
			more {
			t.Errorf("%s: %v, want %v; counted %d, %v; %v, %v", c.name, got, c.want, n, more, err, countErr)
		}
	}
	for most, want := range map[int64]bool{3: true, 4: false} {
		if n, more, err := b.CountUpTo(t.Context(), deadletter.Search{}, most); n != most || more != want || err != nil {
			t.Errorf("counted up to %d: %d, %v, %v", most, n, more, err)
		}
	}
}

// What no index knows is found wherever it stands in a large table, page by page, and so is what is narrowed by a
// consumer or by a window of time, few or many; a key is told from others that begin with the same bytes.
func searchesLarge[Tx any](t *testing.T, h Harness[Tx]) {
	b := h.browser(t)
	h.Run(`with recursive n(i) as (select 1 union all select i + 1 from n where i < 21000)
insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, error_type, error)
select case when i <= 9000 then 'first' else 'second' end, 'e' || i, case when i % 5000 = 0 then 'seldom' else 't' end, 0, i, 'gave_up', 'x', case when i in (2, 9001, 12000, 20999) then 'a needle' else 'hay' end from n`)
	h.Backdate(7, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	h.Backdate(20999, time.Date(2026, 1, 2, 0, 0, 1, 0, time.UTC))
	one, other := record(1), record(2)
	one.Key, other.Key = slices.Repeat([]byte("k"), 20_000), slices.Repeat([]byte("k"), 20_001)
	h.write(t, h.Table, one, other)
	day := deadletter.Filter{Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)}
	with := func(f deadletter.Filter, consumer string) deadletter.Filter {
		f.Consumer = consumer
		return f
	}
	later := deadletter.Filter{Since: day.Until}
	for _, c := range []struct {
		name   string
		search deadletter.Search
		want   []int64
	}{
		{"text", deadletter.Search{Text: "NEEDLE"}, []int64{2, 9001, 12000, 20999}},
		{"topic", deadletter.Search{Filter: deadletter.Filter{Topic: "seldom"}}, []int64{5000, 10000, 15000, 20000}},
		{"text of a consumer", deadletter.Search{Filter: with(deadletter.Filter{}, "first"), Text: "needle"}, []int64{2}},
		{"text of a group", deadletter.Search{Filter: deadletter.Filter{Consumer: "second", Kind: deadletter.KindGaveUp, ErrorType: "x"},
			Text: "needle"}, []int64{9001, 12000, 20999}},
		{"few by time", deadletter.Search{Filter: day}, []int64{7, 20999}},
		{"few by time, and text", deadletter.Search{Filter: day, Text: "needle"}, []int64{20999}},
		{"few by time, and consumer", deadletter.Search{Filter: with(day, "first")}, []int64{7}},
		{"many by time", deadletter.Search{Filter: later, Text: "needle"}, []int64{2, 9001, 12000}},
		{"many by time, and consumer", deadletter.Search{Filter: with(later, "second"), Text: "needle"}, []int64{9001, 12000}},
		{"none of many", deadletter.Search{Text: "thistle"}, nil},
		{"key", deadletter.Search{Key: other.Key}, []int64{21002}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // however busy the machine is
		n, more, err := b.CountUpTo(ctx, c.search, 10)
		if n != int64(len(c.want)) || more || err != nil {
			t.Errorf("%s: counted %d, %v, %v, want %d", c.name, n, more, err, len(c.want))
		}
		for _, oldest := range []bool{true, false} {
			want := slices.Clone(c.want)
			if !oldest {
				slices.Reverse(want)
			}
			if got := h.pages(ctx, t, c.search, deadletter.Page{OldestFirst: oldest, Limit: 2}); !slices.Equal(got, want) {
				t.Errorf("%s, oldest first %v: %v, want %v", c.name, oldest, got, want)
			}
		}
		cancel()
	}
}

// pages browses page by page. It goes on where the time did not suffice.
func (h Harness[Tx]) pages(ctx context.Context, t *testing.T, search deadletter.Search, page deadletter.Page) (ids []int64) {
	t.Helper()
	for {
		list, err := h.browser(t).Browse(ctx, search, page)
		ids = append(ids, idsOf(list)...)
		partial, isPartial := errors.AsType[*deadletter.PartialError](err)
		switch {
		case isPartial:
			page.Beyond = partial.Beyond
		case err != nil:
			t.Fatal(err)
		case len(list) < page.Limit:
			return ids
		default:
			page.Beyond = list[len(list)-1].ID
		}
	}
}

// Groups are told with how many there are, up to a number, page by page.
func groups[Tx any](t *testing.T, h Harness[Tx]) {
	b := h.browser(t)
	h.Run(fmt.Sprintf(`with recursive n(i) as (select 1 union all select i + 1 from n where i < %d)
insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, error_type) select 'a', 'e' || i, 't', 0, i, 'gave_up', '23505' from n`, deadletter.MaxGroupCount+1))
	for i, c := range []struct{ consumer, kind, errorType string }{{"b", "gave_up", "x"}, {"a", "gave_up", ""},
		{"b", "gave_up", "x"}, {"a", "too_old", "23505"}, {"b", "gave_up", "x"}} {
		h.Run(fmt.Sprintf("insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, error_type) values ('%s', 'f%d', 't', 0, %d, '%s', '%s')",
			c.consumer, i, i, c.kind, c.errorType))
	}
	first, last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 2, 2, 3, 4, 5, 0, time.UTC)
	h.Backdate(deadletter.MaxGroupCount+2, first)
	h.Backdate(deadletter.MaxGroupCount+6, last)
	var got []string
	var behind *deadletter.Group
	for range 5 {
		list, err := b.Groups(t.Context(), behind, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range list {
			got = append(got, fmt.Sprintf("%s %s %q %d %v", g.Consumer, g.Kind, g.ErrorType, g.Count, g.More))
			behind = &g
			n, more, err := b.CountUpTo(t.Context(), g.Search(), deadletter.MaxGroupCount)
			if n != g.Count || more != g.More || g.Oldest.IsZero() || err != nil {
				t.Errorf("%+v, but %d, %v, %v", g, n, more, err)
			}
		}
	}
	want := []string{`a gave_up "" 1 false`, `a gave_up "23505" 1000 true`, `a too_old "23505" 1 false`,
		`b gave_up "x" 3 false`}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if behind == nil || !behind.Oldest.Equal(first) || !behind.Newest.Equal(last) {
		t.Errorf("%+v, want from %v to %v", behind, first, last)
	}
}

// Those that would overtake others of their key are counted.
func overtakes[Tx any](t *testing.T, h Harness[Tx]) {
	b := h.browser(t)
	var recs []*deadletter.Record
	for offset, key := range []string{"a", "a", "b", "a", "b", ""} {
		rec := record(int64(offset))
		if rec.Key = []byte(key); key == "" {
			rec.Key = nil
		}
		recs = append(recs, rec)
	}
	recs[2].Kind = deadletter.KindTooOld // held
	ids := h.write(t, h.Table, recs...)
	for _, c := range []struct {
		name   string
		search deadletter.Search
		want   int64
	}{
		{"all but what is held", deadletter.Search{}, 1},
		{"the last of a", deadletter.Search{Filter: deadletter.Filter{IDs: ids[3:4]}}, 1},
		{"the first of a", deadletter.Search{Filter: deadletter.Filter{IDs: ids[:1]}}, 0},
		{"two of a", deadletter.Search{Filter: deadletter.Filter{IDs: []int64{ids[1], ids[3]}}}, 2},
		{"all of a", deadletter.Search{Key: []byte("a")}, 0},
		{"all of b, named", deadletter.Search{Filter: deadletter.Filter{IDs: []int64{ids[2], ids[4]}}}, 0},
		{"without a key", deadletter.Search{Filter: deadletter.Filter{IDs: ids[5:]}}, 0},
	} {
		if n, more, err := b.Overtaken(t.Context(), c.search, 10); n != c.want || more || err != nil {
			t.Errorf("%s: %d, %v, %v, want %d", c.name, n, more, err, c.want)
		}
	}
}

// What takes too long ends with an error that says so, and the table can be asked again.
func browseTooLong[Tx any](t *testing.T, h Harness[Tx]) {
	b := h.browser(t)
	h.write(t, h.Table, record(1))
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := b.Browse(over, deadletter.Search{}, deadletter.Page{}); !errors.Is(err, deadletter.ErrTooLong) {
		t.Errorf("%v", err)
	}
	if h.Locks {
		err := h.Store.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			if err := h.Exec(ctx, tx, "lock table dead_message"); err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if _, err := b.Groups(short, nil, 10); !errors.Is(err, deadletter.ErrTooLong) || short.Err() != nil {
				t.Errorf("%v, the server left it to the client: %v", err, short.Err())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if list, err := b.Groups(t.Context(), nil, 10); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
