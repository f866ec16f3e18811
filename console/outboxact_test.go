package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

// events returns a console of an outbox with events 1 to 6: 2 and 5 are blocked, 6 was discarded.
func events(t *testing.T) (b *browser, pool *pgxpool.Pool) {
	t.Helper()
	pool = serverstest.Pool(t)
	run := func(text string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	run(schema.Postgres.SQL(nil, schema.Outbox))
	run(`insert into outbox_event (event_id, topic, partition_key, payload, headers)
		select 'e' || i, case when i < 5 then 'orders' else '<b>mail</b>' end, case when i < 5 then convert_to('k', 'UTF8') end, convert_to('secret value', 'UTF8'), '' from generate_series(1, 6) i`)
	run("update outbox_event set status = 'BLOCKED', last_error = 'the topic is <i>gone</i>' where id in (2, 5)")
	run("update outbox_event set status = 'DEAD', last_error = 'ann: no use' where id = 6")
	run("insert into outbox_mode (mode) values ('two-phase'); insert into outbox_lease (bucket, owner, leased_until) values (1, 'relay-1', now() + interval '1 hour'), (2, 'relay-1', now() + interval '2 hours')")
	op := outbox.NewOperator(pgxoutbox.NewDatabase(pool), nil)
	b, c := serving(t, Config{Outboxes: []Outbox{{Name: "shop", Operator: op}}, Authorize: allowAll,
		Timeout: 30 * time.Second})
	t.Cleanup(c.jobs.end)
	return b, pool
}

// states has the states of the events, and why.
func states(t *testing.T, pool *pgxpool.Pool) (text string) {
	t.Helper()
	err := pool.QueryRow(t.Context(),
		"select string_agg(id || ' ' || lower(status) || coalesce(' ' || case when status = 'DEAD' then last_error end, ''), ', ' order by id) from outbox_event").Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOutboxPages(t *testing.T) {
	t.Parallel()
	b, _ := events(t)
	page := b.get("outbox", 200)
	b.has(b.get("", 200), "events are blocked", "2 of them, the first because the topic is &lt;i&gt;gone", "held back")
	b.has(page, "two-phase", "relay-1", "the topic is &lt;i&gt;gone", "&lt;b&gt;mail", `>2</a>`, `>5</a>`, `<dd><strong class="stuck">2</strong></dd>`)
	b.hasNot(page, "<i>gone", "secret")
	b.has(b.get("events?state=DEAD", 200), ">6</a>", "ann: no use", "outbox.retry")
	b.hasNot(b.get("events?state=DEAD", 200), ">2</a>", "outbox.discard")
	b.has(b.get("events?state=LOST", 200), "there is no state")
	page = b.get("event?number=2", 200)
	b.has(page, "BLOCKED", "the topic is", "It has 12 B", "outbox.edit", "outbox.retry", "outbox.discard")
	b.hasNot(page, "secret")
	b.get("event?number=99", 404)
	b.get("event?number=x", 400)
	b.get("outbox?outbox=other", 404)
}

// Blocked events are sent again, edited and discarded with a reason that says who; the dry run changes nothing.
func TestOutboxActions(t *testing.T) {
	t.Parallel()
	b, pool := events(t)
	before := states(t, pool)
	b.has(b.get("do/outbox.retry?state=BLOCKED", 200), "1 event of orders, blocked", "1 event of &lt;b&gt;mail")
	b.has(b.get("do/outbox.discard?number=2&number=5", 200), "1 event of orders, blocked", "with who discarded them")
	page := b.get("do/outbox.edit?number=5", 200)
	b.has(page, `value="&lt;b&gt;mail&lt;/b&gt;"`, "<textarea")
	if got := states(t, pool); got != before {
		t.Errorf("a dry run has changed %s to %s", before, got)
	}
	b.until(b.begin("outbox.retry", url.Values{"state": {"BLOCKED"}, "topic": {"orders"}}), "It is done")
	if got := states(t, pool); got != "1 pending, 2 pending, 3 pending, 4 pending, 5 blocked, 6 dead ann: no use" {
		t.Errorf("after the retry: %s", got)
	}
	w := b.send("outbox.edit", url.Values{"number": {"5"}, "topic": {"mail"}, "headers": {"a: b: c\r\nempty:\r\n"},
		"reason": {"a wrong name"}})
	if w.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", w.Code, w.Body)
	}
	b.has(b.get(strings.TrimPrefix(w.Header().Get("Location"), "../"), 200), "It waits to be sent")
	b.has(b.get("event?number=5", 200), "PENDING", "mail", "b: c", "empty")
	b.until(b.begin("outbox.discard", url.Values{"number": {"3", "5"}}), "It is done")
	if got := states(t, pool); got != "1 pending, 2 pending, 3 dead 192.0.2.1:1234: the bank is back, 4 pending, 5 dead 192.0.2.1:1234: the bank is back, 6 dead ann: no use" {
		t.Errorf("after the discard: %s", got)
	}
}

// What cannot be done to events is refused.
func TestOutboxRefusals(t *testing.T) {
	t.Parallel()
	b, pool := events(t)
	before := states(t, pool)
	for _, c := range []struct {
		verb string
		form url.Values
		code int
		says string
	}{
		{"outbox.retry", url.Values{}, 400, "Choose some events"},
		{"outbox.retry", url.Values{"state": {"PENDING"}}, 400, "cannot be changed so"},
		{"outbox.discard", url.Values{"state": {"DEAD"}}, 400, "cannot be changed so"},
		{"outbox.discard", url.Values{"number": {"99"}}, 409, "no such events"},
		{"outbox.retry", url.Values{"number": {"1 or 1=1"}}, 400, "is no number"},
		{"outbox.edit", url.Values{"number": {"2"}, "topic": {" "}}, 400, "Name a topic"},
		{"outbox.edit", url.Values{"number": {"2"}, "topic": {"t"}, "headers": {"no colon"}}, 400, "is no header"},
		{"outbox.edit", url.Values{"number": {"2"}, "topic": {"no/topic"}}, 303, ""},
		{"outbox.retry", url.Values{"number": {"2"}, "outbox": {"other"}}, 404, "no such outbox"},
	} {
		c.form.Set("reason", "because")
		w := b.send(c.verb, c.form)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %v: %d, want %d and %q\n%s", c.verb, c.form, w.Code, c.code, c.says, w.Body)
		}
		if c.code == http.StatusSeeOther {
			b.has(b.get(strings.TrimPrefix(w.Header().Get("Location"), "../"), 200), "It failed", "topic")
		}
	}
	if got := states(t, pool); got != before {
		t.Errorf("%s became %s", before, got)
	}
}

// Headers that a form would change are not offered for editing.
func TestHeaderText(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		headers []outbox.Header
		ok      bool
	}{
		{nil, true}, {[]outbox.Header{{Key: "a", Value: []byte("b: c")}, {Key: "a", Value: []byte{}}}, true},
		{[]outbox.Header{{Key: "a: b", Value: []byte("c")}}, false},
		{[]outbox.Header{{Key: "a", Value: []byte("two\nlines: x")}}, false},
		{[]outbox.Header{{Key: "a", Value: []byte{0xff}}}, false}, {[]outbox.Header{{Key: "a"}}, false},
		{[]outbox.Header{{Key: "", Value: []byte("b")}}, false}, {[]outbox.Header{{Key: "a", Value: []byte("b\r")}}, false},
	} {
		if text, ok := headerText(c.headers); ok != c.ok {
			t.Errorf("%d: %q, %v", i, text, ok)
		}
	}
}
