package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A story that is shown goes on until it is interrupted, and comes to its end then.
func TestShownStory(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	addr := make(chan string, 1)
	out := &trigger{text: "look at http://",
		f: func(line string) { addr <- regexp.MustCompile(`http://\S+`).FindString(line) }}
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 1, Seed: 1, Drop: 0.1, Serve: "127.0.0.1:0",
		Out: out})
	type end struct {
		story.Figures
		error
	}
	ended := make(chan end, 1)
	go func() {
		f, err := s.Tell(ctx)
		ended <- end{f, err}
	}()
	look := looker{T: t}
	select {
	case look.url = <-addr:
	case e := <-ended:
		t.Fatal(e)
	}
	look.await("/livez")
	look.await("/readyz")
	look.await("/", "name=orders", "name=relay", "name=billing&#43;1", "name=billing&#43;2", "name=provider",
		"name=receipts", "single-phase", s.Name+".orders.confirmed", "<polyline")
	look.await("/process?name=the+story", "&#34;provider charges&#34;", "&#34;processes_killed&#34;")
	look.await("/partitions?topic="+s.Name+".orders.confirmed", "1 to 4 of 4", "name=billing&#43;")
	look.await("/metrics", `process="billing 1"`, `process="receipts"`, "einmal_outbox_backlog", "einmal_attempts_total{",
		`einmal_outcome="success"`)
	look.await("/process?name=the+story", "&#34;doubled&#34;: 0") // nothing is doubled
	interrupt()
	e := <-ended
	if e.error != nil || !e.Exact() || e.Requests < 2 {
		t.Errorf("the story came to %+v, %v", e.Figures, e.error)
	}
}

// looker looks at a page until it is as it should be.
type looker struct {
	*testing.T

	url string
}

func (l looker) await(path string, texts ...string) {
	l.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	missing := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := client.Get(l.url + path)
		if err != nil {
			l.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			l.Fatal(err)
		}
		missing = ""
		if answer.StatusCode != http.StatusOK {
			missing = answer.Status
		}
		for _, text := range texts {
			if !strings.Contains(string(body), text) {
				missing += fmt.Sprintf("%q ", text)
			}
		}
		if missing == "" {
			return
		}
	}
	l.Fatalf("%s: %s", path, missing)
}
