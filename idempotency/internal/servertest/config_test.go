package servertest_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	principal := func(*http.Request) (string, error) { return "x", nil }
	for says, cfg := range map[string]idempotency.HandlerConfig{
		"Principal is not set":             {},
		"Principal and SingleTenant":       {Principal: principal, SingleTenant: true},
		"Keep is -1s":                      {SingleTenant: true, Keep: -time.Second},
		"Keep is 876000h0m0s":              {SingleTenant: true, Keep: 100 * 365 * 24 * time.Hour},
		"RetryAfter is -1s":                {SingleTenant: true, RetryAfter: -time.Second},
		"MaxBody is -1":                    {SingleTenant: true, MaxBody: -1},
		"MaxAnswer is -1":                  {SingleTenant: true, MaxAnswer: -1},
		"MaxAnswer is 1073741824":          {SingleTenant: true, MaxAnswer: 1 << 30},
		`ReplayHeaders has ""`:             {SingleTenant: true, ReplayHeaders: []string{""}},
		`ReplayHeaders has "A: b"`:         {SingleTenant: true, ReplayHeaders: []string{"A: b"}},
		"ReplayHeaders has Set-Cookie":     {SingleTenant: true, ReplayHeaders: []string{"set-cookie"}},
		"ReplayHeaders has Content-Length": {SingleTenant: true, ReplayHeaders: []string{"Content-Length"}},
	} {
		_, err := idempotency.NewHandler(pgxidempotency.New(nil, nil), answering(200, ""), cfg)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("NewHandler() = %v, want an error that says %s", err, says)
		}
	}
	_, err := idempotency.NewHandler[pgx.Tx](nil, nil, idempotency.HandlerConfig{Keep: -1})
	for _, says := range []string{"the store is nil", "the function is nil", "Principal is not set", "Keep is -1ns"} { // all at once
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("NewHandler() = %v, want an error that says %s", err, says)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(pool *pgxidempotency.Store) error {
		handler, err := idempotency.NewHandler(pool, answering(200, ""), idempotency.HandlerConfig{SingleTenant: true})
		if err != nil {
			t.Fatal(err)
		}
		return handler.Check(t.Context())
	}
	pool := database(t)
	if err := check(pgxidempotency.New(pool, nil)); err != nil {
		t.Error(err)
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "select count(*) from idempotency_key").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("after Check the table has %d rows, %v", rows, err)
	}
	if err := check(pgxidempotency.New(serverstest.Pool(t), nil)); err == nil ||
		!strings.Contains(err.Error(), "einmal schema print -db postgres idempotency") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("Check() without a table = %v", err)
	}
	if err := check(pgxidempotency.New(pool, &pgxidempotency.Config{Table: strings.Repeat("x", 64),
		CommitTimeout: -1})); err == nil || !strings.Contains(err.Error(), "invalid Config.Table") ||
		!strings.Contains(err.Error(), "invalid Config.CommitTimeout") {
		t.Errorf("Check() of an invalid configuration = %v", err)
	}
	if err := check(pgxidempotency.New(nil, nil)); err == nil || !strings.Contains(err.Error(), "the pool is nil") {
		t.Errorf("Check() without a pool = %v", err)
	}
	if _, err := pool.Exec(t.Context(), "alter table idempotency_key drop constraint idempotency_key_pkey"); err != nil {
		t.Fatal(err)
	}
	if err := check(pgxidempotency.New(pool, nil)); err == nil || !strings.Contains(err.Error(), "unique") {
		t.Errorf("Check() without a unique index = %v", err)
	}
}

// A table of another name, in a schema that the search_path does not have.
func TestAnotherTable(t *testing.T) {
	t.Parallel()
	const schemaName, table = `else'where "\`, `keys' of "us"`
	pool := database(t)
	name := pgx.Identifier{schemaName + rand.Text()}
	for _, text := range []string{"create schema " + name.Sanitize(), schemaSQL(name[0], table)} {
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = pool.Exec(t.Context(), "drop schema "+name.Sanitize()+" cascade") })
	store := pgxidempotency.New(pool, &pgxidempotency.Config{Schema: name[0], Table: table})
	handler, err := idempotency.NewHandler(store, answering(200, "done"), idempotency.HandlerConfig{SingleTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := handler.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &service{pool, listen(t, handler), t}
	s.want(s.post("key"), 200, "done", false)
	s.want(s.post("key"), 200, "done", true)
	s.wantEffects(1)
}
