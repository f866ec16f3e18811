package main

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	db, err := (&urlFlags{url: url}).open(t.Context(), &environment{getenv: func(string) string { return "" }},
		schema.Postgres, false)
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
	if _, err := tx.ExecContext(t.Context(),
		"update outbox_event set status = 'BLOCKED', last_error = E'too\x1b[31m large' where event_id = 'e1'"); err != nil {
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
	einmal(t, url, "outbox", "show", "-message", number).want(t, exitOK, `"value": {`, `"text": "top secret"`)
	einmal(t, url, "outbox", "show", "999999").want(t, exitNo, "999999")
	einmal(t, url, "outbox", "show").want(t, exitUsage, "numbers")

	einmal(t, url, "outbox", "discard", "-yes", number).want(t, exitUsage, "-reason")
	einmal(t, url, "outbox", "discard", "-reason", "ann: it was never an order").want(t, exitUsage, "say which")
	einmal(t, url, "outbox", "discard", "-reason", "ann: it was never an order", number).want(t, exitNo,
		"to discard: 1 of orders1, BLOCKED", "nothing was changed")
	answered(t, strings.NewReader("n\n"), url, "outbox", "discard", "-reason", "ann: it was never an order",
		number).want(t, exitNo, "discard 1 events? [y/N]", "nothing was changed")
	einmal(t, url, "outbox", "list", number).want(t, exitOK, "BLOCKED")
	answered(t, strings.NewReader("y\n"), url, "outbox", "discard", "-reason", "ann: it was never an order",
		number).want(t, exitOK, "discarded: 1")
	einmal(t, url, "outbox", "list", number).want(t, exitOK, "DEAD", "ann: it was never an order")
	einmal(t, url, "outbox", "discard", "-yes", "-reason", "again", number, "999999").want(t, exitNo,
		"is DEAD: there is nothing to discard", "999999 is not in the outbox", "discarded: 0")
	einmal(t, url, "outbox", "retry").want(t, exitUsage, "say which")
	einmal(t, url, "outbox", "retry", "-yes", "-topic", "orders1").want(t, exitOK, "to be sent again: 0") // somebody has discarded it
	einmal(t, url, "outbox", "list", number).want(t, exitOK, "DEAD", "ann: it was never an order")
	einmal(t, url, "outbox", "retry", "-yes", number).want(t, exitOK, "these were discarded: they come after",
		"to be sent again: 1")
	einmal(t, url, "outbox", "retry", "-yes", "-state", "BLOCKED").want(t, exitOK, "to be sent again: 0")
	einmal(t, url, "outbox", "retry", "-yes", "-topic", "orders2", number).want(t, exitNo, "the flags exclude it")
	einmal(t, url, "outbox", "list", "-state", "PENDING").want(t, exitOK, "listed: 3")
	einmal(t, url, "outbox", "discard", "-yes", "-reason", "r", "-topic", "orders2").want(t, exitOK, "discarded: 0") // it waits, nothing is wrong with it
	einmal(t, url, "outbox", "discard", "-yes", "-reason", "r", "-topic", "orders2", "-state", "PENDING").want(t, exitOK,
		"to discard: 1 of orders2, PENDING", "discarded: 1")
	einmal(t, url, "outbox", "discard", "-yes", "-reason", "r", "-state", "PUBLISHED").want(t, exitNo,
		"cannot be changed so")
	einmal(t, url, "outbox", "retry", "-yes", "-limit", "-1", "-state", "DEAD").want(t, exitUsage, "-limit is -1")
	answered(t, strings.NewReader("n\n"), url, "outbox", "discard", "-reason", "r", "-state", "PENDING", "-limit",
		"1").want(t, exitNo, "discard 1 events? [y/N]", "nothing was changed")
	einmal(t, url, "outbox", "discard", "-yes", "-reason", "r", "-state", "PENDING", "-limit", "1").want(t, exitOK,
		"discarded: 1")
	einmal(t, url, "outbox", "list", "-state", "PENDING").want(t, exitOK, "e1", "listed: 1")
	for _, command := range []string{"list", "retry -yes", "discard -yes -reason r"} {
		einmal(t, url, append(append([]string{"outbox"}, strings.Fields(command)...), "-timeout", "1ns", "-topic",
			"orders1")...).want(t, exitNo, "deadline exceeded")
	}
	einmal(t, "file:"+t.TempDir()+"/db", "outbox", "list").want(t, exitUsage, "PostgreSQL")
}

// Edit and SwitchMode from a shell.
func TestOutboxEditAndMode(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	fillOutbox(t, url)
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	einmal(t, url, "outbox", "edit", "-topic", "elsewhere", "2").want(t, exitNo, "topic: elsewhere, instead of orders1",
		"nothing was changed")
	einmal(t, url, "outbox", "edit", "-yes", "-topic", "elsewhere", "-partition", "3", "-value", file, "2").want(t, exitOK,
		"value: 3 bytes, instead of 10", "edited: 1")
	einmal(t, url, "outbox", "show", "-message", "2").want(t, exitOK, `"topic": "elsewhere"`, `"text": "new"`,
		`"partition": 3`, `"state": "PENDING"`, `"text": "secret header"`)
	einmal(t, url, "outbox", "edit", "-yes", "-partition", "-1", "2").want(t, exitOK, "that of its key", "edited: 1")
	einmal(t, url, "outbox", "show", "2").want(t, exitOK, `"partition": null`)
	for says, args := range map[string][]string{
		"one row": {"-topic", "t"}, "of one row": {"-topic", "t", "1", "2"}, "what is changed": {"2"},
		"-partition is -7": {"-partition", "-7", "2"}, "-value: open": {"-value", file + "x", "2"},
	} {
		einmal(t, url, append([]string{"outbox", "edit", "-yes"}, args...)...).want(t, exitUsage, says)
	}
	einmal(t, url, "outbox", "edit", "-yes", "-topic", "a b", "2").want(t, exitNo, "not the name of a topic")
	einmal(t, url, "outbox", "edit", "-yes", "-topic", "t", "4711").want(t, exitNo, "4711 is not in the outbox")

	einmal(t, url, "outbox", "mode").want(t, exitOK, "not set")
	einmal(t, url, "outbox", "mode", "two-phase").want(t, exitNo, "nothing was changed")
	einmal(t, url, "outbox", "mode", "-yes", "two-phase").want(t, exitOK, "it is two-phase now")
	einmal(t, url, "outbox", "mode").want(t, exitOK, "the mode is two-phase")
	einmal(t, url, "outbox", "mode", "two-phase").want(t, exitOK, "the mode is two-phase") // there is nothing to ask
	einmal(t, url, "outbox", "mode", "three-phase").want(t, exitUsage, "name one mode")
}

// Every command says by an example how it is called.
func TestOutboxExamples(t *testing.T) {
	t.Parallel()
	for _, c := range commands {
		if strings.HasPrefix(c.name, "outbox ") && !strings.Contains(c.more, "example: einmal "+c.name+" ") {
			t.Errorf("%s has no example", c.name)
		}
	}
}

// A command that changes rows outlasts the lease of a relay that has died.
func TestChangesOutlastALease(t *testing.T) {
	t.Parallel()
	flags := flag.NewFlagSet("retry", flag.ContinueOnError)
	var rows outboxFlags
	changeFlags(flags, &rows)
	if rows.url.timeout != changeTimeout || flags.Lookup("timeout").DefValue != changeTimeout.String() {
		t.Errorf("it may take %v, the help says %s, want %v", rows.url.timeout, flags.Lookup("timeout").DefValue,
			changeTimeout)
	}
}
