package observetest

import (
	"bufio"
	"bytes"
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"

	"github.com/einmal-go/einmal/internal/redact/redacttest"
)

const maxPages = 80

var (
	linkIn  = regexp.MustCompile(`href="([^"]+)"`)
	shownAt = regexp.MustCompile(`the console is at (http://\S+) `)
	// whyIn are the places of texts of errors. Keys, headers and ids are shown as they are, without what could run or move.
	whyIn = regexp.MustCompile(`(?s)<td class="why">.*?</td>|<section class="verdict stuck.*?</section>`)
)

// consoleOf runs the operators' console on the tables and the topic, reads every page that a link leads to, up to
// maxPages, for what they say of errors, and discards a dead letter for a reason that has a secret in it.
func (p *planted) consoleOf(brokers string) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	cmd := exec.CommandContext(ctx, p.cli, "console", "-listen", "127.0.0.1:0", "-allow", "-audit", "-brokers", brokers,
		"-group", p.group)
	cmd.Env = append(cmd.Environ(), "EINMAL_DATABASE_URL="+p.url)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stdout, err := cmd.StdoutPipe()
	p.must(err)
	var lines strings.Builder
	cmd.Stderr = &lines
	p.must(cmd.Start())
	ended := sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait()
	})
	defer ended()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	p.must(err)
	at := shownAt.FindStringSubmatch(line)
	if at == nil {
		p.Fatalf("the console says %q", line)
	}
	visited := p.crawl(at[1]+"/", "/letter?id=1&table=database", "/message?topic="+p.topic+"&partition=0&offset=0")
	for _, page := range []string{"/letter ", "/event ", "/message "} {
		if !strings.Contains(visited, page) {
			p.Errorf("the crawl has seen no page %s: %s", page, visited)
		}
	}
	p.discardBy(at[1])
	ended()
	p.seen["einmal console's lines"] = lines.String()
	p.seen["the console's table"] = p.column("select concat_ws(' ', done_by, action, target, reason, error) from console_action")
	for _, where := range []string{"einmal console's lines", "the console's table"} {
		if !strings.Contains(p.seen[where], "because") {
			p.Errorf("%s: it does not tell of the action: %q", where, p.seen[where])
		}
	}
}

// crawl follows the links of pages, and returns which it has seen.
func (p *planted) crawl(root string, more ...string) (visited string) {
	p.Helper()
	base, err := url.Parse(root)
	p.must(err)
	todo, seen := []*url.URL{base}, map[string]bool{}
	for _, path := range more {
		at, err := base.Parse(path)
		p.must(err)
		todo = append(todo, at)
	}
	var all strings.Builder
	for ; len(todo) > 0 && len(seen) < maxPages; todo = todo[1:] {
		if seen[todo[0].String()] {
			continue
		}
		seen[todo[0].String()] = true
		answer, err := http.Get(todo[0].String())
		p.must(err)
		body, err := io.ReadAll(answer.Body)
		p.must(err)
		p.must(answer.Body.Close())
		visited += todo[0].Path + " "
		if bytes.Count(body, []byte("<script")) != bytes.Count(body, []byte("<script src=")) {
			p.Errorf("%s runs a stranger's script", todo[0])
		}
		for _, why := range whyIn.FindAll(body, -1) {
			all.Write(append(why, '\n'))
		}
		for _, m := range linkIn.FindAllStringSubmatch(string(body), -1) {
			next, err := todo[0].Parse(html.UnescapeString(m[1]))
			if err == nil && next.Host == base.Host {
				todo = append(todo, next)
			}
		}
	}
	p.seen["the console's texts of errors"] = all.String()
	return visited
}

// discardBy discards a dead letter as the console's own form does.
func (p *planted) discardBy(root string) {
	p.Helper()
	form := url.Values{"table": {"database"}, "id": {"1"}, "reason": {"because " + redacttest.Spellings[3] +
		redacttest.Nasty[:6] + "\u009b\u202e"}}
	req, err := http.NewRequestWithContext(p.Context(), http.MethodPost, root+"/do/dead.discard",
		strings.NewReader(form.Encode()))
	p.must(err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := http.DefaultClient.Do(req)
	p.must(err)
	body, err := io.ReadAll(answer.Body)
	p.must(err)
	p.must(answer.Body.Close())
	if answer.StatusCode != http.StatusOK {
		p.Errorf("the console answers %s: %s", answer.Status, body)
	}
	p.seen["the console's answer"] = string(body)
}
