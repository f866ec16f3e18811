package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
	"github.com/einmal-go/einmal/status"
)

// serveConsole runs the command until the test ends, and returns where it serves.
func serveConsole(t *testing.T, vars map[string]string, args ...string) (at string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &environment{in, io.Discard, func(name string) string { return vars[name] }, nil},
			append([]string{"console", "-listen", "127.0.0.1:0"}, args...))
		_ = in.Close()
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("it ended with %d", code)
		}
	})
	buf := make([]byte, 200)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`http://\S+`).FindString(string(buf[:n]))
}

// look asks for a page.
func look(t *testing.T, url string) (page string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A fleet is shown from its processes' URLs, Kafka and the database; what is away is shown as that, and takes nothing
// from the rest.
func TestConsole(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 2), serverstest.Group(t)
	b.Produce(t, event(topic, 1, "a", time.Now()))
	stop := consume(t, consumer.Config{Brokers: b.Addrs, Group: group, Topics: map[string]consumer.Topic{topic: {
		Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }),
	}}})
	defer stop()
	process := func(name string) *httptest.Server {
		h := status.Handler(status.Sections{name: func(context.Context) (any, error) {
			return map[string]string{"kind": name},
				nil
		}}, nil)
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer t0ken" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		}))
	}
	one, two := process("first"), process("second")
	defer one.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	at := serveConsole(t, map[string]string{envBrokers: strings.Join(b.Addrs, ","), "TOKEN": "t0ken"},
		"-env-token", "TOKEN", "-group", group, "-values", "one=http://user:hunter2@"+one.Listener.Addr().String()+"/status",
		"two,http://two/ops="+two.URL, "gone=http://"+gone.Addr().String())
	eventually(t, "the group has its partitions", func() bool {
		page := look(t, at+"/partitions?group="+group)
		return strings.Contains(page, "1 to 2 of 2") && strings.Contains(page, "einmal")
	})
	page := ""
	eventually(t, "the overview shows all", func() bool {
		page = look(t, at)
		return strings.Contains(page, "gone does not answer") && strings.Contains(page, "first") &&
			strings.Contains(page, "second") && strings.Contains(page, `href="http://two/ops"`)
	})
	if strings.Contains(page, "hunter2") {
		t.Error("the page has a password")
	}
	if page := look(t, at+"/message?value=1&partition=1&offset=0&topic="+topic); !strings.Contains(page, "planted-a") ||
		!strings.Contains(page, "&#34;meta&#34;") {
		t.Errorf("the message is not shown:\n%s", page)
	}
	two.Close()
	eventually(t, "two is gone", func() bool {
		page := look(t, at)
		return strings.Contains(page, "two does not answer") && strings.Contains(page, "first")
	})
}

// Only this machine's own names lead to a console that is for this machine: a page of another site could have its name
// lead here.
func TestConsoleOfThisMachine(t *testing.T) {
	t.Parallel()
	at := serveConsole(t, nil)
	for host, want := range map[string]int{"localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example": 421,
		"evil.example:8099": 421, "localhost.evil.example": 421} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host, req.Close = host, true
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, res.StatusCode, want)
		}
	}
}

func TestConsoleUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"billing":                      "NAME=URL",
		"=http://x":                    "NAME=URL",
		"a=billing:8080":               "is none",
		"a=http://x a=http://y":        "twice",
		"a,javascript:x=http://x":      "is no URL",
		"-group g":                     "Config.Kafka is nil",
		"-timeout 0s":                  "-timeout is 0s",
		"-env-token NOBODY a=http://x": "has no NOBODY",
		"-url mysql://x":               "set -db",
		"-allow -audit":                "-audit needs the database",
		"-allow -event-id offset":      "want header:NAME",
		"-trace-url https://traces/":   "Config.TraceURL",
	} {
		withEnv(t, nil, append([]string{"console", "-listen", "127.0.0.1:0"}, strings.Fields(args)...)...).want(t, exitUsage,
			says)
	}
	withEnv(t, nil, "console", "-listen", "nowhere").want(t, exitNo, "-listen")
}

// A fleet's console redrives by way of the outbox where it may act; it needs no handlers, and no consumer's name. What
// cannot be published stays, with the reason.
func TestConsoleRedrives(t *testing.T) {
	t.Parallel()
	database := serverstest.DatabaseURL(t)
	graveyard(t, database, schema.Postgres)
	exec(t, database, "insert into processed_event (event_id, consumer_id) select event_id, consumer_id from dead_message; "+
		"update dead_message set headers = json_build_array(json_build_object('key', 'id', 'text', event_id)), trace_id = '0af7651916cd43dd8448eb211c80319c' where topic <> 'orders2'")
	vars := map[string]string{envURL: database}
	if page := look(t, serveConsole(t, vars)+"/dead"); !strings.Contains(page, "gave_up") || strings.Contains(page, "do/dead.redrive") {
		t.Errorf("a console that may not act shows:\n%s", page)
	}
	at := serveConsole(t, vars, "-allow", "-event-id", "header:id", "-trace-url", "https://traces/{trace_id}")
	if page := look(t, at+"/letter?id=1"); !strings.Contains(page, `href="https://traces/0af7651916cd43dd8448eb211c80319c"`) {
		t.Errorf("no link to the trace:\n%s", page)
	}
	page := look(t, at+"/do/dead.redrive?table=database&all=1")
	if !strings.Contains(page, "3 dead letters of database") || !strings.Contains(page, "written to the outbox") {
		t.Fatalf("what it would do:\n%s", page)
	}
	form := url.Values{"table": {"database"}, "all": {"1"}, "reason": {"the bank is back"}, "per_second": {"100"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/do/dead.redrive", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	job := res.Request.URL.String()
	if !strings.Contains(job, "/job?id=") {
		t.Fatalf("it leads to %s: %s", job, res.Status)
	}
	eventually(t, "the job has ended", func() bool {
		page = look(t, job)
		return strings.Contains(page, "It is done") || strings.Contains(page, "has failed")
	})
	if !strings.Contains(page, "is missing") {
		t.Errorf("the job does not say what could not be published:\n%s", page)
	}
	einmal(t, database, "outbox", "list").want(t, exitOK, "orders0  e0", "orders1  e1", "listed: 2")
	einmal(t, database, "dead", "list").want(t, exitOK, "orders2", "is missing", "listed: 1 of 1")
}
