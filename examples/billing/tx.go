package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// inTx runs h in a transaction, and answers when that is committed.
func inTx(pool *pgxpool.Pool, h func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := &answer{header: w.Header(), status: http.StatusOK}
		err := pgx.BeginFunc(r.Context(), pool, func(tx pgx.Tx) error { return h(r.Context(), tx, a, r) })
		if err != nil {
			slog.Error("a request failed", slog.Any("error", err))
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body.Bytes())
	}
}

// answer keeps an answer until its transaction is committed.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
