package idemtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencytest"
)

// Exec runs a statement without parameters in a transaction.
type Exec[Tx any] func(ctx context.Context, tx Tx, text string) error

// Postgres are triggers, by what they do: for the key lost, and for the probe of Check.
var Postgres = map[string][]string{
	"left out": {
		`create function lose() returns trigger language plpgsql as
		'begin if new.key = ''lost'' or starts_with(new.key, ''einmal '') then return null; end if; return new; end'`,
		`create trigger lose before insert on idempotency_key for each row execute function lose()`,
	},
	"changed": {
		`create function lose() returns trigger language plpgsql as
		'begin if new.key = ''lost'' or starts_with(new.key, ''einmal '') then new.key := new.key || '' changed''; end if; return new; end'`,
		`create trigger lose before insert on idempotency_key for each row execute function lose()`,
	},
	overExpired: {
		`create function lose() returns trigger language plpgsql as 'begin return null; end'`,
		`create trigger lose before update on idempotency_key for each row execute function lose()`,
	},
}

// overExpired leaves out an answer in the place of one that has expired, which Check has not.
const overExpired = "left out over an expired one"

// SQLite are the same. It has none that changes a row before it is written.
var SQLite = map[string][]string{
	"left out": {`create trigger lose before insert on idempotency_key when new.key = 'lost' begin select raise(ignore); end`},
}

// AnswerIsSwallowed checks that an answer that a trigger leaves out, or changes, is no request in progress: nothing has
// happened, and the error is the deployment's.
func AnswerIsSwallowed[Tx any](t *testing.T, triggers map[string][]string,
	open func(t testing.TB) idempotencytest.Harness[Tx], exec Exec[Tx]) {
	t.Helper()
	for name, texts := range triggers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answerIsSwallowed(t, open(t), name == overExpired, texts, exec)
		})
	}
}

// answerIsSwallowed does so for one trigger, which Check meets unless it is for what has expired.
func answerIsSwallowed[Tx any](t *testing.T, h idempotencytest.Harness[Tx], expired bool, texts []string,
	exec Exec[Tx]) {
	t.Helper()
	once := func(key string, keep time.Duration) error {
		_, replayed, err := h.Store.Once(t.Context(), idempotency.Request{Key: key, Keep: keep},
			func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
				return idempotency.Answer{Status: 200}, h.Write(ctx, tx, key)
			})
		if replayed {
			t.Errorf("%s: replayed", key)
		}
		return err
	}
	before := 0
	if expired {
		if err := once("lost", time.Microsecond); err != nil {
			t.Fatal(err)
		}
		before = 1
	}
	for _, text := range texts {
		if err := h.Store.InTx(t.Context(),
			func(ctx context.Context, tx Tx) error { return exec(ctx, tx, text) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := once("lost", time.Hour); !swallowed(err) || errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("Once() = %v, class %v", err, dedupstore.ClassOf(err))
	}
	if n, err := h.Effects(t.Context(), "lost"); n != before || err != nil {
		t.Errorf("%d effects, %v, want %d", n, err, before)
	}
	if err := once("another", time.Hour); err != nil {
		t.Errorf("another key: Once() = %v", err)
	}
	want := dedupstore.Misconfigured
	if expired {
		want = dedupstore.Unclassified
	}
	if err := h.Store.(dedupstore.Checker).Check(t.Context()); (err == nil) != expired || dedupstore.ClassOf(err) != want { //nolint:forcetypeassert // all have it
		t.Errorf("Check() = %v", err)
	}
}

func swallowed(err error) bool {
	return dedupstore.ClassOf(err) == dedupstore.Misconfigured &&
		strings.Contains(err.Error(), "a trigger swallows or changes")
}
