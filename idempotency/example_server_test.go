package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

// tenant is whose keys a request's are. It comes after what has authenticated the request.
func tenant(r *http.Request) (string, error) {
	if user, _, ok := r.BasicAuth(); ok {
		return user, nil
	}
	return "", errors.New("not authenticated")
}

// placeOrder writes the order and its event, and answers: all of it is one transaction with the record of the key.
func placeOrder(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	var order struct {
		Cents int64 `json:"cents"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Cents <= 0 {
		http.Error(w, "an order needs cents", http.StatusBadRequest) // is kept; the key stands for this request
		return nil
	}
	var id int64
	if err := tx.QueryRow(ctx, "insert into orders (cents) values ($1) returning id", order.Cents).Scan(&id); err != nil {
		return err // all is rolled back, and the client may repeat the request
	}
	event := outbox.Event{Topic: "orders.placed", Key: fmt.Append(nil, id), Value: fmt.Appendf(nil, `{"id":%d,"cents":%d}`, id, order.Cents)}
	if err := pgxoutbox.NewWriter(nil).Write(ctx, tx, event); err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
	return nil
}

// A service whose POST /orders takes effect once for each Idempotency-Key. The tables are those of the components idempotency and outbox of
// package schema.
func ExampleNewHandler() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	orders, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), placeOrder, idempotency.HandlerConfig{Principal: tenant})
	if err != nil {
		log.Fatal(err) // says all that is wrong with the configuration
	}
	if err := orders.Check(context.Background()); err != nil {
		log.Fatal(err) // says which SQL to run
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", orders)
	log.Fatal(http.ListenAndServe("localhost:8080", mux))
}

// What a client gets that sends nothing to tell its requests apart. It does not get as far as the database.
func ExampleHandler() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/orders") // which connects when it must
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	orders, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), placeOrder, idempotency.HandlerConfig{Principal: tenant})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(orders)
	defer server.Close()

	resp, err := http.Post(server.URL+"/orders", "application/json", strings.NewReader(`{"cents":4999}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Title string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&problem); err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"), problem.Title)
	// Output: 400 application/problem+json Idempotency-Key is missing
}
