package console

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// graveyard is a database with dead letters, and a console that shows them.
type graveyard struct {
	*browser
	*Console

	db     *sql.DB
	table  *sqldeadletter.Table
	trail  *trail
	handle func(ctx context.Context, msg *consumer.Message) error // nil is well
}

// eachDatabase runs f on PostgreSQL and on SQLite.
func eachDatabase(t *testing.T, f func(t *testing.T, g *graveyard)) {
	t.Helper()
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			f(t, bury(t, dialect))
		})
	}
}

func bury(t *testing.T, dialect schema.Dialect) *graveyard {
	t.Helper()
	driver, address := "sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)"
	if dialect == schema.Postgres {
		driver, address = "pgx", serverstest.DatabaseURL(t)
	}
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	g := &graveyard{db: db, table: sqldeadletter.New(db, dialect, nil), trail: &trail{}}
	g.run(t, dialect.SQL(nil, schema.Dedup, schema.DeadLetter)+";create table effect (event text not null)")
	store := sqlstore.New(db, dialect, nil)
	for i, c := range []struct {
		consumer, key, value string
		kind                 deadletter.Kind
	}{
		{"billing/orders", "k1", "secret value 1", deadletter.KindGaveUp},
		{"billing/orders", "k1", "v", deadletter.KindGaveUp},
		{"billing/orders", "<b>k2</b>", "v", deadletter.KindGaveUp}, {"billing/orders", "k3", "v", deadletter.KindTooOld},
		{"mail/orders", "k1", "v", deadletter.KindPermanent},
	} {
		msg := &consumer.Message{Topic: "orders", Offset: int64(i), Key: []byte(c.key), Value: []byte(c.value),
			Headers: []consumer.Header{{Key: "event-id", Value: fmt.Appendf(nil, "e%d", i+1)}}, Attempt: 5}
		rec := deadletter.NewRecord(msg, dedupstore.Key{Consumer: c.consumer, Event: fmt.Sprintf("e%d", i+1)})
		rec.Kind, rec.ErrorType, rec.Error = c.kind, "declined", fmt.Sprintf("the card of <i>%d</i> was declined", i+1)
		if ran, err := store.Once(t.Context(), rec.DedupKey(),
			func(ctx context.Context, tx *sql.Tx) error { return g.table.Write(ctx, tx, rec) }); err != nil || !ran {
			t.Fatal(ran, err)
		}
	}
	redrive := func(ctx context.Context, cfg deadletter.RedriveConfig) (deadletter.Report, error) {
		return deadletter.Redrive(ctx, store, g.table, func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
			if g.handle != nil {
				if err := g.handle(ctx, msg); err != nil {
					return err
				}
			}
			_, err := tx.ExecContext(ctx, "insert into effect values ('"+msg.EventID+"')")
			return err
		}, &cfg)
	}
	g.browser, g.Console = serving(t, Config{
		DeadLetters: []DeadLetters{{Name: "shop", Table: g.table, Redrive: redrive}}, Authorize: allowAll, Audit: g.trail,
		ShowValues: func(r *http.Request) bool { return r.URL.Query().Get("value") != "" }, Timeout: 30 * time.Second,
	})
	t.Cleanup(g.jobs.end)
	return g
}

func (g *graveyard) run(t *testing.T, text string) {
	t.Helper()
	if _, err := g.db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// one returns what a query has in its only row.
func (g *graveyard) one(query string) (text string) {
	g.Helper()
	var value sql.NullString
	if err := g.db.QueryRowContext(g.Context(), query).Scan(&value); err != nil {
		g.Fatal(err)
	}
	return value.String
}

// left are the numbers of the dead letters that are there.
func (g *graveyard) left() string {
	g.Helper()
	list, err := g.table.List(g.Context(), deadletter.Filter{}, 0, 100)
	if err != nil {
		g.Fatal(err)
	}
	var ids []string
	for _, id := range list {
		ids = append(ids, fmt.Sprint(id.ID))
	}
	return strings.Join(ids, " ")
}

// send posts the form of an action from the console's own page.
func (b *browser) send(verb string, form url.Values) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "/ops/einmal/do/"+verb, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.do(r)
}

// begin sends an action that is a job, and returns the address of the job.
func (b *browser) begin(action string, form url.Values) string {
	b.Helper()
	form.Set("reason", "the bank is back")
	w := b.send(action, form)
	at := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(at, "../job?id=") {
		b.Fatalf("%s: %d to %q\n%s", action, w.Code, at, w.Body)
	}
	return strings.TrimPrefix(at, "../")
}

// until reloads a page until it has a text.
func (b *browser) until(path, text string) string {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		page := b.get(path, http.StatusOK)
		if strings.Contains(page, text) {
			return page
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s has no %q within a minute:\n%s", path, text, page)
		}
	}
}

// Dead letters are shown by groups, found, and shown with their history; what strangers wrote is text.
func TestDeadPages(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(_ *testing.T, g *graveyard) {
		g.has(g.get("", 200), "shop: messages were given up", "5 dead letters, the newest of the last hour", "to know")
		page := g.get("dead", 200)
		g.has(page, "billing/orders", "mail/orders", "gave_up", "too_old", "declined", `<td class="n">3</td>`)
		page = g.get("letters?"+url.Values{"table": {"shop"}, "text": {"CARD OF <i>3"}}.Encode(), 200)
		g.has(page, "&lt;b&gt;k2&lt;/b&gt;", ">3</a>")
		g.hasNot(page, "<b>k2", "<i>3", ">1</a>", "secret")
		g.has(g.get("letters?key=k1&order=oldest&consumer=billing/orders", 200), ">1</a>", ">2</a>")
		g.hasNot(g.get("letters?id=4", 200), ">1</a>", ">5</a>")
		g.has(g.get("letters?since=bogus", 200), "is no time")
		page = g.get("letter?id=1", 200)
		g.has(page, "gave_up", "after 5 attempts", "orders</bdi>[0]@0", "event-id", "Values are not shown here")
		g.hasNot(page, "secret value")
		g.has(g.get("letter?id=1&value=1", 200), "secret value 1")
		g.has(g.get("letter?id=99", 404), "There is no such dead letter")
		g.has(g.get("letter?id=x", 400), "is no number")
		g.has(g.get("letters?table=other", 404), "no such table")
	})
}

// A dry run says how many, which keys, what is held and what would overtake, and changes nothing. The job redrives in
// their order.
func TestRedriveByTheConsole(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(_ *testing.T, g *graveyard) {
		all := url.Values{"table": {"shop"}, "all": {"1"}, "consumer": {"billing/orders"}}
		page := g.get("do/dead.redrive?"+all.Encode(), 200)
		g.has(page, "4 dead letters of shop", "k1", "1 of the kind too_old are held", "None overtakes", `name="until"`)
		g.has(g.get("do/dead.redrive?table=shop&id=2", 200), "1 dead letter of shop",
			"The order of keys changes: 1 dead letter")
		if g.left() != "1 2 3 4 5" || g.one("select count(*) from effect") != "0" {
			t.Error("a dry run has changed something")
		}
		g.handle = func(_ context.Context, msg *consumer.Message) error {
			if msg.EventID == "e3" {
				return errors.New("still declined")
			}
			return nil
		}
		at := g.begin("dead.redrive", url.Values{"table": {"shop"}, "all": {"1"}, "consumer": {"billing/orders"},
			"per_second": {"1000"}})
		page = g.until(at, "It is done")
		g.has(page, "the bank is back", "still declined", "name their kind")
		if got := g.left(); got != "3 4 5" {
			t.Errorf("%s are left", got)
		}
		if n := g.one("select count(*) from effect"); n != "2" {
			t.Errorf("%s effects", n)
		}
		g.has(g.get("letter?id=3", 200), "1 failed, the last one", "still declined")
		g.handle = nil
		g.until(g.begin("dead.redrive", url.Values{"table": {"shop"}, "id": {"4", "5"}}), "It is done") // of two consumers
		if got := g.left(); got != "3" {
			t.Errorf("%s are left", got)
		}
		g.trail.mu.Lock()
		defer g.trail.mu.Unlock()
		if len(g.trail.begun) != 2 || fmt.Sprint(g.trail.count) != "[2 2]" || g.trail.begun[0].Reason != "the bank is back" {
			t.Errorf("the audit has %+v, %v", g.trail.begun, g.trail.count)
		}
	})
}

// The chosen ones are discarded, or all that a search found when it was asked.
func TestDiscardByTheConsole(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(_ *testing.T, g *graveyard) {
		g.has(g.get("do/dead.discard?table=shop&id=1&id=5", 200), "2 dead letters of shop", "for good")
		g.until(g.begin("dead.discard", url.Values{"table": {"shop"}, "id": {"1", "5"}}), "It is done")
		if got := g.left(); got != "2 3 4" {
			t.Errorf("%s are left", got)
		}
		page := g.until(g.begin("dead.discard", url.Values{"table": {"shop"}, "all": {"1"}, "text": {"declined"},
			"kind": {"gave_up"}}), "It is done")
		g.has(page, "2 of 2")
		if got := g.left(); got != "4" || g.one("select count(*) from effect") != "0" {
			t.Errorf("%s are left", got)
		}
		g.has(g.get("jobs", 200), "Discard dead letters", "done")
	})
}

// What dies after it was asked is not among all that a search finds.
func TestAllIsAsOfTheQuestion(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(_ *testing.T, g *graveyard) {
		page := g.get("do/dead.discard?table=shop&all=1&consumer=billing/orders", 200)
		asked := regexp.MustCompile(`name="until" value="([^"]+)"`).FindStringSubmatch(page)
		if asked == nil {
			t.Fatal(page)
		}
		time.Sleep(2 * time.Millisecond) // SQLite's times have milliseconds, and a search looks one beyond
		g.run(t, "insert into dead_message (consumer_id, event_id, topic, partition, kafka_offset, kind) values ('billing/orders', 'e6', 'orders', 0, 9, 'gave_up')")
		g.until(g.begin("dead.discard", url.Values{"table": {"shop"}, "all": {"1"}, "consumer": {"billing/orders"},
			"until": {html.UnescapeString(asked[1])}}), "It is done")
		if got := g.left(); got != "5 6" {
			t.Errorf("%s are left", got)
		}
	})
}

// What cannot be done is refused, and nothing is changed.
func TestDeadRefusals(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(_ *testing.T, g *graveyard) {
		for _, c := range []struct {
			verb string
			form url.Values
			code int
			says string
		}{
			{"dead.discard", url.Values{"table": {"shop"}}, 400, "Choose some"},
			{"dead.redrive", url.Values{"table": {"shop"}}, 400, "Choose some"},
			{"dead.redrive", url.Values{"table": {"shop"}, "all": {"1"}}, 400, "Name a consumer"},
			{"dead.discard", url.Values{"table": {"other"}, "id": {"1"}}, 404, "no such table"},
			{"dead.discard", url.Values{"table": {"shop"}, "id": {"99"}}, 404, "no such dead letters"},
			{"dead.discard", url.Values{"table": {"shop"}, "id": {"1; drop"}}, 400, "is no number"},
			{"dead.redrive", url.Values{"table": {"shop"}, "id": {"1"}, "per_second": {"0"}}, 400, "is no number of messages"},
			{"dead.discard", url.Values{"table": {"shop"}, "all": {"1"}, "kind": {"bogus"}}, 400, "There is no kind"},
		} {
			c.form.Set("reason", "because")
			if w := g.send(c.verb, c.form); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s %v: %d, want %d and %q\n%s", c.verb, c.form, w.Code, c.code, c.says, w.Body)
			}
		}
		if w := g.send("dead.discard", url.Values{"table": {"shop"}, "id": {"1"}}); w.Code != 422 {
			t.Errorf("without a reason: %d", w.Code)
		}
		readonly, _ := serving(t, Config{DeadLetters: []DeadLetters{{Name: "shop", Table: g.table}},
			Timeout: 30 * time.Second})
		if w := readonly.send("dead.discard",
			url.Values{"table": {"shop"}, "id": {"1"}, "reason": {"because"}}); w.Code != 403 {
			t.Errorf("read-only: %d", w.Code)
		}
		readonly.hasNot(readonly.get("dead", 200), "do/dead")
		readonly.hasNot(readonly.get("letters", 200), "do/dead.redrive", "checkbox")
		nobody, _ := serving(t, Config{DeadLetters: []DeadLetters{{Name: "shop", Table: g.table}}, Authorize: allowAll,
			Timeout: 30 * time.Second})
		if w := nobody.send("dead.redrive",
			url.Values{"table": {"shop"}, "id": {"1"}, "reason": {"because"}}); w.Code != 409 {
			t.Errorf("without handlers: %d", w.Code)
		}
		if got := g.left(); got != "1 2 3 4 5" {
			t.Errorf("%s are left", got)
		}
	})
}

// One job at a time works on a table; it can be stopped, and what was done is done.
func TestStopAJob(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(_ *testing.T, g *graveyard) {
		began := make(chan struct{}, 10)
		g.handle = func(ctx context.Context, msg *consumer.Message) error {
			if msg.EventID == "e1" {
				return nil
			}
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		at := g.begin("dead.redrive", url.Values{"table": {"shop"}, "all": {"1"}, "consumer": {"billing/orders"},
			"per_second": {"1000"}})
		<-began
		page := g.get(at, 200)
		g.has(page, "It is at work", "Stop it", `<progress max="100"`)
		w := g.send("dead.redrive", url.Values{"table": {"shop"}, "id": {"5"}, "reason": {"because"}})
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "Another job") {
			t.Errorf("a second job: %d\n%s", w.Code, w.Body)
		}
		id := strings.TrimPrefix(at, "job?id=")
		g.has(g.get("do/job.stop?id="+id, 200), "What was done stays done")
		if w := g.send("job.stop", url.Values{"id": {id}, "reason": {"enough"}}); w.Code != http.StatusSeeOther {
			t.Errorf("%d\n%s", w.Code, w.Body)
		}
		g.until(at, "It was stopped")
		if got := g.left(); got != "2 3 4 5" || g.one("select count(*) from effect") != "1" {
			t.Errorf("%s are left", got)
		}
		g.has(g.get("do/job.stop?id="+id, 409), "has ended")
		g.has(g.get("job?id=other", 404), "This job is not known here", "nothing is done twice")
		g.handle = nil
		g.until(g.begin("dead.redrive", url.Values{"table": {"shop"}, "all": {"1"}, "consumer": {"billing/orders"},
			"per_second": {"1000"}}), "It is done")
		if got := g.left(); got != "4 5" || g.one("select count(*) from effect") != "3" ||
			g.one("select count(distinct event) from effect") != "3" {
			t.Errorf("%s are left", got)
		}
	})
}

// The end of Console.Run ends its jobs, and begins no others.
func TestJobsEndWithRun(t *testing.T) {
	t.Parallel()
	g := bury(t, schema.SQLite)
	began := make(chan struct{}, 1)
	g.handle = func(ctx context.Context, _ *consumer.Message) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	at := g.begin("dead.redrive", url.Values{"table": {"shop"}, "id": {"1"}})
	<-began
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	g.has(g.get(at, 200), "It was stopped", "the console has ended")
	w := g.send("dead.redrive", url.Values{"table": {"shop"}, "id": {"1"}, "reason": {"because"}})
	if w.Code != http.StatusServiceUnavailable || g.left() != "1 2 3 4 5" {
		t.Errorf("%d", w.Code)
	}
}

// aLittle is a table whose time suffices for one dead letter at a time where a text is looked for.
type aLittle struct {
	*sqldeadletter.Table

	parts int
}

func (a *aLittle) Browse(ctx context.Context, s deadletter.Search, p deadletter.Page) ([]*deadletter.Record, error) {
	if s.Text == "" {
		return a.Table.Browse(ctx, s, p)
	}
	next, err := a.Table.Browse(ctx, deadletter.Search{Filter: deadletter.Filter{Until: s.Until}},
		deadletter.Page{OldestFirst: p.OldestFirst, Beyond: p.Beyond, Limit: 1})
	if err != nil || len(next) == 0 {
		return nil, err
	}
	a.parts++
	s.IDs = []int64{next[0].ID}
	found, err := a.Table.Browse(ctx, s, deadletter.Page{})
	return found, errors.Join(err, &deadletter.PartialError{Looked: 1, Beyond: next[0].ID, Died: next[0].Died})
}

// A search for which the time does not suffice shows what it has found, says what was searched, and goes on; a job goes
// through all of it.
func TestSearchesInParts(t *testing.T) {
	t.Parallel()
	g := bury(t, schema.SQLite)
	table := &aLittle{Table: g.table}
	g.dead[0].Table, g.dead[0].browser = table, table
	const at = "letters?table=shop&text=declined&consumer=mail%2Forders&order=oldest"
	page := g.get(at, http.StatusOK)
	g.has(page, "Not all was searched: only the 1 dead letters", "none among those", "say when they died first")
	rest := regexp.MustCompile(`<a href="\?([^"]*)">Search the rest</a>`).FindStringSubmatch(page)
	if rest == nil || !strings.Contains(rest[1], "beyond=1") || !strings.Contains(rest[1], "text=declined") {
		t.Fatalf("it leads to %q:\n%s", rest, page)
	}
	for range 4 {
		page = g.get("letters?"+html.UnescapeString(rest[1]), http.StatusOK)
		rest = regexp.MustCompile(`<a href="\?([^"]*)">Search the rest</a>`).FindStringSubmatch(page)
	}
	g.has(page, "the card of &lt;i&gt;5&lt;/i&gt; was declined")
	if page = g.get("letters?"+html.UnescapeString(rest[1]), http.StatusOK); strings.Contains(page, "Not all was searched") {
		t.Errorf("there is a rest behind the last one:\n%s", page)
	}
	ch := &chosenLetters{g.dead[0], deadletter.Search{Text: "declined", Filter: deadletter.Filter{Consumer: "mail/orders"}}}
	table.parts = 0
	if err := ch.discard(t.Context(), func(func(*progress)) {}); err != nil || table.parts != 5 {
		t.Errorf("%d parts, %v", table.parts, err)
	}
	if left := g.left(); left != "1 2 3 4" {
		t.Errorf("%s are left", left)
	}
}
