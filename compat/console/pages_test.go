package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/status"
)

// service is a service in these tests: what it tells can be set.
type service struct {
	mu       sync.Mutex
	sections map[string]any
	away     bool
}

func (s *service) set(name string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sections[name] = v
}

func (s *service) goAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// ServeHTTP implements http.Handler.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sections := status.Sections{}
	for name, v := range s.sections {
		sections[name] = func(context.Context) (any, error) { return v, nil }
	}
	status.Handler(sections, nil).ServeHTTP(w, r)
}

// partitions are those of a consumer that works, and one in which a message fails.
func partitions(lag int64, fails bool) consumer.Status {
	s := consumer.Status{Phase: consumer.Running, Group: "billing-service"}
	for i := range int32(4) {
		p := consumer.PartitionStatus{Topic: "orders.confirmed", Partition: i, Assigned: time.Now().Add(-time.Hour), Lag: lag,
			Committed: 4711, Oldest: -1, Next: 4711, Progress: time.Now()}
		if fails && i == 2 {
			p.Oldest, p.OldestSince, p.OldestAttempts = 4711, time.Now().Add(-4*time.Minute), 7
			p.Failing = &consumer.Failing{Offset: 4711, Attempts: 7, Since: p.OldestSince,
				RetryAt: time.Now().Add(30 * time.Second), Err: errors.New("no")}
		}
		s.Partitions = append(s.Partitions, p)
	}
	return s
}

// hostile is what strangers write.
const hostile = "\x1b[2J\u202egpj\u2066<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"

// messages is a Kafka that has one message at each place.
type messages struct{}

func (messages) Group(context.Context, string) (*consumer.Group, error) {
	return &consumer.Group{Name: "billing-service", State: "Stable", Coordinator: "kafka:9092",
		Members: []consumer.GroupMember{{ID: "m-1", ClientID: "einmal", Host: "10.0.0.7"}}}, nil
}

func (messages) Message(_ context.Context, topic string, partition int32, offset int64) (*consumer.Message, error) {
	return &consumer.Message{
		Topic: topic, Partition: partition, Offset: offset, Key: []byte("מפתח " + hostile),
		Value: []byte(`{"order":"A-1","lines":[1,2,3],"note":"` + strings.Repeat("long ", 200) + `"}`),
		Headers: []consumer.Header{{Key: "traceparent",
			Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}, {Key: hostile, Value: []byte{0xff, 0}}},
		Timestamp: time.Now().Add(-time.Hour),
	}, nil
}

// site is a console under a prefix, in a server that can be silent.
type site struct {
	*httptest.Server

	service *service
	at      string
}

func serve(t *testing.T, change func(*console.Config)) *site {
	t.Helper()
	s := &site{service: &service{sections: map[string]any{
		"consumer": partitions(12, true),
		"outbox": relay.Status{Name: "billing-1", Mode: outbox.SinglePhase, Running: true, Fresh: true, Seen: time.Now(),
			Backlog: 3, OldestAge: time.Second, Published: 5120, PublishedPerSecond: 12},
		"dead": deadletter.Summary{Total: 3, Kinds: map[deadletter.Kind]int64{deadletter.KindGaveUp: 3}},
		"janitor": janitor.Status{Tables: []janitor.TableStatus{{Table: "processed_event", Sweeps: 3,
			Last: janitor.Report{Table: "processed_event", Start: time.Now().Add(-time.Minute), Duration: time.Second,
				Deleted: 12}}}},
		"own": map[string]string{"a": "b"},
	}}}
	cfg := console.Config{
		Title: "billing", Kafka: messages{}, ShowValues: func(*http.Request) bool { return true }, Every: time.Second,
		Processes: []console.Process{
			{Name: "billing-1", Status: s.service, Console: "http://billing-1.example/einmal/"},
			{Name: "billing-2", URL: "http://127.0.0.1:1/status"},
		},
	}
	if change != nil {
		change(&cfg)
	}
	page, err := console.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/einmal/", http.StripPrefix("/ops/einmal", page))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.service.mu.Lock()
		away := s.service.away
		s.service.mu.Unlock()
		if away {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- page.Run(ctx) }()
	t.Cleanup(func() {
		s.Server.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.at = s.URL + "/ops/einmal/"
	return s
}

// paths are all pages.
var paths = []string{
	"", "partitions", "partitions?group=billing-service&only=trouble", "group?name=billing-service",
	"process?name=billing-1", "process?name=billing-2",
	"message", "message?topic=orders.confirmed&partition=2&offset=4711&value=1", "nowhere",
}

// Each page passes the automatic check, and fits: in light and dark, on a wide screen and on one of 360 pixels, which
// is not scrolled sideways.
func TestPages(t *testing.T) {
	t.Parallel()
	axe, s := axe(t), serve(t, nil)
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.as(l)
			for _, path := range paths {
				b.visit(s.at + path)
				if path == "" {
					b.await("billing-2 does not answer", "@4711 fails", "processed_event")
				}
				b.check(l.name+" "+path, axe)
				if wide := value[int64](b, "document.documentElement.scrollWidth"); wide > l.width {
					b.Errorf("%s %s is %d pixels wide", l.name, path, wide)
				}
				ground := value[string](b, "getComputedStyle(document.body).backgroundColor")
				if bright := strings.HasPrefix(ground, "rgb(25"); bright == l.dark {
					b.Errorf("%s %s has the ground %s", l.name, path, ground)
				}
			}
		})
	}
}

// What is most urgent is the first thing below the title, and each thing leads to what it is made of.
func TestUrgentFirst(t *testing.T) {
	t.Parallel()
	s, b := serve(t, nil), open(t)
	b.visit(s.at)
	b.await("2 things to look at")
	first := value[string](b, `document.querySelector(".problems li").innerText`)
	if !strings.Contains(first, "billing-2 does not answer") {
		b.Errorf("the first is %q", first)
	}
	if top := value[float64](b, `document.querySelector(".problems li").getBoundingClientRect().bottom`); top > 300 {
		b.Errorf("it ends at %v pixels", top)
	}
	b.click(`//a[contains(., "@4711 fails")]`)
	b.await("Messages that fail now", "orders.confirmed[2]@4711")
	b.click(`//th/a[contains(., "[2]@4711")]`)
	b.await("This message fails", "0af7651916cd43dd8448eb211c80319c", "מפתח")
	b.click(`//a[contains(., "Show the value")]`)
	b.await(`"order": "A-1"`)
}

// Nothing of a message runs, and what is written from right to left turns nothing around it.
func TestHostileText(t *testing.T) {
	t.Parallel()
	s, b := serve(t, func(cfg *console.Config) { cfg.Title = hostile }), open(t)
	s.service.set(hostile, partitions(1, false))
	for _, path := range paths {
		b.visit(s.at + path)
		if n := value[int](b, "document.scripts.length + document.images.length"); n != 1 {
			b.Errorf("%s has %d scripts and images", path, n)
		}
		if how := value[string](b, `getComputedStyle(document.querySelector("bdi")).unicodeBidi`); how != "isolate" {
			b.Errorf("%s does not isolate: %s", path, how)
		}
	}
}

// All can be read without JavaScript, and times are there, in UTC.
func TestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s, b := serve(t, nil), open(t)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for path, text := range map[string]string{
		"": "2 things to look at", "partitions": "orders.confirmed[3]", "group?name=billing-service": "Stable",
		"process?name=billing-1":                       "dead",
		"message?topic=o&partition=0&offset=1&value=1": `"order": "A-1"`,
	} {
		b.visit(s.at + path)
		b.await(text, "UTC")
		if !value[bool](b, `document.getElementById("hold")?.hidden ?? true`) { // the driver may
			b.Errorf("%s shows a button that does nothing", path)
		}
	}
}

// Times are in the reader's zone, with the exact one at hand.
func TestReadersZone(t *testing.T) {
	t.Parallel()
	s, b := serve(t, nil), open(t)
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	b.visit(s.at)
	exact := value[string](b, `document.querySelector(".asof time").dateTime`)
	shown, title := b.text(".asof time"), value[string](b, `document.querySelector(".asof time").title`)
	at, err := time.Parse(time.RFC3339, exact)
	if err != nil {
		b.Fatal(err)
	}
	tokyo := at.UTC().Add(9 * time.Hour)
	if !strings.Contains(shown, tokyo.Format("4:05")) || !strings.Contains(shown, tokyo.Format("Jan 2")) ||
		!strings.Contains(title, exact) || strings.Contains(shown, "UTC") {
		b.Errorf("%s is shown as %q, with %q", exact, shown, title)
	}
}

// A page keeps up by itself, stands still when it is held, and says so when the console does not answer.
func TestPageKeepsUp(t *testing.T) {
	t.Parallel()
	s, b := serve(t, func(cfg *console.Config) { cfg.Processes = cfg.Processes[:1] }), open(t)
	b.visit(s.at)
	b.await("One thing to look at")
	value[bool](b, "window.same = true")
	s.service.set("consumer", partitions(7_654_321, false))
	b.await("All is well", "30 617 284")
	if !value[bool](b, "window.same === true") {
		b.Error("the page was loaded anew")
	}
	b.eventually("it is said", func() bool { return b.text("#said") == "All is well" })

	b.click("#hold")
	s.service.set("consumer", partitions(1, true))
	value[bool](b, `(window.asks = 0, window.tries = 0, window.fetch = ((real) => (...of) => { window.asks++; return real(...of); })(window.fetch), true)`)
	value[bool](b, `(setInterval(() => window.tries++, 5000), true)`) // as often as the page would ask
	b.eventually("it would have asked", func() bool { return value[int](b, "window.tries") > 1 })
	if n := value[int](b, "window.asks"); n != 0 {
		b.Errorf("a page that is held has asked %d times", n)
	}
	if text := b.text("#verdict"); text != "All is well" ||
		!value[bool](b, `document.getElementById("hold").getAttribute("aria-pressed") === "true"`) {
		b.Errorf("a page that is held shows %q", text)
	}
	b.click("#hold")
	b.await("One thing to look at")

	s.service.goAway(true)
	b.eventually("it says that nobody answers", func() bool {
		return value[bool](b, `!document.getElementById("offline").hidden && document.body.classList.contains("stale")`)
	})
	if text := b.text("#offline"); !strings.Contains(text, "does not answer") {
		b.Errorf("it says %q", text)
	}
	s.service.goAway(false)
	b.eventually("it is back", func() bool { return value[bool](b, `document.getElementById("offline").hidden`) })
}

// A reader who is in the middle of something is left there.
func TestRefreshKeepsTheReadersPlace(t *testing.T) {
	t.Parallel()
	s, b := serve(t, nil), open(t)
	b.visit(s.at + "process?name=billing-1")
	b.click("details summary")
	const asOf = `document.querySelector(".asof time").dateTime`
	before := value[string](b, asOf)
	b.eventually("the page is newer", func() bool { return value[string](b, asOf) != before })
	if !value[bool](b, `document.querySelector("details").open && document.activeElement.tagName === "SUMMARY"`) {
		b.Error("what was open is shut, or the focus is gone")
	}
}

// The keyboard reaches everything, and where it is is seen.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s, b := serve(t, nil), open(t)
	b.visit(s.at)
	b.await("2 things to look at")
	b.run(chromedp.KeyEvent(kb.Tab))
	if text := value[string](b, "document.activeElement.textContent"); text != "Skip to the page" {
		b.Errorf("the first is %q", text)
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	b.eventually("the focus is in the page", func() bool { return value[bool](b, `document.activeElement.id === "main"`) })
	want := value[int](b, `[...document.querySelectorAll("main a, main button, main [tabindex='0']")].length`)
	seen := map[string]bool{}
	for range want {
		b.run(chromedp.KeyEvent(kb.Tab))
		at := value[[]string](b, `(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.outerHTML.slice(0, 200) + e.getBoundingClientRect().top, s.outlineStyle + s.outlineWidth]; })()`)
		if seen[at[0]] = true; !strings.HasPrefix(at[1], "solid2") {
			b.Errorf("the focus is not seen at %s: %s", at[0], at[1])
		}
	}
	if len(seen) != want {
		b.Errorf("the keyboard reaches %d of %d", len(seen), want)
	}
}

// Two who look at once see the same, each at a page of their own.
func TestTwoBrowsers(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	one, two := open(t), open(t)
	one.visit(s.at)
	two.visit(s.at + "partitions")
	s.service.set("consumer", partitions(1234, false))
	one.await("4936")
	two.await("1234")
}
