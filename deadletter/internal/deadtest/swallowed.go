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
		if dedupstore.ClassOf(err) != dedupstore.Misconfigured || !strings.Contains(err.Error(), "swallows") || errors.Is(err, deadletter.ErrTaken) {
			t.Errorf("%s: %v, class %v", what, err, dedupstore.ClassOf(err))
		}
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
