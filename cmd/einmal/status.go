package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/einmal-go/einmal/status"
)

// maxStatus bounds what is read of an answer, in bytes: 10,000 partitions have about 6 MB.
const maxStatus = 32 << 20

var statusShow = command{
	name: "status", args: "URL",
	about: "Show what a running service knows of itself: partitions, outbox, dead letters.",
	more: "The URL is where the service serves package status, http://billing:8080/status for example. A user and a password in it are sent and not\n" +
		"shown; -env-token names a variable whose value is sent as a bearer token.\n\n" +
		"The exit code is 0 if the service is healthy: all sections have answered, consumers are ready, relays run, have read their table and\n" +
		"sent what waits within 10 s, and have no blocked rows, and none of the -max flags is exceeded. It is 1 if not, or if there is no\n" +
		"answer. Dead letters and lag alone are no fault unless -max-dead or -max-lag says so.",
	setup: func(flags *flag.FlagSet) action {
		var limits statusLimits
		limits.add(flags)
		timeout := flags.Duration("timeout", 10*time.Second, "how long it may take")
		tokenEnv := flags.String("env-token", "", "the `variable` of the environment with a bearer token")
		asJSON := flags.Bool("json", false, "print JSON: healthy, problems, and the service's report as it is")
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) != 1 {
				return usagef("name the URL at which the service serves its status")
			}
			at, err := statusURL(args[0])
			if err != nil {
				return err
			}
			token := ""
			if *tokenEnv != "" {
				if token = env.getenv(*tokenEnv); token == "" {
					return usagef("-env-token: the environment has no %s", shown(*tokenEnv))
				}
			}
			ctx, cancel := context.WithTimeout(ctx, *timeout)
			defer cancel()
			text, err := getStatus(ctx, at, token, *timeout)
			if err != nil {
				return err
			}
			report, err := readStatus(text)
			if err != nil {
				return fmt.Errorf("%s: %w", where(at), err)
			}
			problems := append(report.problems(), limits.exceeded(report)...)
			if *asJSON {
				err = printStatusJSON(env.stdout, text, problems)
			} else {
				err = report.print(env.stdout, problems)
			}
			if err == nil && len(problems) > 0 {
				err = errNo
			}
			return err
		}
	},
}

// statusURL reads the argument. Its errors do not repeat it: there may be a password in it.
func statusURL(text string) (*url.URL, error) {
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, usagef("the argument is no URL: want http://host:port/path, where the service serves its status")
	}
	return at, nil
}

// where is what errors show of a URL: nothing in which a secret may be.
func where(at *url.URL) string {
	return (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}).String()
}

// statusClient follows no redirect to another host or port: whoever is there would get the token.
var statusClient = &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return fmt.Errorf("it redirects to %s, which gets no user and no token: if that is right, name it instead", where(req.URL))
	}
	if len(via) >= 10 {
		return errors.New("it redirects without an end")
	}
	return nil
}}

// getStatus asks for the status. Its errors name the URL without its password, and say what to look at.
func getStatus(ctx context.Context, at *url.URL, token string, timeout time.Duration) ([]byte, error) {
	where := where(at)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil) //nolint:gosec // the operator says where to ask
	if err != nil {
		return nil, usagef("the argument is no URL: want http://host:port/path, where the service serves its status")
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := statusClient.Do(req) //nolint:gosec // the operator says where to ask
	if err != nil {
		return nil, unanswered(ctx, where, timeout, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxStatus+1))
	switch {
	case err != nil:
		return nil, unanswered(ctx, where, timeout, err)
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s answers %s: give a user and a password in the URL, or -env-token", where, res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s: is it the path at which the service serves package status?", where, res.Status)
	case len(text) > maxStatus:
		return nil, fmt.Errorf("%s answers with more than %d bytes: it is no status", where, maxStatus)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); !json.Valid(text) {
		return nil, fmt.Errorf("%s answers with %s, which is no JSON: is it the path at which the service serves package status?", where, shown(strings.ReplaceAll(kind, "/", "-")))
	}
	return text, nil
}

func unanswered(ctx context.Context, where string, timeout time.Duration, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s has not answered within %v: does the service run? -timeout waits longer", where, timeout)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which can have a secret
	}
	return fmt.Errorf("%s does not answer: %w: does the service run, and is the port right?", where, err)
}

// statusReport is a status.Report with its known sections read.
type statusReport struct {
	status.Report
	consumers map[string]*consumerFacts
	outboxes  map[string]*outboxFacts
	dead      map[string]*deadTotals
}

type consumerFacts struct {
	Phase      string `json:"phase"`
	NotReady   string `json:"not_ready"`
	Partitions []struct {
		Topic      string     `json:"topic"`
		Partition  int32      `json:"partition"`
		Lag        *int64     `json:"lag"`
		Held       int        `json:"held"`
		Running    int        `json:"running"`
		Parked     int        `json:"parked"`
		Paused     bool       `json:"paused"`
		PausedBy   string     `json:"paused_by"`
		FetchError string     `json:"fetch_error"`
		Next       *int64     `json:"next_offset"`
		Oldest     *openFacts `json:"oldest_open"`
		Failing    *struct {
			Offset    int64  `json:"offset"`
			Attempts  int    `json:"failed_attempts"`
			ErrorType string `json:"error_type"`
		} `json:"failing"`
	} `json:"partitions"`
}

// openFacts are those of a message that is not finished.
type openFacts struct {
	Offset  int64      `json:"offset"`
	Seconds float64    `json:"seconds"`
	Due     *time.Time `json:"due"`
}

// since returns for how many seconds it has been open at that time, without those before it was due. Before, they are negative.
func (o *openFacts) since(now time.Time) float64 {
	if o.Due == nil {
		return o.Seconds
	}
	return min(o.Seconds, now.Sub(*o.Due).Seconds())
}

type outboxFacts struct {
	Name          string     `json:"name"`
	Mode          string     `json:"mode"`
	Running       bool       `json:"running"`
	Paused        bool       `json:"paused"`
	LastError     string     `json:"last_error"`
	Trouble       string     `json:"trouble"`
	Estimated     bool       `json:"estimated"`
	Fresh         bool       `json:"fresh"`
	Seen          *time.Time `json:"seen"`
	Backlog       int64      `json:"backlog"`
	OldestSeconds float64    `json:"oldest_seconds"`
	Blocked       int64      `json:"blocked"`
	InFlight      int64      `json:"in_flight"`
	Published     int64      `json:"published"`
	PerSecond     float64    `json:"published_per_second"`
}

type deadTotals struct {
	Total int64            `json:"total"`
	Kinds map[string]int64 `json:"kinds"`
}

// readStatus reads a report. Sections of kinds that it does not know are left as they are.
func readStatus(text []byte) (*statusReport, error) {
	r := &statusReport{consumers: map[string]*consumerFacts{}, outboxes: map[string]*outboxFacts{}, dead: map[string]*deadTotals{}}
	if err := json.Unmarshal(text, &r.Report); err != nil || r.Format == 0 || r.Sections == nil {
		return nil, errors.New("the answer is JSON, but no status of einmal: is it the path at which the service serves package status?")
	}
	if r.Format != status.Format {
		return nil, fmt.Errorf("the status has format %d, and this binary reads %d: install the version of einmal that the service has", r.Format, status.Format)
	}
	for name, answer := range r.Sections {
		if answer.Value == nil {
			continue
		}
		var kind struct {
			Kind string `json:"kind"`
		}
		_ = json.Unmarshal(answer.Value, &kind) // a section of the service's own may be anything
		var err error
		switch kind.Kind {
		case "consumer":
			r.consumers[name], err = section[consumerFacts](answer)
		case "outbox":
			r.outboxes[name], err = section[outboxFacts](answer)
		case "dead_letters":
			r.dead[name], err = section[deadTotals](answer)
		}
		if err != nil {
			return nil, fmt.Errorf("the section %s cannot be read: %w", plain(name), err)
		}
	}
	return r, nil
}

func section[T any](a status.Answer) (*T, error) {
	var facts T
	err := json.Unmarshal(a.Value, &facts)
	return &facts, err
}

// problems are what the service says itself.
func (r *statusReport) problems() (problems []string) {
	for _, name := range r.names() {
		switch a := r.Sections[name]; {
		case a.Error != "":
			problems = append(problems, fmt.Sprintf("%s: no status: %s", name, a.Error))
		case a.Problem != "":
			problems = append(problems, fmt.Sprintf("%s: %s", name, a.Problem))
		}
	}
	if !r.Healthy && len(problems) == 0 {
		problems = append(problems, "the service says that it is not healthy, and not why")
	}
	return problems
}

func (r *statusReport) names() []string { return slices.Sorted(maps.Keys(r.Sections)) }

// statusLimits are what an operator does not put up with. A negative one is none.
type statusLimits struct {
	lag, dead     int64
	open, backlog time.Duration
}

func (l *statusLimits) add(flags *flag.FlagSet) {
	flags.Int64Var(&l.lag, "max-lag", -1, "unhealthy if a partition has more `messages` to come; -1 for no limit")
	flags.DurationVar(&l.open, "max-open", -1, "unhealthy if a message is open for longer than this `duration`; negative for no limit")
	flags.DurationVar(&l.backlog, "max-backlog", -1, "unhealthy if an event waits in the outbox for longer than this `duration`; negative for no limit")
	flags.Int64Var(&l.dead, "max-dead", -1, "unhealthy if there are more dead `letters`; -1 for no limit")
}

// exceeded says which.
func (l *statusLimits) exceeded(r *statusReport) (problems []string) {
	for _, name := range r.names() {
		if c := r.consumers[name]; c != nil {
			problems = append(problems, l.late(name, c, r.Time)...)
		}
		if o := r.outboxes[name]; o != nil && l.backlog >= 0 && seconds(o.OldestSeconds) > l.backlog {
			problems = append(problems, fmt.Sprintf("%s: an event waits for %s, longer than %v", name, ago(o.OldestSeconds), l.backlog))
		}
		if d := r.dead[name]; d != nil && l.dead >= 0 && d.Total > l.dead {
			problems = append(problems, fmt.Sprintf("%s: there are %d dead letters, more than %d", name, d.Total, l.dead))
		}
	}
	return problems
}

// late says which partitions are.
func (l *statusLimits) late(name string, c *consumerFacts, now time.Time) (problems []string) {
	for _, p := range c.Partitions {
		if l.lag >= 0 && p.Lag != nil && *p.Lag > l.lag {
			problems = append(problems, fmt.Sprintf("%s: %s[%d] has a lag of %d, more than %d", name, p.Topic, p.Partition, *p.Lag, l.lag))
		}
		if l.open >= 0 && p.Oldest != nil && seconds(p.Oldest.since(now)) > l.open {
			problems = append(problems, fmt.Sprintf("%s: %s[%d]@%d is open for %s, longer than %v", name, p.Topic, p.Partition, p.Oldest.Offset, ago(p.Oldest.since(now)), l.open))
		}
	}
	return problems
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ago is a duration in a table.
func ago(s float64) string {
	d := seconds(s)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
