package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/nils"
	"github.com/einmal-go/einmal/internal/safelog"
	"github.com/einmal-go/einmal/outbox"
)

// Config is what a console shows, and who may act. New copies it.
type Config struct {
	// Title names the service or the fleet, in the head of each page. Defaults to "einmal".
	Title string

	// Processes are asked for their status. A service that shows itself has one; Title or a Kafka without any is fine too.
	Processes []Process

	// Kafka answers for whole groups, whichever processes run, and shows messages. consumer.NewCluster makes one. Nil for
	// none.
	Kafka Kafka

	// Groups are shown as Kafka knows them, beside those of which a process tells. It needs Kafka.
	Groups []string

	// DeadLetters are tables of dead letters.
	DeadLetters []DeadLetters

	// Consumers are those of this process, whose levers are shown.
	Consumers []Consumer

	// Outboxes are the tables of events to be published.
	Outboxes []Outbox

	// Authorize decides whether the request may do the action: nil allows it, and the text of an error is shown as the
	// reason why not. It is asked for each button that a page might show, and again when the action is done. Nil allows
	// nothing: the console is read-only.
	//
	// It does not decide who may look: put the console behind whatever does that.
	Authorize func(r *http.Request, a Action) error

	// User names who has sent the request, for the log and the audit. Defaults to the name of HTTP basic authentication,
	// which nobody has checked unless a handler around the console does, and to the address of the other side.
	User func(r *http.Request) string

	// Audit keeps what was done. Nil for none: the line of the log remains. An action whose row cannot be written is not
	// done.
	Audit Audit

	// ShowValues decides whether the request may see the values of messages. They can be personal data. Nil is no for all.
	ShowValues func(r *http.Request) bool

	// TraceURL is where traces are looked at, "https://tracing.example/trace/{trace_id}" for example: {trace_id} stands
	// for the id, 32 hexadecimal digits. Empty for no links: the id is shown all the same.
	TraceURL string

	// Timeout is how long a source may take to answer. Defaults to 3 s: a page that is late shows who has not answered.
	Timeout time.Duration

	// Every is the time between two looks of Run, whose graphs show the last hour. Defaults to 10 s.
	Every time.Duration

	// Logger is told of each action, and of what could not be served. Defaults to slog.Default().
	Logger *slog.Logger
}

// Process is told by its status. It has either Status or URL.
type Process struct {
	// Name tells it from the others. Required.
	Name string

	// Status is the status.Handler of a process that shows itself.
	Status http.Handler

	// URL is where another process serves its status.Handler, http://billing-1:8080/status for example. A user and a
	// password in it are sent and not shown.
	URL string
	// Token is sent to URL as a bearer token, if it is not empty.
	Token string

	// Console is the URL of the process's own console, where its levers are. Empty for none.
	Console string
}

// Kafka is what the console asks the brokers. *consumer.Cluster is one.
type Kafka interface {
	// Group describes a group: see consumer.DescribeGroup.
	Group(ctx context.Context, name string) (*consumer.Group, error)
	// Message reads one message outside of any group. The error says why there is none.
	Message(ctx context.Context, topic string, partition int32, offset int64) (*consumer.Message, error)
}

// DeadLetters is a table of dead letters.
type DeadLetters struct {
	// Name tells it from the others. Required.
	Name string

	// Table is one of package deadletter's, or another one that is a deadletter.Browser too: one that is none is not
	// shown. Required.
	Table deadletter.Keeper

	// Redrive redrives by deadletter.Redrive with the handler of cfg.Filter.Consumer, or by forward.Redrive, in a job. It
	// must do as cfg says. Nil for none: a console that stands for itself has no handlers.
	Redrive func(ctx context.Context, cfg deadletter.RedriveConfig) (deadletter.Report, error)

	// Publishes says that Redrive is forward.Redrive: it needs no handler, and takes those of all consumers.
	Publishes bool
}

// Outbox is a table of events to be published.
type Outbox struct {
	Name     string // tells it from the others. Required
	Operator *outbox.Operator
}

// Audit keeps the actions. It must be safe for concurrent use.
type Audit interface {
	// Begin writes a row before the action is done, and returns its id. With an error the action is not done.
	Begin(ctx context.Context, e Entry) (id int64, err error)
	// End completes the row: how much was changed, and the error's text, or "".
	End(ctx context.Context, id, count int64, failed string) error
}

// Entry is an action that is about to be done.
type Entry struct {
	Time   time.Time
	Who    string // Config.User
	Action Verb
	Target string // what it is done to
	Reason string // as given by who does it
}

const (
	defaultTimeout = 3 * time.Second
	defaultEvery   = 10 * time.Second
)

func (c *Config) withDefaults() Config {
	d := *c
	d.Title = cmp.Or(d.Title, "einmal")
	d.Timeout = cmp.Or(d.Timeout, defaultTimeout)
	d.Every = cmp.Or(d.Every, defaultEvery)
	d.Logger = safelog.Logger(d.Logger)
	if d.User == nil {
		d.User = caller
	}
	return d
}

// caller is the default of Config.User.
func caller(r *http.Request) string {
	if name, _, ok := r.BasicAuth(); ok && name != "" {
		return name
	}
	return r.RemoteAddr
}

// validate lists all that is wrong.
func (c *Config) validate() error {
	var errs []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("console: "+format, args...))
		}
	}
	add(len(c.Groups) > 0 && nils.Is(c.Kafka),
		"Config.Groups names groups, and Config.Kafka is nil: nobody can be asked for them")
	add(c.Timeout < 0, "Config.Timeout is %v: make it 3s for example, or 0 for that", c.Timeout)
	add(c.Every < 0 || c.Every > 0 && c.Every < time.Second, "Config.Every is %v: make it a second or more", c.Every)
	add(c.TraceURL != "" && !isTraceURL(c.TraceURL),
		"Config.TraceURL is no address of a trace: want https://host/path with {trace_id} where the id stands")
	seen := map[string]bool{}
	for i, p := range c.Processes {
		errs = append(errs, p.validate(i))
		add(p.Name != "" && seen["process "+p.Name], "Config.Processes has %q twice: names tell them apart", p.Name)
		seen["process "+p.Name] = true
	}
	for i, d := range c.DeadLetters {
		add(d.Name == "" || nils.Is(d.Table), "Config.DeadLetters[%d] needs a Name and a Table", i)
		add(d.Name != "" && seen["dead "+d.Name], "Config.DeadLetters has %q twice: names tell them apart", d.Name)
		seen["dead "+d.Name] = true
	}
	errs = append(errs, c.validateConsumers())
	for i, o := range c.Outboxes {
		add(o.Name == "" || o.Operator == nil, "Config.Outboxes[%d] needs a Name and an Operator", i)
		add(o.Name != "" && seen["outbox "+o.Name], "Config.Outboxes has %q twice: names tell them apart", o.Name)
		seen["outbox "+o.Name] = true
	}
	return errors.Join(errs...)
}

func (c *Config) validateConsumers() error {
	var errs []error
	seen := map[string]bool{}
	for i, one := range c.Consumers {
		switch {
		case one.Name == "" || nils.Is(one.Levers):
			errs = append(errs, fmt.Errorf("console: Config.Consumers[%d] needs a Name and Levers", i))
		case seen[one.Name]:
			errs = append(errs, fmt.Errorf("console: Config.Consumers has %q twice: names tell them apart", one.Name))
		}
		seen[one.Name] = true
	}
	return errors.Join(errs...)
}

func (p *Process) validate(i int) error {
	at, err := url.Parse(p.URL)
	switch {
	case p.Name == "":
		return fmt.Errorf("console: Config.Processes[%d] has no Name: give it one that people know it by", i)
	case nils.Is(p.Status) == (p.URL == ""):
		return fmt.Errorf("console: the process %q needs either Status, its own status.Handler, or URL, where it is served",
			p.Name)
	case p.URL != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https"):
		return fmt.Errorf("console: the URL of the process %q is none: want http://host:port/path, where it serves its status", p.Name)
	}
	if own, err := url.Parse(p.Console); err != nil || p.Console != "" && own.Scheme != "http" && own.Scheme != "https" {
		return fmt.Errorf("console: the Console of the process %q is no URL: want http://host:port/path, where it serves its own", p.Name)
	}
	return nil
}
