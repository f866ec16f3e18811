package main

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

const personal = `
insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind, key, value) values
  ('c', 'e1', 'orders', 0, 7, 'gave_up', 'anna', 'x'), ('c', 'e2', 'orders', 0, 8, 'gave_up', 'anna', 'x'), ('c', 'e3', 'orders', 0, 9, 'gave_up', 'ben', 'x'),
  ('c', 'e4', 'orders', 0, 10, 'gave_up', null, 'x');
insert into idempotency_key (scope, key, fingerprint, status_code, expires_at) values
  ('anna', 'k1', '', 200, '2099-01-01'), ('sha256:55579b557896d0ce1764c47fed644f9b35f58bad620674af23f356d80ed0c503', 'k2', '', 200, '2099-01-01'), ('ben', 'k1', '', 200, '2099-01-01'), ('ben', 'anna', '', 200, '2099-01-01')`

const personalEvents = `
insert into outbox_event (event_id, topic, partition_key, status) values
  ('e1', 'orders', 'anna', 'PUBLISHED'), ('e5', 'orders', 'anna', 'DEAD'), ('e6', 'orders', 'anna', 'PENDING'), ('e7', 'orders', 'anna', 'PUBLISHING'), ('e8', 'orders', 'ben', 'PUBLISHED')`

// What of a subject is in the tables is found and deleted by key, event and principal, and nothing else is.
func TestErase(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "erase", "-event", "e1").want(t, exitOK, "dead_message: is not there")
	einmal(t, url, "schema", "apply").want(t, exitOK)
	exec(t, url, personal)
	exec(t, url, personalEvents)
	left := func(dead, events, answers string) {
		t.Helper()
		einmal(t, url, "dead", "list").want(t, exitOK, "of "+dead)
		einmal(t, url, "outbox", "list").want(t, exitOK, "listed: "+events)
		einmal(t, url, "erase", "-dry-run", "-key", "k1", "-key", "anna", "-key", "k2").want(t, exitNo,
			"idempotency_key: found "+answers)
	}
	found := []string{"dead_message: found 2", "outbox_event: found 2", "idempotency_key: found 3",
		"2 events of the outbox stay"}
	einmal(t, url, "erase", "-key", "anna", "-principal", "anna", "-dry-run").want(t, exitNo, found...)
	einmal(t, url, "erase", "-key", "anna", "-principal", "anna").want(t, exitNo,
		append(found[:3:3], "nothing was changed")...)
	left("4", "5", "4")
	einmal(t, url, "erase", "-key", "anna", "-principal", "anna", "-yes").want(t, exitNo, "dead_message: deleted 2",
		"outbox_event: deleted 2", "idempotency_key: deleted 3", "stay")
	left("2", "3", "1")
	einmal(t, url, "erase", "-key", "anna", "-unsent", "-yes").want(t, exitNo, "outbox_event: deleted 1",
		"1 events of the outbox stay")
	einmal(t, url, "erase", "-event", "e3", "-event", "e8", "-yes").want(t, exitOK, "dead_message: deleted 1",
		"outbox_event: deleted 1")
	left("1", "1", "1")
	einmal(t, url, "erase", "-key", "' or true --", "-yes").want(t, exitOK, "dead_message: found 0")
}

func TestEraseOnSQLite(t *testing.T) {
	t.Parallel()
	url := "file:" + t.TempDir() + "/db"
	einmal(t, url, "schema", "apply", "deadletter", "idempotency").want(t, exitOK)
	db, err := sql.Open("sqlite", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(strings.NewReplacer("'anna', 'x'", "x'616e6e61', x'78'").Replace(personal)); err != nil {
		t.Fatal(err)
	}
	einmal(t, url, "erase", "-key", "anna", "-event", "e4", "-yes").want(t, exitOK, "dead_message: deleted 3",
		"idempotency_key: deleted 1")
	einmal(t, url, "dead", "list").want(t, exitOK, "of 1")
}

func TestEraseUsage(t *testing.T) {
	t.Parallel()
	einmal(t, "", "erase").want(t, exitUsage, "say whose")
	einmal(t, "", "erase", "-key", "").want(t, exitUsage, "empty")
	einmal(t, "", "erase", "-key", "a", "b").want(t, exitUsage, "flags only")
	einmal(t, "", "erase", "-h").want(t, exitOK, "example: einmal erase")
}
