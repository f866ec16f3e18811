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
	out := &trigger{text: "look at http://", f: func(line string) { addr <- regexp.MustCompile(`http://\S+`).FindString(line) }}
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 1, Seed: 1, Drop: 0.1, Serve: "127.0.0.1:0", Out: out})
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
	look.await("/", ">orders</a> <span class=\"ready\">", ">relay</a> <span class=\"ready\">", ">billing 1</a> <span class=\"ready\">", ">provider</a> <span class=\"ready\">",
		">receipts</a> <span class=\"ready\">",
		"Consumer, running", "Outbox, single-phase", "<td>provider charges</td>", s.Name+".orders.confirmed")
	look.await("/metrics", `process="billing 1"`, `process="receipts"`, "einmal_outbox_backlog", "einmal_attempts_total{", `einmal_outcome="success"`)
	look.await("/", "processes killed", "<td>0</td></tr>") // nothing is doubled
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
