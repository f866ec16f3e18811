package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

// fillOutbox writes three events, the second of which is blocked.
func fillOutbox(t *testing.T, url string) {
	t.Helper()
	einmal(t, url, "schema", "apply").want(t, exitOK)
	db, err := (&urlFlags{url: url}).open(t.Context(), &environment{getenv: func(string) string { return "" }}, schema.Postgres, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var events []outbox.Event
	for i := range 3 {
		events = append(events, outbox.Event{
			ID: fmt.Sprint("e", i), Topic: fmt.Sprint("orders", i), Key: []byte("secret key"), Value: []byte("top secret"),
			Headers: []outbox.Header{{Key: "h", Value: []byte("secret header")}},
		})
	}
	if err := sqloutbox.NewWriter(nil).Write(t.Context(), tx, events...); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "update outbox_event set status = 'BLOCKED', last_error = E'too\x1b[31m large' where event_id = 'e1'"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	fillOutbox(t, url)
	r := einmal(t, url, "outbox", "list")
	r.want(t, exitOK, "PENDING  orders0  e0", "BLOCKED  orders1  e1", "too [31m large", "listed: 3")
	if strings.Contains(r.out, "secret") || strings.Contains(r.out, "\x1b") {
		t.Errorf("it shows too much: %s", r.out)
	}
	einmal(t, url, "outbox", "list", "-limit", "1").want(t, exitOK, "listed: 1")
	einmal(t, url, "outbox", "list", "-topic", "orders2", "-state", "PENDING").want(t, exitOK, "e2", "listed: 1")
	einmal(t, url, "outbox", "list", "-state", "LOST").want(t, exitUsage, "no state")
	einmal(t, url, "outbox", "list", "first").want(t, exitUsage, "no number")

	r = einmal(t, url, "outbox", "list", "-json", "-state", "BLOCKED")
	r.want(t, exitOK)
	var facts rowFacts
	if err := json.Unmarshal([]byte(r.out), &facts); err != nil || facts.EventID != "e1" {
		t.Fatalf("%v: %s", err, r.out)
	}
	number := fmt.Sprint(facts.Number)
	r = einmal(t, url, "outbox", "show", number)
	r.want(t, exitOK, `"topic": "orders1"`)
	if strings.Contains(r.out, "dG9w") {
		t.Errorf("it shows the message: %s", r.out)
	}
	einmal(t, url, "outbox", "show", "-message", number).want(t, exitOK, `"value": "dG9wIHNlY3JldA=="`)
	einmal(t, url, "outbox", "show", "999999").want(t, exitNo, "999999")
	einmal(t, url, "outbox", "show").want(t, exitUsage, "numbers")

	einmal(t, url, "outbox", "discard", number).want(t, exitUsage, "-reason")
	einmal(t, url, "outbox", "discard", "-reason", "ann: it was never an order").want(t, exitUsage, "say which")
	einmal(t, url, "outbox", "discard", "-reason", "ann: it was never an order", number).want(t, exitOK, "discarded: 1")
	einmal(t, url, "outbox", "list", number).want(t, exitOK, "DEAD", "ann: it was never an order")
	einmal(t, url, "outbox", "retry").want(t, exitUsage, "say which")
	einmal(t, url, "outbox", "retry", number).want(t, exitOK, "to be sent again: 1")
	einmal(t, url, "outbox", "retry", "-state", "BLOCKED").want(t, exitOK, "to be sent again: 0")
	einmal(t, url, "outbox", "list", "-state", "PENDING").want(t, exitOK, "listed: 3")
	einmal(t, "file:"+t.TempDir()+"/db", "outbox", "list").want(t, exitUsage, "PostgreSQL")
}
