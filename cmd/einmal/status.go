package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/internal/statusfacts"
	"github.com/einmal-go/einmal/status"
)

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
				return fmt.Errorf("%s: %w", redact.URL(at), err)
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

// getStatus asks for the status. Its errors name the URL without its password, and say what to look at.
func getStatus(ctx context.Context, at *url.URL, token string, timeout time.Duration) ([]byte, error) {
	text, err := status.Fetch(ctx, at, token)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s has not answered within %v: does the service run? -timeout waits longer", redact.URL(at),
			timeout)
	}
	return text, err
}

// statusReport is what a process has told.
type statusReport struct{ *statusfacts.Report }

// readStatus reads a report. Sections of kinds that it does not know are left as they are.
func readStatus(text []byte) (*statusReport, error) {
	r, err := statusfacts.Read(text)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Unreadable)) {
		return nil, fmt.Errorf("the section %s cannot be read: %w", plain(name), r.Unreadable[name])
	}
	return &statusReport{r}, nil
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
	flags.DurationVar(&l.open, "max-open", -1,
		"unhealthy if a message is open for longer than this `duration`; negative for no limit")
	flags.DurationVar(&l.backlog, "max-backlog", -1,
		"unhealthy if an event waits in the outbox for longer than this `duration`; negative for no limit")
	flags.Int64Var(&l.dead, "max-dead", -1, "unhealthy if there are more dead `letters`; -1 for no limit")
}

// exceeded says which.
func (l *statusLimits) exceeded(r *statusReport) (problems []string) {
	for _, name := range r.names() {
		if c := r.Consumers[name]; c != nil {
			problems = append(problems, l.late(name, c, r.Time)...)
		}
		if o := r.Outboxes[name]; o != nil && l.backlog >= 0 && seconds(o.OldestSeconds) > l.backlog {
			problems = append(problems, fmt.Sprintf("%s: an event waits for %s, longer than %v", name, ago(o.OldestSeconds),
				l.backlog))
		}
		if d := r.Dead[name]; d != nil && l.dead >= 0 && d.Total > l.dead {
			problems = append(problems, fmt.Sprintf("%s: there are %d dead letters, more than %d", name, d.Total, l.dead))
		}
	}
	return problems
}

// late says which partitions are.
func (l *statusLimits) late(name string, c *statusfacts.Consumer, now time.Time) (problems []string) {
	for _, p := range c.Partitions {
		if l.lag >= 0 && p.Lag != nil && *p.Lag > l.lag {
			problems = append(problems, fmt.Sprintf("%s: %s[%d] has a lag of %d, more than %d", name, p.Topic, p.Partition,
				*p.Lag, l.lag))
		}
		if l.open >= 0 && p.Oldest != nil && p.UserPause == nil && seconds(p.Oldest.OpenFor(now)) > l.open {
			problems = append(problems, fmt.Sprintf("%s: %s[%d]@%d is open for %s, longer than %v", name, p.Topic, p.Partition,
				p.Oldest.Offset, ago(p.Oldest.OpenFor(now)), l.open))
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
