package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// The three dead letters of the graveyard have ids, but not in their messages.
func TestDeadRedrive(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	graveyard(t, url, schema.Postgres)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	exec(t, url, "insert into processed_event (event_id, consumer_id) select event_id, consumer_id from dead_message")
	counts := func() string {
		var dead, records, events int
		err := pool.QueryRow(t.Context(),
			"select (select count(*) from dead_message), (select count(*) from processed_event), (select count(*) from outbox_event)").Scan(&dead, &records, &events)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(dead, records, events)
	}
	einmal(t, url, "dead", "redrive").want(t, exitUsage, "say which")
	r := einmal(t, url, "dead", "redrive", "-all", "-dry-run", "-event-id", "header:id")
	r.want(t, exitNo, "would be published: 0, cannot be: 3, held: 0", "orders0[1]@40", `header "id" is missing`,
		"deadletter.Redrive")
	if strings.Contains(r.out, "secret") {
		t.Errorf("it shows too much: %s", r.out)
	}
	exec(t, url, `update dead_message set headers = json_build_array(json_build_object('key', 'id', 'text', event_id))`)
	einmal(t, url, "dead", "redrive", "-all", "-dry-run", "-event-id", "header:id").want(t, exitOK,
		"would be published: 3, cannot be: 0")
	if got := counts(); got != "3 3 0" {
		t.Errorf("after the dry runs: %s", got)
	}
	einmal(t, url, "dead", "redrive", "-topic", "orders0", "-event-id", "header:id").want(t, exitNo, "to publish again: 1",
		"nothing was changed")
	einmal(t, url, "dead", "redrive", "-topic", "orders0", "-since", "2200-01-01", "-yes").want(t, exitOK, "published: 0")
	einmal(t, url, "dead", "redrive", "-yes", "999").want(t, exitNo, "999 is no dead letter", "published: 0")
	einmal(t, url, "dead", "redrive", "-all", "-yes", "-timeout", "1ns").want(t, exitNo, "deadline exceeded")
	if got := counts(); got != "3 3 0" {
		t.Errorf("before the first: %s", got)
	}
	einmal(t, url, "dead", "redrive", "-yes", "-topic", "orders0", "-max-bytes", "50", "-event-id", "header:id").want(t,
		exitNo, "cannot be: 1", "at most 50")
	einmal(t, url, "dead", "redrive", "-yes", "-topic", "orders0", "-event-id", "header:id").want(t, exitOK,
		"published: 1, cannot be: 0")
	if got := counts(); got != "2 2 1" {
		t.Errorf("after the first: %s", got)
	}
	einmal(t, url, "dead", "redrive", "-yes", "-all", "-limit", "1", "-per-second", "-1", "-event-id", "header:id").want(t,
		exitOK, "published: 1")
	einmal(t, url, "dead", "redrive", "-yes", "-all", "-event-id", "header:id").want(t, exitOK, "published: 1")
	einmal(t, url, "dead", "redrive", "-yes", "-all").want(t, exitOK, "published: 0")
	if got := counts(); got != "0 0 3" {
		t.Errorf("in the end: %s", got)
	}
	einmal(t, url, "outbox", "list").want(t, exitOK, "orders0  e0", "orders1  e1", "orders2  e2")
}

// Tables of other names are found.
func TestDeadRedriveRenamed(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	graveyard(t, url, schema.Postgres)
	renamed := []string{"-table", "dead_message=buried", "-table", "processed_event=seen", "-table", "outbox_event=post"}
	einmal(t, url, append([]string{"dead", "redrive", "-all"}, renamed...)...).want(t, exitNo, "buried")
	einmal(t, url, append([]string{"schema", "apply"}, renamed...)...).want(t, exitOK)
	einmal(t, url, append([]string{"dead", "redrive", "-all"}, renamed...)...).want(t, exitOK, "published: 0")
	exec(t, url, "insert into buried overriding system value table dead_message; update buried set headers = json_build_array(json_build_object('key', 'id', 'text', event_id)); drop table dead_message, processed_event, outbox_event")
	einmal(t, url, append([]string{"dead", "redrive", "-all", "-yes", "-event-id", "header:id"}, renamed...)...).want(t,
		exitOK, "published: 3")
}

func TestDeadRedriveUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"dead redrive -db postgres -all -event-id offset":  "want header:NAME",
		"dead redrive -db postgres -all -event-id header:": "want header:NAME",
		"dead redrive -db postgres -all -event-id json:":   "want header:NAME",
		"dead redrive -db postgres -all -per-second 0":     "must not be 0",
		"dead redrive -db postgres -all 7":                 "-all is for all",
		"dead redrive -db postgres -event-id json:a.b x":   "x is no id",
		"dead redrive -db postgres -event-id key -all":     "EINMAL_DATABASE_URL",
		"dead redrive -db postgres -event-id cloudevents":  "say which",
	} {
		einmal(t, "", strings.Fields(args)...).want(t, exitUsage, says)
	}
	einmal(t, "", "dead", "redrive", "-h").want(t, exitOK, "-dry-run", "(default 10)", "0 is no limit", "-event-id")
	url := "file:" + t.TempDir() + "/db"
	einmal(t, url, "schema", "apply").want(t, exitOK)
	einmal(t, url, "dead", "redrive", "-all").want(t, exitUsage, "needs PostgreSQL")
}

// Dead letters of one key are published in the order in which they stood, or it is said that they are not.
func TestDeadRedriveOrder(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	graveyard(t, url, schema.Postgres)
	dry := func(args ...string) string {
		r := einmal(t, url, append([]string{"dead", "redrive", "-dry-run", "-event-id", "header:id"}, args...)...)
		return r.errors
	}
	exec(t, url, `update dead_message set topic = 'orders', headers = json_build_array(json_build_object('key', 'id', 'text', event_id))`)
	if says := dry("-kind", "gave_up"); strings.Contains(says, "overtake") || strings.Contains(says, "go first") {
		t.Errorf("without keys: %s", says)
	}
	exec(t, url, `update dead_message set "key" = 'k'`)
	if says := dry("-all"); strings.Contains(says, "overtake") || strings.Contains(says, "go first") {
		t.Errorf("all of them: %s", says)
	}
	if says := dry("-kind", "gave_up"); !strings.Contains(says,
		"1 overtake dead letters of their keys that are not chosen") {
		t.Errorf("one is left out: %s", says)
	}
	exec(t, url, `update dead_message set kind = 'crash_loop' where topic = 'orders' and kafka_offset = 40`)
	if says := dry("-all"); !strings.Contains(says, "2 overtake dead letters of their keys that are not chosen, or held") {
		t.Errorf("one is held: %s", says)
	}
	exec(t, url, `update dead_message set kind = 'gave_up' where topic = 'orders' and kafka_offset = 40`)
	exec(t, url, `update dead_message set "key" = id::text::bytea`)
	if says := dry("-kind", "gave_up"); strings.Contains(says, "overtake") {
		t.Errorf("other keys: %s", says)
	}
	exec(t, url, `update dead_message set "key" = 'k', kafka_offset = 100 - kafka_offset`)
	einmal(t, url, "dead", "redrive", "-all", "-yes", "-per-second", "-1", "-event-id", "header:id").want(t, exitOK,
		"published: 3")
	list := einmal(t, url, "outbox", "list").out
	if !(strings.Index(list, "e2") < strings.Index(list, "e1") && strings.Index(list, "e1") < strings.Index(list, "e0")) {
		t.Errorf("they died in another order than they stood, and are published as %s", list)
	}
}

// Tables of a schema are found.
func TestDeadInASchema(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	graveyard(t, url, schema.Postgres)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var own string
	if err := pool.QueryRow(t.Context(), "select current_schema()").Scan(&own); err != nil {
		t.Fatal(err)
	}
	empty := own + "_Empty"
	if _, err := pool.Exec(t.Context(), `create schema "`+empty+`"`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		other, err := pgxpool.New(context.Background(), url)
		if err == nil {
			_, _ = other.Exec(context.Background(), `drop schema "`+empty+`" cascade`)
			other.Close()
		}
	})
	einmal(t, url, "schema", "apply", "-schema", empty).want(t, exitOK)
	for in, n := range map[string]int{own: 3, empty: 0} {
		einmal(t, url, "dead", "list", "-schema", in).want(t, exitOK, fmt.Sprintf("listed: %d of %d", n, n))
		einmal(t, url, "dead", "discard", "-dry-run", "-all", "-schema", in).want(t, exitOK, fmt.Sprintf("to discard: %d", n))
		einmal(t, url, "dead", "redrive", "-dry-run", "-all", "-schema", in).want(t, exitOK,
			fmt.Sprintf("to publish again: %d", n), fmt.Sprintf("would be published: %d", n))
	}
}
