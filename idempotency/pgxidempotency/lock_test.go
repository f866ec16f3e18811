package pgxidempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// An answer that somebody stores meanwhile without taking the lock: the unique index decides, and the request is rolled
// back.
func TestPastTheLock(t *testing.T) {
	t.Parallel()
	h := harness(t, pgx.QueryExecModeCacheStatement)
	other := h.Other.(*pgxidempotency.Store)
	req := idempotency.Request{Key: "key", Keep: time.Hour}
	_, _, err := h.Store.Once(t.Context(), req, func(ctx context.Context, tx pgx.Tx) (idempotency.Answer, error) {
		err := other.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into idempotency_key (scope, key, fingerprint, status_code, expires_at)
				values ('', 'key', $1, 202, now() + interval '1 hour')`, req.Fingerprint[:])
			return err
		})
		return idempotency.Answer{Status: 201}, errors.Join(err, h.Write(ctx, tx, "key"))
	})
	if !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("Once() = %v, want ErrInProgress", err)
	}
	if n, err := h.Effects(t.Context(), "key"); err != nil || n != 0 {
		t.Errorf("%d effects, %v, want none", n, err)
	}
	answer, replayed, err := h.Store.Once(t.Context(), req, nil)
	if err != nil || !replayed || answer.Status != 202 {
		t.Errorf("then: %d, replayed %v, %v", answer.Status, replayed, err)
	}
}

// A function that ends the transaction by SQL of its own is told so, and no answer is kept for what may have been
// rolled back.
func TestTransactionEndedBySQL(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		h := harness(t, mode)
		for _, text := range []string{"commit", "rollback", "commit and chain", "rollback and chain"} {
			for _, drop := range []bool{false, true} {
				req := idempotency.Request{Key: fmt.Sprint(text, drop), Keep: time.Hour}
				for range 2 {
					_, replayed, err := h.Store.Once(t.Context(), req, func(ctx context.Context, tx pgx.Tx) (idempotency.Answer,
						error) {
						_, err := tx.Exec(ctx, text)
						return idempotency.Answer{Status: 200, DropWrites: drop}, err
					})
					if replayed || !errors.Is(err, dedupstore.ErrTxEnded) {
						t.Errorf("%v, %s, %v: replayed %v, %v", mode, text, drop, replayed, err)
					}
				}
			}
		}
	}
}

func TestRowsLeftOpen(t *testing.T) {
	t.Parallel()
	h := harness(t, pgx.QueryExecModeCacheStatement)
	for _, drop := range []bool{false, true} {
		_, _, err := h.Store.Once(t.Context(), idempotency.Request{Key: fmt.Sprint("key ", drop), Keep: time.Hour},
			func(ctx context.Context, tx pgx.Tx) (idempotency.Answer, error) {
				_, err := tx.Query(ctx, "select generate_series(1, 10000)") //nolint:sqlclosecheck // that is the mistake
				return idempotency.Answer{Status: 200, DropWrites: drop}, err
			})
		if err == nil || !strings.Contains(err.Error(), "rows or a batch of its were open: close them") {
			t.Errorf("drop %v: %v", drop, err)
		}
	}
}

// The COMMIT of the first request may have been cut short while it waited for a synchronous replica: a replay waits
// too, so that it confirms nothing that a failover loses.
func TestReplayWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	server := serverstest.Instance(t)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := open(t, server.URL(), pgx.QueryExecModeExec)
	run := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if _, err := pool.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(schema.Postgres.SQL(nil, schema.Idempotency))
	patient, hasty := pgxidempotency.New(pool, nil),
		pgxidempotency.New(pool, &pgxidempotency.Config{CommitTimeout: 500 * time.Millisecond})
	req := idempotency.Request{Key: "key", Keep: time.Hour}
	once := func(s *pgxidempotency.Store, req idempotency.Request) (bool, error) {
		_, replayed, err := s.Once(t.Context(), req, func(context.Context, pgx.Tx) (idempotency.Answer, error) {
			return idempotency.Answer{Status: 200}, nil
		})
		return replayed, err
	}
	if replayed, err := once(patient, req); replayed || err != nil {
		t.Fatalf("first: replayed %v, %v", replayed, err)
	}
	run("alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
	for n, deadline := 0, time.Now().Add(time.Minute); ; n++ { // until the server knows
		_, err := once(hasty, idempotency.Request{Key: fmt.Sprint("probe ", n), Keep: time.Hour})
		if dedupstore.ClassOf(err) == dedupstore.OutcomeUnknown {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("COMMIT does not wait: %v", err)
		}
	}
	if replayed, err := once(hasty, req); dedupstore.ClassOf(err) != dedupstore.OutcomeUnknown {
		t.Errorf("a replay without the replica: %v, %v, want an unknown outcome", replayed, err)
	}
	run("alter system reset synchronous_standby_names", "select pg_reload_conf()")
	for deadline := time.Now().Add(time.Minute); ; {
		replayed, err := once(patient, req)
		if replayed && err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("with the replica: replayed %v, %v", replayed, err)
		}
	}
}
