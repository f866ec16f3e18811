package idemtest

import (
	"context"
	"testing"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

// SessionThatOthersHaveChanged checks that no handler runs in a session that somebody has changed past the store. The
// pool of the store has one connection, on which set runs a statement.
func SessionThatOthersHaveChanged[Tx any](t *testing.T, store idempotency.Store[Tx], set func(text string) error,
	look func(ctx context.Context, tx Tx, text string) (string, error)) {
	t.Helper()
	saw := func(key string) (settings string) {
		t.Helper()
		_, replayed, err := store.Once(t.Context(), idempotency.Request{Key: key, Keep: time.Hour},
			func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
				var err error
				settings, err = look(ctx, tx, `select concat_ws(' ', current_user, current_setting('search_path'),
					current_setting('TimeZone'), current_setting('statement_timeout'))`)
				return idempotency.Answer{Status: 200}, err
			})
		if err != nil || replayed {
			t.Errorf("%s: replayed %v, %v", key, replayed, err)
		}
		return settings
	}
	before := saw("before")
	for _, text := range []string{
		"set role pg_monitor", "set search_path to ''", "set time zone 'Pacific/Chatham'", "set statement_timeout = '1s'",
	} {
		if err := set(text); err != nil {
			t.Fatal(err)
		}
		if after := saw(text); after != before {
			t.Errorf("after %s: a handler runs with %q, want %q", text, after, before)
		}
	}
}
