package deadtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

// swallow has a trigger of the table leave out what is done to it: before insert, say.
func (h Harness[Tx]) swallow(when, table string) {
	does := "begin select raise(ignore); end"
	if h.Locks {
		h.Run("create or replace function swallow() returns trigger language plpgsql as 'begin return null; end'")
		does = "for each row execute function swallow()"
	}
	h.Run(fmt.Sprintf("create trigger swallow_%[2]s_%[1]s before %[1]s on %[2]s %[3]s", when, table, does))
}

// What a trigger swallows was not done, and no row is no answer.
func swallowed[Tx any](t *testing.T, h Harness[Tx]) {
	id := h.write(t, h.Table, record(1))[0]
	other := dedupstore.Key{Consumer: "billing/orders", Event: "another"}
	if n, err := h.Starts.Begin(t.Context(), other); n != 1 || err != nil {
		t.Fatalf("Begin() = %d, %v", n, err)
	}
	h.swallow("insert", "dead_message")
	h.swallow("delete", "dead_message")
	h.swallow("insert", "started_message")
	inTx := func(f func(ctx context.Context, tx Tx) error) error { return h.Store.InTx(t.Context(), f) }
	for what, err := range map[string]error{
		"Write": inTx(func(ctx context.Context, tx Tx) error { return h.Table.Write(ctx, tx, record(2)) }),
		"Take": inTx(func(ctx context.Context, tx Tx) error {
			_, err := h.Table.Take(ctx, tx, id)
			return err
		}),
		"Begin": func() error {
			_, err := h.Starts.Begin(t.Context(), dedupstore.Key{Consumer: "billing/orders", Event: "new"})
			return err
		}(),
	} {
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "swallows") ||
			errors.Is(err, deadletter.ErrTaken) {
			t.Errorf("%s: %v, class %v", what, err, dedupstore.ClassOf(err))
		}
	}
	if h.Locks { // what a trigger says of a value is not the message's fault either
		h.Run("create or replace function swallow() returns trigger language plpgsql as 'begin raise exception ''not this one'' using errcode = ''22023''; end'")
		err := inTx(func(ctx context.Context, tx Tx) error { return h.Table.Write(ctx, tx, record(2)) })
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("a trigger that raises 22023: %v, class %v", err, dedupstore.ClassOf(err))
		}
		h.Run("create or replace function swallow() returns trigger language plpgsql as 'begin return null; end'")
	}
	if n, err := h.Starts.Begin(t.Context(), record(1).DedupKey()); n != 0 || err != nil {
		t.Errorf("Begin() of a duplicate = %d, %v", n, err)
	}
	if n := h.dead(); n != 1 {
		t.Errorf("%d dead letters, want the one of before", n)
	}
}

// A start that is counted for another event is none.
func startOfAnother[Tx any](t *testing.T, h Harness[Tx]) {
	if !h.Locks {
		t.Skip("a trigger of SQLite does not change what is inserted")
	}
	h.Run(`create function change() returns trigger language plpgsql as 'begin new.event_id = ''x'' || new.event_id; return new; end';
		create trigger change before insert on started_message for each row execute function change()`)
	n, err := h.Starts.Begin(t.Context(), dedupstore.Key{Consumer: "a", Event: "e"})
	if n != 0 || dedupstore.ClassOf(err) != dedupstore.Misconfigured {
		t.Errorf("Begin() = %d, %v, class %v", n, err, dedupstore.ClassOf(err))
	}
}

// The tables stay those that they were, whatever a function makes or leaves in its session, for its own statements and
// for those behind it.
func tablesStay[Tx any](t *testing.T, h Harness[Tx]) {
	changes := []string{"create temporary table dead_message (id integer)",
		"create temporary table started_message (id integer)"}
	if h.Locks {
		changes = append(changes, "set search_path to ''", "set local search_path to ''")
	}
	ids := h.write(t, h.Table, record(1), record(2), record(3), record(4))
	for i, change := range changes {
		err := h.Store.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			if err := h.Exec(ctx, tx, change); err != nil {
				return err
			}
			if _, err := h.Table.Take(ctx, tx, ids[i]); err != nil {
				return err
			}
			return h.Table.Write(ctx, tx, record(int64(10+i)))
		})
		if err != nil {
			t.Errorf("%s: %v", change, err)
		}
		if n, err := h.Starts.Begin(t.Context(), dedupstore.Key{Consumer: "a", Event: "e"}); n != i+1 || err != nil {
			t.Errorf("after %s: Begin() = %d, %v, want %d", change, n, err, i+1)
		}
	}
	if n, err := h.Table.Count(t.Context(), deadletter.Filter{}); n != int64(len(ids)) || err != nil {
		t.Errorf("Count() = %d, %v, want %d", n, err, len(ids))
	}
}
