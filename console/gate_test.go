package console

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

// pull is an action of these tests: it counts what it is given.
var pull = deed{
	verb: "pull", title: "Pull a lever", button: "Pull",
	prepare: func(_ context.Context, _ *Console, args url.Values) (*plan, error) {
		if args.Get("lever") == "" {
			return nil, &refusal{http.StatusBadRequest, "Which lever?", "Nothing was done."}
		}
		return &plan{Target: args.Get("lever"), Says: []string{"It <pulls> 3 levers."},
			Fields: []field{{Name: "until", Label: "Until", Value: args.Get("until")}}, Back: "partitions"}, nil
	},
	do: func(_ context.Context, _ *Console, args url.Values, _ *Entry) (outcome, error) {
		pulled.add(args.Get("lever"))
		switch args.Get("lever") {
		case "broken":
			return outcome{Count: 1}, errors.New("it broke: password=hunter2")
		case "elsewhere":
			return outcome{Count: 1, Next: "partitions"}, nil
		}
		return outcome{Count: 3, Says: "Three levers <moved>."}, nil
	},
}

var pulled = &counts{n: map[string]int{}}

type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name]++
}

func (c *counts) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func init() { deeds = append(deeds, pull) } //nolint:gochecknoinits // before any test runs

// trail is an audit table.
type trail struct {
	mu     sync.Mutex
	refuse error
	begun  []Entry
	ended  []string
	count  []int64
}

func (a *trail) Begin(_ context.Context, e Entry) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		return 0, a.refuse
	}
	a.begun = append(a.begun, e)
	return int64(len(a.begun)), nil
}

func (a *trail) End(_ context.Context, _, count int64, failed string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended, a.count = append(a.ended, failed), append(a.count, count)
	return nil
}

func allowAll(*http.Request, Action) error { return nil }

// What is not allowed is not done, and says why.
func TestRefusals(t *testing.T) {
	t.Parallel()
	args := func(lever string) url.Values { return url.Values{"lever": {lever}, "reason": {"because"}} }
	refusing := func(_ *http.Request, a Action) error {
		if a.Target == "refused-locked" {
			return errors.New("locked for " + string(a.Verb))
		}
		return nil
	}
	for name, c := range map[string]struct {
		cfg    Config
		form   url.Values
		change func(*http.Request)
		code   int
		says   string
	}{
		"readonly": {Config{}, args("refused-a"), nil, 403, "read-only"},
		"locked":   {Config{Authorize: refusing}, args("refused-locked"), nil, 403, "locked for pull"},
		"noreason": {Config{Authorize: allowAll}, url.Values{"lever": {"refused-b"}, "reason": {"  "}}, nil, 422,
			"Say why"},
		"long": {Config{Authorize: allowAll}, url.Values{"lever": {"refused-c"}, "reason": {strings.Repeat("x", 501)}},
			nil, 422, "Say why"},
		"other site": {Config{Authorize: allowAll}, args("refused-d"),
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "another site"},
		"same site": {Config{Authorize: allowAll}, args("refused-e"),
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403, "another site"},
		"old browser": {Config{Authorize: allowAll}, args("refused-f"), func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "https://elsewhere.example")
		}, 403, "another site"},
		"no lever": {Config{Authorize: allowAll}, url.Values{"reason": {"because"}}, nil, 400, "Which lever?"},
		"no audit": {Config{Authorize: allowAll, Audit: &trail{refuse: errors.New("read-only database")}}, args("refused-g"),
			nil, 503, "audit table cannot be written"},
		"too large": {Config{Authorize: allowAll},
			url.Values{"lever": {"refused-h"}, "reason": {strings.Repeat("x", maxForm)}}, nil, 400, "could not be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			c.cfg.Logger = log.logger()
			b, _ := serving(t, c.cfg)
			w := b.post(c.form, c.change)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%d, want %d with %q:\n%s", w.Code, c.code, c.says, w.Body)
			}
			if n := pulled.of(c.form.Get("lever")); n != 0 {
				t.Errorf("it was done %d times", n)
			}
		})
	}
}

// GET asks and does nothing; POST does it once, writes a line and a row, and leads to a page that may be reloaded.
func TestAction(t *testing.T) {
	t.Parallel()
	var log lines
	audit := &trail{}
	b, _ := serving(t, Config{Authorize: allowAll, Audit: audit, Logger: log.logger(),
		User: func(*http.Request) string { return "anna\u202e" }})
	before := pulled.of("main<") // this test may run several times
	page := b.get("do/pull?lever=main<&until=noon&reason=x", http.StatusOK)
	b.has(page, "It &lt;pulls&gt; 3 levers.", `name="lever" value="main&lt;"`, `name="until" value="noon"`,
		`action="../do/pull"`, "audit table", `href="../partitions"`)
	b.hasNot(page, `name="reason" value="x"`)
	if pulled.of("main<") != before {
		t.Fatal("GET has done it")
	}
	w := b.post(url.Values{"lever": {"main<"}, "reason": {" it leaks "}}, nil)
	at := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(at, "../done/") || pulled.of("main<") != before+1 {
		t.Fatalf("%d to %q, done %d times", w.Code, at, pulled.of("main<"))
	}
	for range 2 {
		b.has(b.get(strings.TrimPrefix(at, "../"), http.StatusOK), "It is done", "Three levers &lt;moved&gt;.", "it leaks",
			"main&lt;")
	}
	if pulled.of("main<") != before+1 {
		t.Error("a reload has done it again")
	}
	if len(audit.begun) != 1 || audit.begun[0].Who != "anna " || audit.begun[0].Reason != "it leaks" ||
		audit.begun[0].Target != "main<" || audit.begun[0].Action != "pull" || audit.count[0] != 3 || audit.ended[0] != "" {
		t.Errorf("the rows are %+v", audit)
	}
	line := log.list(t)[0]
	if line["msg"] != "einmal: an action in the console was done" || line["user"] != "anna " || line["action"] != "pull" ||
		line["target"] != "main<" || line["reason"] != "it leaks" || line["count"] != 3.0 {
		t.Errorf("the line is %v", line)
	}
}

// One that fails says so, in all three places, without a secret.
func TestActionThatFails(t *testing.T) {
	t.Parallel()
	var log lines
	audit := &trail{}
	b, _ := serving(t, Config{Authorize: allowAll, Audit: audit, Logger: log.logger()})
	w := b.post(url.Values{"lever": {"broken"}, "reason": {"r"}}, nil)
	page := b.get(strings.TrimPrefix(w.Header().Get("Location"), "../"), http.StatusOK)
	b.has(page, "It failed", "it broke")
	b.hasNot(page, "hunter2")
	if audit.ended[0] == "" || audit.count[0] != 1 || strings.Contains(audit.ended[0], "hunter2") {
		t.Errorf("the row is %+v", audit)
	}
	if line := log.list(t)[0]; line["msg"] != "einmal: an action in the console has failed" || line["level"] != "WARN" {
		t.Errorf("the line is %v", line)
	}
	if w := b.post(url.Values{"lever": {"elsewhere"}, "reason": {"r"}},
		nil); w.Header().Get("Location") != "../partitions" {
		t.Errorf("it leads to %q", w.Header().Get("Location"))
	}
}

// Results are bounded.
func TestResultsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newResults()
	first := s.keep(result{})
	for range maxResults {
		s.keep(result{})
	}
	if _, ok := s.get(first); ok || len(s.by) != maxResults || len(s.order) != maxResults {
		t.Errorf("%d are kept, the first too: %v", len(s.by), ok)
	}
}

// Each page and each template is used, and each deed is whole.
func TestEachDeedIsWhole(t *testing.T) {
	t.Parallel()
	seen := map[Verb]bool{}
	for _, d := range deeds {
		if d.verb == "" || d.title == "" || d.button == "" || d.prepare == nil || d.do == nil || seen[d.verb] {
			t.Errorf("the deed %q is not whole, or there are two", d.verb)
		}
		seen[d.verb] = true
	}
	for _, p := range pages {
		if templates[p.template] == nil || p.show == nil || strings.Count(strings.Trim(p.pattern, "/{$}"), "/") > 1 {
			t.Errorf("the page %q is not whole", p.pattern)
		}
	}
	if _, err := os.Stat("templates/layout.html"); err != nil {
		t.Error(err)
	}
}

func TestUserByDefault(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	if got := caller(r); got != r.RemoteAddr {
		t.Errorf("it is %q", got)
	}
	r.SetBasicAuth("anna", "secret")
	if got := caller(r); got != "anna" {
		t.Errorf("it is %q", got)
	}
}

// Who gives a reason may paste a secret into it: neither the row nor the page nor the line repeats it.
func TestReasonsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	var log lines
	audit := &trail{}
	b, _ := serving(t, Config{Authorize: allowAll, Audit: audit, Logger: log.logger()})
	w := b.post(url.Values{"lever": {"secretive"}, "reason": {"it leaks password=hunter2-9f8e7d"}}, nil)
	page := b.get(strings.TrimPrefix(w.Header().Get("Location"), "../"), http.StatusOK)
	b.has(page, "it leaks")
	b.hasNot(page, "hunter2")
	if len(audit.begun) != 1 || strings.Contains(audit.begun[0].Reason, "hunter2") ||
		!strings.HasPrefix(audit.begun[0].Reason, "it leaks") {
		t.Errorf("the rows are %+v", audit.begun)
	}
	if line := log.list(t)[0]; strings.Contains(line["reason"].(string), "hunter2") {
		t.Errorf("the line is %v", line)
	}
}
