package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	s := idleService(t)
	place := func(key, body string) (status int, answer string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", `"`+key+`"`)
		}
		w := httptest.NewRecorder()
		s.requests.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	status, first := place("k1", `{"reference": "r1", "cents": 700}`)
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, first)
	}
	status, again := place("k1", `{"reference": "r1", "cents": 700}`)
	if status != http.StatusCreated || again != first {
		t.Errorf("again: %d %s, first %s", status, again, first)
	}
	for _, c := range []struct {
		key, body string
		status    int
	}{
		{"k1", `{"reference": "r1", "cents": 701}`, http.StatusUnprocessableEntity}, // another request with the key
		{"", `{"reference": "r2", "cents": 700}`, http.StatusBadRequest},            // no key
		{"k3", `{"reference": "r3"}`, http.StatusBadRequest},
		{"k4", `{"reference": "r4", "cents": -1}`, http.StatusBadRequest},
	} {
		if status, answer := place(c.key, c.body); status != c.status {
			t.Errorf("key %q, %s: %d %s, want %d", c.key, c.body, status, answer, c.status)
		}
	}
	if got := rows(t, s.db.pool, "select reference from orders"); len(got) != 1 || got[0] != "r1" {
		t.Errorf("orders: %q", got)
	}
	if got := rows(t, s.db.pool, "select topic from outbox_event"); len(got) != 1 || got[0] != s.cfg.ordersTopic {
		t.Errorf("events: %q", got)
	}
}
