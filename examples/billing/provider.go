package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/schema"
)

const providerDoc = `
billing provider takes the money: POST /charges writes a payment. It is somebody else's service, with its own database, and knows a
request that comes again by its Idempotency-Key. It creates its tables where the database's search_path begins. Ctrl-C or SIGTERM
drains it.`

// paymentTable has no unique constraint on reference: the database would let a customer pay twice.
const paymentTable = `
CREATE TABLE IF NOT EXISTS payment (
	id        text   PRIMARY KEY,
	reference text   NOT NULL,
	cents     bigint NOT NULL
)`

// Payment is what the provider is asked for, and answers with.
type Payment struct {
	ID        string `json:"payment_id,omitempty"`
	Reference string `json:"reference"`
	Cents     int64  `json:"cents"`
}

// providerCommand is the service's main: ctx ends with SIGTERM. Then no more requests are taken, those in work finish,
// and the pool is closed.
func providerCommand(ctx context.Context, args []string, stdout io.Writer) error {
	var t target
	fs := newFlags("provider", providerDoc)
	addr := addListen(fs, "127.0.0.1:8082")
	takes := fs.Duration("takes", 0, "how long a payment takes")
	t.addDatabase(fs)
	opsAddr := addOps(fs)
	if err := t.parse(fs, args, stdout); err != nil {
		return err
	}
	inside, err := story.Enter(ctx, stdout)
	if err != nil {
		return err
	}
	defer inside.Leave()
	o, err := openOps(ctx, "provider", *opsAddr)
	if err != nil {
		return err
	}
	defer o.start(ctx)()

	l, err := listen(ctx, *addr)
	if err != nil {
		return err
	}
	defer l.Close()
	pool, err := openPool(ctx, t.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := t.createTables(ctx, pool, paymentTable, schema.Idempotency); err != nil {
		return err
	}
	p := &provider{takes: *takes}
	charge, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), p.charge,
		idempotency.HandlerConfig{Principal: account, OnAnswer: o.answered})
	if err != nil {
		return err
	}
	if err := charge.Check(ctx); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", traced("POST /charges", charge))
	return serve(ctx, l, inside.Answers(mux))
}

// account is whose keys a request's are: two shops may use the same one. A real provider looks at the password, too.
func account(r *http.Request) (string, error) {
	name, _, _ := r.BasicAuth()
	return name, nil
}

// provider is what the service does with a request.
type provider struct{ takes time.Duration }

// charge takes the money. It knows nothing of repetitions.
func (p *provider) charge(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	var payment Payment
	if json.NewDecoder(r.Body).Decode(&payment) != nil || payment.Reference == "" || payment.Cents <= 0 {
		http.Error(w, `the body is not like {"reference": "yours", "cents": 700}`, http.StatusBadRequest)
		return nil //nolint:nilerr // the client has been told
	}
	payment.ID = outbox.NewID()
	_, err := tx.Exec(ctx, `INSERT INTO payment (id, reference, cents) VALUES ($1, $2, $3)`, payment.ID, payment.Reference,
		payment.Cents)
	if err != nil {
		return err
	}
	if err := pause(ctx, p.takes); err != nil { // it asks the bank
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(payment)
}

// pause waits for d, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
