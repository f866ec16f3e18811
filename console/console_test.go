package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/outbox/relay"
)

func TestOverview(t *testing.T) {
	t.Parallel()
	one, two := &told{}, &told{}
	b, c := serving(t, Config{Title: "billing", Processes: []Process{{Name: "billing-1", Status: one},
		{Name: "billing-2", Status: two, Console: "http://billing-2/ops/"}}})
	one.set("consumer", consumes(consumer.PartitionStatus{Lag: 1_234_567, Committed: 10}))
	two.set("consumer", consumes(consumer.PartitionStatus{Partition: 1, Lag: 3, Committed: 10}))
	page := b.get("", http.StatusOK)
	b.has(page, "All is well", "2 processes answered, 1 consumer group looked at", "1 234 570",
		`href="./process?name=billing-1"`, `href="http://billing-2/ops/"`)
	b.hasNot(page, "Outboxes", "Dead letters", "Janitors")

	// what is most urgent comes first, and everything links to what it is made of
	two.set("consumer", consumes(consumer.PartitionStatus{
		Partition: 1, Lag: -1, Failing: &consumer.Failing{Offset: 4711, Attempts: 7, Since: time.Now().Add(-3 * time.Minute),
			RetryAt: time.Now().Add(time.Minute), Err: errors.New("no")},
	}))
	one.fails(errors.New("no"))
	expire(c)
	page = b.get("", http.StatusOK)
	b.has(page, "2 things to look at", "billing-1 does not answer", "the status handler answers 500",
		"orders[1] @4711 fails", "failed 7 times", "3 min 0 s",
		`href="./partitions?group=billing-service&amp;topic=orders#p1"`)
	if strings.Index(page, "billing-1 does not answer") > strings.Index(page, "@4711 fails") {
		t.Error("what fails comes before what does not answer")
	}
	b.hasNot(page, "1 234 567", "1 234 570") // it was told before the process fell silent
}

// What a process told before it fell silent is not shown, on any page; since when it has is.
func TestProcessThatFallsSilent(t *testing.T) {
	t.Parallel()
	p := (&told{}).set("consumer", consumes(consumer.PartitionStatus{Lag: 987_654, Committed: 123_123})).
		set("outbox", relay.Status{Running: true, Fresh: true, Seen: time.Now(), Backlog: 55_555})
	b, c := serving(t, Config{Processes: []Process{{Name: "one", Status: p}}})
	b.has(b.get("partitions", http.StatusOK), "987 654", "123 123")
	p.fails(errors.New("away"))
	expire(c)
	for _, path := range []string{"", "partitions", "process?name=one"} {
		page := b.get(path, http.StatusOK)
		b.has(page, "for <time")
		b.hasNot(page, "987 654", "987654", "123 123", "123123", "55 555", "55555")
	}
	b.has(b.get("process?name=one", http.StatusOK), "It last did at")
	p.fails(nil)
	expire(c)
	b.has(b.get("partitions", http.StatusOK), "987 654")
}

func TestSourceThatHangs(t *testing.T) {
	t.Parallel()
	h := hangs{make(chan struct{})}
	fine := (&told{}).set("consumer", consumes(consumer.PartitionStatus{Lag: 42}))
	b, _ := serving(t, Config{Timeout: 50 * time.Millisecond, Processes: []Process{{Name: "stuck", Status: h},
		{Name: "fine", Status: fine}}})
	var all sync.WaitGroup
	for range 8 { // who all wait for the one question that is open
		all.Go(func() { b.has(b.get("", http.StatusOK), "stuck does not answer", "no answer within 50ms", ">42<") })
	}
	all.Wait()
	close(h.release)
}

// Many who look cost what one costs.
func TestSourcesAreAskedOnceASecond(t *testing.T) {
	t.Parallel()
	p := (&told{}).set("consumer", consumes())
	b, _ := serving(t, Config{Processes: []Process{{Name: "one", Status: p}}})
	begin := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { b.get("", http.StatusOK) })
	}
	all.Wait()
	if limit := 2 + int(time.Since(begin)/fresh); p.asked > limit {
		t.Errorf("asked %d times in %v", p.asked, time.Since(begin))
	}
}

func TestForeignStatus(t *testing.T) {
	t.Parallel()
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	b, _ := serving(t, Config{Processes: []Process{
		{Name: "new", Status: answer(`{"format":2,"sections":{}}`)},
		{Name: "other", Status: answer(`{"up":true}`)},
		{Name: "odd", Status: answer(`{"format":1,"healthy":true,"sections":{"c":{"value":{"kind":"consumer","partitions":"many"}},"own":{"value":[1,"<b>"]}}}`)},
	}})
	page := b.get("", http.StatusOK)
	b.has(page, "the status has format 2", "no status of einmal", "odd, c: no status", "its value cannot be read")
	b.has(b.get("process?name=odd", http.StatusOK), "&#34;&lt;b&gt;&#34;", "own")
}

func TestPartitionsOfKafka(t *testing.T) {
	t.Parallel()
	g := &consumer.Group{
		Name: "billing-service", State: "Stable",
		Members: []consumer.GroupMember{{ID: "m-1", ClientID: "einmal", Host: "10.0.0.7"}},
		Partitions: []consumer.GroupPartition{
			{Topic: "orders", Partition: 0, Member: "m-1", Committed: 5, Start: 0, End: 105},
			{Topic: "orders", Partition: 1, Committed: 5, Start: 0, End: 25},
			{Topic: "orders", Partition: 2, Member: "m-1", Committed: 5, Start: 10, End: 25},
			{Topic: "orders", Partition: 3, Member: "m-1", Committed: 5, Start: -1, End: -1, Err: errors.New("no leader")},
		},
	}
	k := kafka{group: func(context.Context, string) (*consumer.Group, error) { return g, nil }}
	b, _ := serving(t, Config{Kafka: k, Groups: []string{"billing-service"}})
	page := b.get("", http.StatusOK)
	b.has(page, "3 things to look at", "orders[1] has no owner", "orders[2] has an offset that is not in the log",
		"orders[3] cannot be looked at", "no leader", "3 of 4")
	page = b.get("partitions?only=trouble", http.StatusOK)
	b.has(page, "1 to 3 of 3")
	b.has(b.get("partitions", http.StatusOK), "einmal at 10.0.0.7", ">105<", "1 to 4 of 4")
	b.has(b.get("group?name=billing-service", http.StatusOK), "Stable", "m-1")
}

// Of two processes that say that they have a partition the one that got it later has it: the other has not noticed yet,
// a frozen one for example.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	before := (&told{}).set("consumer",
		consumes(consumer.PartitionStatus{Lag: 111_111, Assigned: time.Now().Add(-time.Hour)}))
	after := (&told{}).set("consumer", consumes(consumer.PartitionStatus{Lag: 222_222, Assigned: time.Now()}))
	for _, order := range [][]Process{{{Name: "one", Status: before}, {Name: "two", Status: after}},
		{{Name: "two", Status: after}, {Name: "one", Status: before}}} {
		b, _ := serving(t, Config{Processes: order})
		page := b.get("partitions", http.StatusOK)
		b.has(page, "222 222", "name=two", "1 to 1 of 1")
		b.hasNot(page, "111 111", "name=one")
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	var list []consumer.PartitionStatus
	for i := range int32(250) {
		list = append(list, consumer.PartitionStatus{Partition: i, Lag: 1, Failing: &consumer.Failing{Offset: 1, Attempts: 1,
			Since: time.Now(), Err: errors.New("no")}})
	}
	b, _ := serving(t, Config{Processes: []Process{{Name: "one", Status: (&told{}).set("consumer", consumes(list...))}}})
	b.has(b.get("partitions", http.StatusOK), "1 to 100 of 250", `rel="next"`, "150 more are not listed")
	b.has(b.get("partitions?page=3&group=billing-service", http.StatusOK), "201 to 250 of 250", `rel="prev"`,
		"group=billing-service&amp;page=2")
	for _, page := range []string{"0", "-1", "99", "x", "9999999999999999999999"} {
		b.get("partitions?page="+page, http.StatusOK)
	}
	b.has(b.get("", http.StatusOK), "11 things to look at", "240 more in billing-service")
}

func TestMethods(t *testing.T) {
	t.Parallel()
	b, _ := serving(t, Config{})
	for _, path := range []string{"", "partitions", "message"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			r := httptest.NewRequest(method, "/ops/einmal/"+path, http.NoBody)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			if w := b.do(r); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
		if w := b.do(httptest.NewRequest(http.MethodHead, "/ops/einmal/"+path, http.NoBody)); w.Code != http.StatusOK {
			t.Errorf("HEAD %s: %d", path, w.Code)
		}
	}
	b.has(b.get("nowhere", http.StatusNotFound), "There is no such page", `href="./assets/console.css`)
	b.has(b.get("a/b/c", http.StatusNotFound), `href="../../assets/console.css`)
	b.get("do/nothing", http.StatusNotFound)
	b.get("done/nothing", http.StatusNotFound)
	b.get("assets/nothing", http.StatusNotFound)
	for _, name := range []string{"console.css", "console.js", "icon.svg"} {
		b.get("assets/"+name, http.StatusOK)
	}
}

// No page has a script or a style in its text, nor anything from elsewhere: the policy would refuse it.
func TestPagesKeepThePolicy(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script(?:>|\s[^>]*>[^<])|(?:src|href)="(?:https?:)?//`)
	p := (&told{}).set("consumer", consumes(consumer.PartitionStatus{Lag: 1}))
	b, _ := serving(t, Config{Processes: []Process{{Name: "one", Status: p}}})
	for _, path := range []string{"", "partitions", "group?name=billing-service", "process?name=one", "message"} {
		if found := inline.FindString(b.get(path, http.StatusOK)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
}

func TestMountedWithoutASlash(t *testing.T) {
	t.Parallel()
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	http.StripPrefix("/ops/einmal", c).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ops/einmal", http.NoBody))
	if w.Code != http.StatusPermanentRedirect || w.Header().Get("Location") != "einmal/" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Groups: []string{"g"}, Timeout: -1, Every: time.Millisecond,
		Processes: []Process{{}, {Name: "a"}, {Name: "a", URL: "billing:8080"},
			{Name: "b", URL: "http://x/s", Console: "javascript:alert(1)"}},
		DeadLetters: []DeadLetters{{}}, Outboxes: []Outbox{{}},
	})
	if err == nil {
		t.Fatal("New takes it")
	}
	for _, text := range []string{"Config.Groups", "Config.Timeout", "Config.Every", "Processes[0]", `"a" needs either`,
		`"a" is none`, `"a" twice`, `Console of the process "b"`, "DeadLetters[0]", "Outboxes[0]"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("New says nothing of %s: %v", text, err)
		}
	}
}

// A pause by a user is told of with who, why and until when; what waits for its end is not told of twice.
func TestPauseByAUser(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	paused := consumes(consumer.PartitionStatus{UserPause: &consumer.Pause{Topic: "orders", By: "anna",
		Why: "the provider <asked>", Since: time.Now().Add(-5 * time.Minute), Until: until}})
	paused.Partitions[0].Oldest, paused.Partitions[0].OldestSince = 7, time.Now().Add(-time.Hour)
	b, _ := serving(t, Config{Processes: []Process{{Name: "one", Status: (&told{}).set("consumer", paused)}}})
	page := b.get("", http.StatusOK)
	b.has(page, "One thing to look at", "orders[0] is paused by a user", "by anna: the provider &lt;asked&gt;; until "+
		until.UTC().Format(shownForm), "5 min 0 s")
	b.has(b.get("partitions", http.StatusOK), "to know", "by anna")
}
