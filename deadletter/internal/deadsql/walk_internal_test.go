package deadsql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/schema"
)

// A walk whose time is up behind each stretch says how far it has come, and goes on from there: all is found, once.
func TestWalkInStretches(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	const rows = 2*stretchRows + 10
	for _, text := range []string{schema.SQLite.SQL(nil, schema.DeadLetter), `with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)
insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, error, died_at)
select 'c', 'e', 't', 0, i, 'gave_up', iif(i in (3, 20001, 40009), 'a needle', 'hay'), '2026-01-02T00:00:00.000Z' from n`} {
		args := []any{rows}
		if text[0] != 'w' {
			args = nil
		}
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	table := New("deadsql", schema.SQLite, Config{}, SQL(db), func(*sql.Tx) Conn { return nil }, nil)
	for _, oldest := range []bool{true, false} {
		w := &walk{base: table.base, conn: SQL(db), name: "dead_message", search: deadletter.Search{Text: "needle"},
			page: deadletter.Page{OldestFirst: oldest}}
		if err := w.narrow(t.Context()); err != nil || w.few != nil || w.served() {
			t.Fatalf("%v, %v", w.few != nil, err)
		}
		var ids, ends []int64
		for range 3 {
			list, err := w.through(t.Context(), time.Time{})
			for _, rec := range list {
				ids = append(ids, rec.ID)
			}
			partial, ok := errors.AsType[*deadletter.PartialError](err)
			if !ok {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if partial.Looked != stretchRows || !errors.Is(err, deadletter.ErrTooLong) ||
				!partial.Died.Equal(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)) {
				t.Errorf("%+v", partial)
			}
			ends = append(ends, partial.Beyond)
		}
		want, wantEnds := []int64{3, 20001, 40009}, []int64{stretchRows, 2 * stretchRows}
		if !oldest {
			slices.Reverse(want)
			wantEnds = []int64{rows - stretchRows + 1, rows - 2*stretchRows + 1}
		}
		if !slices.Equal(ids, want) || !slices.Equal(ends, wantEnds) {
			t.Errorf("oldest first %v: %v, want %v; ends %v, want %v", oldest, ids, want, ends, wantEnds)
		}
	}
	over, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	w := &walk{base: table.base, conn: SQL(db), name: "dead_message", search: deadletter.Search{Text: "needle"}}
	if list, err := w.through(over, time.Time{}); err == nil || list != nil {
		t.Errorf("%v, %v", list, err)
	}
}
