package deadtest

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/schematest"
)

// A message comes back byte by byte, nil and empty apart.
func roundTrip[Tx any](t *testing.T, h Harness[Tx]) {
	bare := deadletter.NewRecord(&consumer.Message{Topic: "t", Headers: []consumer.Header{}},
		dedupstore.Key{Consumer: "c", Event: "bare"})
	bare.Kind, bare.Timestamp = deadletter.KindPermanent, time.Time{}
	for _, want := range []*deadletter.Record{record(1), bare} {
		id := h.write(t, h.Table, want)[0]
		got, err := h.Table.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(got.Died); age < -time.Minute || age > time.Minute {
			t.Errorf("it died %v ago", age)
		}
		got.Died, want.ID = time.Time{}, id
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%#v\nwant\n%#v", got, want)
		}
		list, err := h.Table.List(t.Context(), deadletter.Filter{IDs: []int64{id}}, 0, 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("List: %d, %v", len(list), err)
		}
		short := *want
		short.Key, short.Value, short.Headers, short.Died = nil, nil, nil, list[0].Died
		if !reflect.DeepEqual(list[0], &short) {
			t.Errorf("listed\n%#v\nwant\n%#v", list[0], short)
		}
	}
}

var errOfTest = errors.New("of the test")

// The row goes with its transaction.
func rolledBack[Tx any](t *testing.T, h Harness[Tx]) {
	rec := record(1)
	_, err := h.Store.Once(t.Context(), rec.DedupKey(), func(ctx context.Context, tx Tx) error {
		return errors.Join(h.Table.Write(ctx, tx, rec), errOfTest)
	})
	if !errors.Is(err, errOfTest) || h.dead() != 0 || h.Count("select count(*) from processed_event") != 0 {
		t.Errorf("%v; %d rows", err, h.dead())
	}
}

// some writes four dead letters of which each differs.
func some[Tx any](t *testing.T, h Harness[Tx]) (ids []int64) {
	t.Helper()
	recs := []*deadletter.Record{record(1), record(2), record(3), record(4)}
	recs[1].Consumer = "audit/orders"
	recs[2].Topic, recs[2].ErrorType = "payments", "timeout"
	recs[3].Kind = deadletter.KindNoEventID
	ids = h.write(t, h.Table, recs...)
	h.Backdate(ids[0], time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	h.Backdate(ids[1], time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC))
	return ids
}

func filters[Tx any](t *testing.T, h Harness[Tx]) {
	ids := some(t, h)
	for _, c := range []struct {
		filter deadletter.Filter
		want   []int
	}{
		{deadletter.Filter{}, []int{0, 1, 2, 3}},
		{deadletter.Filter{Consumer: "billing/orders"}, []int{0, 2, 3}},
		{deadletter.Filter{Topic: "payments"}, []int{2}},
		{deadletter.Filter{ErrorType: "23505"}, []int{0, 1, 3}},
		{deadletter.Filter{Kind: deadletter.KindNoEventID}, []int{3}},
		{deadletter.Filter{Since: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)}, []int{1, 2, 3}},
		{deadletter.Filter{Until: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)}, []int{0}},
		{deadletter.Filter{Since: time.Date(2020, 6, 1, 0, 0, 0, 0, time.FixedZone("", 3600)),
			Until: time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)}, []int{1}},
		{deadletter.Filter{IDs: []int64{ids[3], ids[0], 999}}, []int{0, 3}},
		{deadletter.Filter{Consumer: "billing/orders", Topic: "orders", Kind: deadletter.KindGaveUp}, []int{0}},
		{deadletter.Filter{Consumer: "' or 1=1 --"}, nil},
	} {
		list, err := h.Table.List(t.Context(), c.filter, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, rec := range list {
			got = append(got, slices.Index(ids, rec.ID))
		}
		n, err := h.Table.Count(t.Context(), c.filter)
		if !slices.Equal(got, c.want) || err != nil || int(n) != len(c.want) {
			t.Errorf("%+v: %v, counted %d, %v; want %v", c.filter, got, n, err, c.want)
		}
	}
}

func pages[Tx any](t *testing.T, h Harness[Tx]) {
	ids := some(t, h)
	var got []int64
	for after := int64(0); ; {
		list, err := h.Table.List(t.Context(), deadletter.Filter{}, after, 3)
		if err != nil || len(list) > 3 {
			t.Fatalf("%d, %v", len(list), err)
		}
		if len(list) == 0 {
			break
		}
		for _, rec := range list {
			got, after = append(got, rec.ID), rec.ID
		}
	}
	if !slices.Equal(got, ids) {
		t.Errorf("%v, want %v", got, ids)
	}
}

func take[Tx any](t *testing.T, h Harness[Tx]) {
	want := record(1)
	id := h.write(t, h.Table, want)[0]
	taking := func(result error) error {
		return h.Store.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			got, err := h.Table.Take(ctx, tx, id)
			if err != nil {
				return err
			}
			if want.ID, want.Died = got.ID, got.Died; !reflect.DeepEqual(got, want) {
				t.Errorf("took\n%#v\nwant\n%#v", got, want)
			}
			return result
		})
	}
	if err := taking(errOfTest); !errors.Is(err, errOfTest) || h.dead() != 1 {
		t.Errorf("rolled back: %v, %d rows", err, h.dead())
	}
	if err := taking(nil); err != nil || h.dead() != 0 {
		t.Errorf("committed: %v, %d rows", err, h.dead())
	}
	if err := taking(nil); !errors.Is(err, deadletter.ErrTaken) {
		t.Errorf("again: %v", err)
	}
	if _, err := h.Table.Get(t.Context(), id); !errors.Is(err, deadletter.ErrTaken) {
		t.Errorf("Get: %v", err)
	}
}

// Nobody waits for a row that somebody else is taking.
func takenAtOnce[Tx any](t *testing.T, h Harness[Tx]) {
	if !h.Locks {
		t.Skip("this database has one writer at a time")
	}
	id := h.write(t, h.Table, record(1))[0]
	err := h.Store.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		if _, err := h.Table.Take(ctx, tx, id); err != nil {
			return err
		}
		err := h.Store.InTx(ctx, func(ctx context.Context, tx Tx) error {
			_, err := h.Table.Take(ctx, tx, id)
			return err
		})
		if !errors.Is(err, deadletter.ErrTaken) {
			t.Errorf("taken while it is being taken: %v", err)
		}
		if n, err := h.Table.Discard(ctx, deadletter.Filter{}); n != 0 || err != nil {
			t.Errorf("discarded while it is being taken: %d, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func discard[Tx any](t *testing.T, h Harness[Tx]) {
	some(t, h)
	if n, err := h.Table.Discard(t.Context(), deadletter.Filter{Topic: "payments"}); n != 1 || err != nil ||
		h.dead() != 3 {
		t.Errorf("Discard() = %d, %v; %d rows are left", n, err, h.dead())
	}
	h.Run("delete from dead_message")
	recs := make([]*deadletter.Record, 0, 2100)
	err := h.Store.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		for i := range cap(recs) {
			if err := h.Table.Write(ctx, tx, record(int64(i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := h.Table.Discard(t.Context(), deadletter.Filter{}); n != 2100 || err != nil || h.dead() != 0 {
		t.Errorf("Discard() = %d, %v; %d rows are left", n, err, h.dead())
	}
	if n := h.Count("select count(*) from processed_event"); n != 4 {
		t.Errorf("%d events are recorded, want 4: what is discarded stays recorded", n)
	}
}

func failed[Tx any](t *testing.T, h Harness[Tx]) {
	id := h.write(t, h.Table, record(1))[0]
	for range 2 {
		if err := h.Table.Failed(t.Context(), id, "still broken"); err != nil {
			t.Fatal(err)
		}
	}
	if rec, err := h.Table.Get(t.Context(), id); err != nil || rec.Redrives != 2 || rec.RedriveError != "still broken" {
		t.Errorf("%+v, %v", rec, err)
	}
	if err := h.Table.Failed(t.Context(), 999, "x"); err != nil {
		t.Errorf("a row that is gone: %v", err)
	}
}

func tooLarge[Tx any](t *testing.T, h Harness[Tx]) {
	rec := record(1)
	rec.Value = make([]byte, 2000)
	rec.Size = 2000
	_, err := h.Store.Once(t.Context(), rec.DedupKey(), func(ctx context.Context, tx Tx) error {
		return h.Limited(1999, false).Write(ctx, tx, rec)
	})
	if !errors.Is(err, deadletter.ErrTooLarge) || dedupstore.ClassOf(err) != dedupstore.Misconfigured ||
		!strings.Contains(err.Error(), "MaxBytes") || h.dead() != 0 {
		t.Errorf("%v", err)
	}
	id := h.write(t, h.Limited(1999, true), rec)[0]
	got, err := h.Table.Get(t.Context(), id)
	if err != nil || !got.LeftOut || got.Value != nil || string(got.Key) != string(rec.Key) || len(got.Headers) > 0 ||
		got.Size != 2000 || got.Offset != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	wipe := func() {
		h.Run("delete from dead_message")
		h.Run("delete from processed_event")
	}
	wipe()
	long := *rec
	long.Key, long.Size = make([]byte, 2000), 4000
	id = h.write(t, h.Limited(1999, true), &long)[0]
	if got, err := h.Table.Get(t.Context(), id); err != nil || !got.LeftOut || got.Key != nil {
		t.Errorf("with a key that is too large: %+v, %v", got, err)
	}
	wipe()
	id = h.write(t, h.Limited(2000, false), rec)[0]
	if got, err := h.Table.Get(t.Context(), id); err != nil || len(got.Value) != 2000 {
		t.Errorf("%v", err)
	}
}

// What cannot be read is an error and stays where it is; the rest can be listed and discarded.
func edited[Tx any](t *testing.T, h Harness[Tx]) {
	id := h.write(t, h.Table, record(1))[0]
	for _, headers := range []string{`"secret"`, `{"key": "secret"}`, `[1]`,
		`[{"key": "k", "base64": "no base64 secret!"}]`} {
		h.Run("update dead_message set headers = '" + headers + "'")
		_, err := h.Table.Get(t.Context(), id)
		if !errors.Is(err, deadletter.ErrUnreadable) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", headers, err)
		}
		if list, err := h.Table.List(t.Context(), deadletter.Filter{}, 0, 10); err != nil || len(list) != 1 {
			t.Errorf("%s: List: %v", headers, err)
		}
	}
	h.Run(`update dead_message set headers = '[{"key": "event-id", "text": "repaired"}, {}]', kind = 'my own', message_time = null`)
	rec, err := h.Table.Get(t.Context(), id)
	if err != nil || len(rec.Headers) != 2 || string(rec.Headers[0].Value) != "repaired" || rec.Kind != "my own" ||
		!rec.Timestamp.IsZero() {
		t.Errorf("%+v, %v", rec, err)
	}
}

func check[Tx any](t *testing.T, h Harness[Tx]) {
	if err := errors.Join(h.Table.Check(t.Context()), h.Starts.Check(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n := h.dead() + h.Count("select count(*) from started_message"); n != 0 {
		t.Errorf("Check has written %d rows", n)
	}
	missing := h.Renamed()
	err := missing.Check(t.Context())
	if err == nil || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
		t.Fatalf("a table that is not there: %v", err)
	}
	_, script, _ := strings.Cut(schematest.Printed(err.Error()), "run:")
	h.Run(script)
	if err := missing.Check(t.Context()); err != nil {
		t.Errorf("after the remedy: %v", err)
	}
	h.Run("alter table dead_message drop column trace_id")
	if err := h.Table.Check(t.Context()); dedupstore.ClassOf(err) != dedupstore.Misconfigured {
		t.Errorf("a column that is not there: %v", err)
	}
}

func countsStarts[Tx any](t *testing.T, h Harness[Tx]) {
	keys := []dedupstore.Key{{Consumer: "a", Event: "1"}, {Consumer: "b", Event: "1"}}
	for want := 1; want <= 3; want++ {
		for _, key := range keys {
			if n, err := h.Starts.Begin(t.Context(), key); n != want || err != nil {
				t.Errorf("Begin() = %d, %v, want %d", n, err, want)
			}
		}
	}
	if err := h.Starts.End(t.Context(), keys[0]); err != nil {
		t.Error(err)
	}
	for consumer, want := range map[string]map[string]int{"a": {}, "b": {"1": 3}, "c": {}} {
		if got, err := h.Starts.Pending(t.Context(), consumer); err != nil || !maps.Equal(got, want) {
			t.Errorf("Pending(%s) = %v, %v, want %v", consumer, got, err, want)
		}
	}
	if h.Locks { // the newest ones are read
		h.Run("insert into started_message (consumer_id, event_id, starts, started_at) select 'many', 'e' || n, 1, now() - interval '1 day' from generate_series(1, 10000) as n")
		newest := dedupstore.Key{Consumer: "many", Event: "newest"}
		if n, err := h.Starts.Begin(t.Context(), newest); n != 1 || err != nil {
			t.Errorf("Begin() = %d, %v", n, err)
		}
		if got, err := h.Starts.Pending(t.Context(), newest.Consumer); err != nil || len(got) != 10000 ||
			got[newest.Event] != 1 {
			t.Errorf("Pending() = %d of them, %v, %d of the newest", len(got), err, got[newest.Event])
		}
		h.Run("delete from started_message where consumer_id = 'many'")
	}
	for i, want := range []int{1, 4} {
		if n, err := h.Starts.Begin(t.Context(), keys[i]); n != want || err != nil {
			t.Errorf("Begin() = %d, %v, want %d", n, err, want)
		}
	}
	// What is recorded as processed is not counted.
	h.write(t, h.Table, record(1))
	if n, err := h.Starts.Begin(t.Context(), record(1).DedupKey()); n != 0 || err != nil {
		t.Errorf("Begin() of a duplicate = %d, %v", n, err)
	}
	if n := h.Count("select count(*) from started_message"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
