package idempotency_test

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
)

type user struct{}

// authenticated lets through who knows a user's password. passwords are the SHA-256 of random ones; those that people
// choose need a slow hash.
func authenticated(passwords map[string][sha256.Size]byte, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		want, known := passwords[name]
		got := sha256.Sum256([]byte(password))
		if same := subtle.ConstantTimeCompare(got[:], want[:]) == 1; !same || !known {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, name)))
	})
}

// tenant is whose keys a request's are: the user as whom it was authenticated, never one that it merely names.
func tenant(r *http.Request) (string, error) {
	if name, ok := r.Context().Value(user{}).(string); ok {
		return name, nil
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
		return nil                                                   //nolint:nilerr // it has been answered
	}
	var id int64
	if err := tx.QueryRow(ctx, "insert into orders (cents) values ($1) returning id", order.Cents).Scan(&id); err != nil {
		return err // all is rolled back, and the client may repeat the request
	}
	event := outbox.Event{Topic: "orders.placed", Key: fmt.Append(nil, id), Value: fmt.Appendf(nil, `{"id":%d,"cents":%d}`,
		id, order.Cents)}
	if err := pgxoutbox.NewWriter(nil).Write(ctx, tx, event); err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
	return nil
}

// A service whose POST /orders takes effect once for each Idempotency-Key, and a client that forgets its key, which
// does not get as far as the database. The tables are those of the components idempotency and outbox of package schema.
func ExampleNewHandler() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/orders") // which connects when it must
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	orders, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), placeOrder,
		idempotency.HandlerConfig{Principal: tenant})
	if err != nil {
		fmt.Println(err) // says all that is wrong with the configuration
		return
	}
	// At its start a service calls orders.Check(ctx), whose error says which SQL to run.
	mux := http.NewServeMux()
	mux.Handle("POST /orders", authenticated(map[string][sha256.Size]byte{"shop": sha256.Sum256([]byte("a long random password"))}, orders))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, password := range []string{"", "a long random password"} {
		req, err := http.NewRequest(http.MethodPost, server.URL+"/orders", strings.NewReader(`{"cents":4999}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		req.SetBasicAuth("shop", password)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		_ = resp.Body.Close()
		var problem struct{ Title string }
		_ = json.Unmarshal(text, &problem) // the first one is none
		fmt.Println(strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", problem.Title)))
	}
	// Output:
	// 401
	// 400 Idempotency-Key is missing
}
