package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// graveyard is a database with three dead letters.
func graveyard(t *testing.T, url string, dialect schema.Dialect) {
	t.Helper()
	einmal(t, url, "schema", "apply").want(t, exitOK)
	db, err := (&urlFlags{url: url}).open(t.Context(), &environment{getenv: func(string) string { return "" }}, dialect,
		false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	table := sqldeadletter.New(db, dialect, nil)
	for i, kind := range []deadletter.Kind{deadletter.KindGaveUp, deadletter.KindNoEventID, deadletter.KindGaveUp} {
		msg := &consumer.Message{
			Topic: fmt.Sprint("orders", i), Partition: 1, Offset: int64(40 + i), Value: []byte("top secret"),
			Timestamp: time.Unix(1, 0),
			Headers:   []consumer.Header{{Key: "h", Value: []byte("header value")}},
		}
		rec := deadletter.NewRecord(msg, dedupstore.Key{Consumer: "billing", Event: fmt.Sprint("e", i)})
		rec.Kind, rec.ErrorType, rec.Error = kind, "23505", "no\x1b[31m good"
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Write(context.Background(), tx, rec); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDead(t *testing.T) {
	t.Parallel()
	for dialect, url := range map[schema.Dialect]string{schema.Postgres: serverstest.DatabaseURL(t),
		schema.SQLite: "file:" + t.TempDir() + "/db"} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			graveyard(t, url, dialect)
			r := einmal(t, url, "dead", "list")
			r.want(t, exitOK, "orders0[1]@40", "gave_up", "no [31m good", "listed: 3 of 3")
			if strings.Contains(r.out, "secret") || strings.Contains(r.out, "\x1b") {
				t.Errorf("it shows too much: %s", r.out)
			}
			einmal(t, url, "dead", "list", "-limit", "1").want(t, exitOK, "listed: 1 of 3")
			einmal(t, url, "dead", "list", "-topic", "orders1", "-since", "1h", "-consumer", "billing", "-error",
				"23505").want(t, exitOK, "orders1[1]@41", "listed: 1 of 1")
			einmal(t, url, "dead", "list", "-until", "1h").want(t, exitOK, "listed: 0 of 0")

			r = einmal(t, url, "dead", "list", "-json", "-kind", "no_event_id")
			r.want(t, exitOK)
			var facts deadFacts
			if err := json.Unmarshal([]byte(r.out), &facts); err != nil || facts.Offset != 41 || facts.Event != "e1" {
				t.Errorf("%v: %s", err, r.out)
			}
			id := fmt.Sprint(facts.ID)
			r = einmal(t, url, "dead", "show", id)
			r.want(t, exitOK, `"offset": 41`)
			if strings.Contains(r.out, "value") {
				t.Errorf("it shows the message: %s", r.out)
			}
			einmal(t, url, "dead", "show", "-message", id).want(t, exitOK, `"value": {`, `"text": "top secret"`,
				`"text": "header value"`)
			einmal(t, url, "dead", "show", "999").want(t, exitNo, "dead letter 999")

			einmal(t, url, "dead", "discard").want(t, exitUsage, "say which")
			einmal(t, url, "dead", "discard", "-all", id).want(t, exitUsage, "-all is for all")
			einmal(t, url, "dead", "discard", "-dry-run", "-kind", "gave_up").want(t, exitOK, "to discard: 2",
				"1 of orders0 of billing, gave_up", "the oldest died at 2")
			einmal(t, url, "dead", "discard", id).want(t, exitNo, "to discard: 1", "nothing was changed", "-yes")
			answered(t, strings.NewReader("n\n"), url, "dead", "discard", id).want(t, exitNo, "delete 1 dead letters for good?",
				"nothing was changed")
			einmal(t, url, "dead", "list").want(t, exitOK, "listed: 3 of 3")
			answered(t, strings.NewReader("maybe\n"), url, "dead", "discard", id).want(t, exitNo, "nothing was changed")
			answered(t, strings.NewReader("y\n"), url, "dead", "discard", id).want(t, exitOK, "discarded: 1")
			einmal(t, url, "dead", "discard", "-yes", id).want(t, exitNo, id+" is no dead letter, or not any more",
				"to discard: 0")
			einmal(t, url, "dead", "discard", "-all", "-yes", "-since", "2000-01-01", "-until", "2001-01-01").want(t, exitUsage,
				"-all is for all")
			einmal(t, url, "dead", "discard", "-yes", "-until", "1h").want(t, exitOK, "to discard: 0")
			einmal(t, url, "dead", "discard", "-yes", "-since", "2200-01-01").want(t, exitOK, "to discard: 0")
			einmal(t, url, "dead", "list", "-since", "2200-01-01").want(t, exitOK, "listed: 0 of 0")
			einmal(t, url, "dead", "list", "-after", "999").want(t, exitOK, "listed: 0 of 2")
			einmal(t, url, "dead", "list", "-timeout", "1ns").want(t, exitNo, "deadline exceeded")
			einmal(t, url, "dead", "discard", "-all", "-yes", "-timeout", "1ns").want(t, exitNo, "deadline exceeded")
			einmal(t, url, "dead", "discard", "-all", "-yes").want(t, exitOK, "discarded: 2")
			einmal(t, url, "dead", "list").want(t, exitOK, "listed: 0 of 0")
		})
	}
}

func TestDeadUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"dead show -db sqlite":           "name the ids",
		"dead list -db sqlite x7":        "x7 is no id",
		"dead list -db sqlite -since 7":  "want 2026-01-02",
		"dead list -db sqlite -limit 0":  "at least 1",
		"dead list -db sqlite":           "EINMAL_DATABASE_URL",
		"dead list -table processed=x":   "-db",
		"dead discard -db sqlite -all 0": "0 is no id",
	} {
		einmal(t, "", strings.Fields(args)...).want(t, exitUsage, says)
	}
	for _, secret := range []string{"postgres://u:hunter2@h/d", "hunter2 hunter2!", "--hunter2:x@y"} {
		for _, args := range [][]string{
			{"dead", "list", "-timeout", secret}, {"dead", "list", "-since", secret}, {"dead", "list", "-" + secret},
			{"dead", "list", "--" + secret + "=1"}, {"dead", "list", "-json=" + secret},
			{"dead", "list", "-limit", secret}, {"dead", "redrive", "-event-id", secret},
			{"dead", "redrive", "-per-second", secret}, {"dead", "list", secret}, {"dead", "list", "---" + secret},
		} {
			if r := einmal(t, "", args...); r.code != exitUsage || strings.Contains(r.out+r.errors, "hunter2") {
				t.Errorf("%q: exit code %d: %s", args, r.code, r.errors)
			}
		}
	}
	einmal(t, "", "dead", "list", "-limit", "x7").want(t, exitUsage, `invalid value "x7" for flag -limit`)
	einmal(t, "", "dead", "list", "-lmit", "7").want(t, exitUsage, "not defined: -lmit")
	for _, command := range []string{"list", "show", "redrive", "discard"} {
		einmal(t, "", "dead", command, "-h").want(t, exitOK, "example: einmal dead "+command)
	}
	url := "file:" + t.TempDir() + "/db"
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	einmal(t, url, "dead", "list").want(t, exitNo, "dead_message")
}
