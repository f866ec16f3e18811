package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/console/sqlaudit"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

var consoleServe = command{
	name: "console", args: "[NAME=URL...]",
	about: "Serve pages that show a fleet: its processes, groups, dead letters and outbox.",
	more: "Each argument names a process, and where it serves package status: billing-1=http://billing-1:8080/status. NAME,CONSOLE=URL adds the URL of the\n" +
		"process's own console, where its levers are. With -brokers, or " + envBrokers +
		", whole groups are asked for too; with -url, or " + envURL + ",\n" +
		"dead letters and the outbox of that database.\n\n" +
		"It is read-only unless -allow is given: then everybody who reaches the port may act. Without -listen only this machine does. Put a proxy that\n" +
		"asks who somebody is before it, and let it send the name as HTTP basic authentication, if others are to see it.\n\n" +
		"With -allow, dead letters of PostgreSQL are redriven as by dead redrive: they are published again by way of the outbox, and must carry their ids where\n" +
		"-event-id says. What needs a consumer, its pauses and replays, its process's own console does.\n\n" +
		"It runs until it is interrupted, and needs none of its sources at the start.\n\n" +
		"example: einmal console -brokers kafka:9092 billing-1=http://billing-1:8080/status billing-2=http://billing-2:8080/status",
	setup: func(flags *flag.FlagSet) action {
		var f consoleFlags
		f.add(flags)
		return f.serve
	},
}

// consoleFlags say what is shown, and where.
type consoleFlags struct {
	tables        tableFlags
	url           string
	kafka         kafkaFlags
	groups        names
	listen, title string
	tokenEnv      string
	values, allow bool
	audit         bool
	eventID       eventID
	traceURL      string
	timeout       time.Duration
}

func (f *consoleFlags) add(flags *flag.FlagSet) {
	f.tables.add(flags)
	f.kafka.add(flags)
	flags.StringVar(&f.url, "url", "", "the database's `URL`. By default what "+envURL+
		" says; without either, no database")
	flags.Var(&f.groups, "group", "a consumer `group` that is shown whether or not a process tells of it. Can be repeated")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8099",
		"the `host:port` to serve at; -listen :8099 for all who reach this machine")
	flags.StringVar(&f.title, "title", "einmal", "the `name` of the fleet")
	flags.StringVar(&f.tokenEnv, "env-token", "",
		"the `variable` of the environment with a bearer token for the processes")
	flags.BoolVar(&f.values, "values", false, "show values of messages to who asks for one")
	flags.BoolVar(&f.allow, "allow", false, "let everybody who reaches the port act, not only look")
	flags.BoolVar(&f.audit, "audit", false,
		"with -allow, write a row of each action into the table console_action of the database; without the row nothing is done")
	flags.Var(&f.eventID, "event-id",
		"with -allow, where the consumers find an event's id, for redrives: "+eventIDForms)
	flags.StringVar(&f.traceURL, "trace-url", "", "where traces are looked at: a `URL` with {trace_id} in it")
	flags.DurationVar(&f.timeout, "timeout", 3*time.Second, "how long a source may take to answer")
}

// names collects the values of a flag that can be repeated.
type names []string

func (n *names) String() string { return "" }

func (n *names) Set(text string) error {
	if text == "" {
		return errors.New("want a name")
	}
	*n = append(*n, text)
	return nil
}

// serve serves the console until ctx ends.
func (f *consoleFlags) serve(ctx context.Context, env *environment, args []string) error {
	cfg, end, err := f.config(env, args)
	if err != nil {
		return err
	}
	defer end()
	page, err := console.New(*cfg)
	if err != nil {
		return usagef("%s", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "console: "), "\n", "; "))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w: name another host:port", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- page.Run(ctx) }()
	server := &http.Server{Handler: ownHost(l.Addr(), page), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintf(env.stdout, "the console is at http://%s until it is interrupted\n", l.Addr())
	err = server.Serve(l)
	stop()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, <-watched)
}

// ownHost refuses names of this machine that are not its own, where only this machine is served: a page of another site
// could have its name lead here, and read what the browser gets.
func ownHost(at net.Addr, next http.Handler) http.Handler {
	if tcp, ok := at.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this console is served as localhost only", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// config is the console's. Nothing is asked yet. end closes what was opened.
func (f *consoleFlags) config(env *environment, args []string) (cfg *console.Config, end func(), err error) {
	cfg = &console.Config{
		Title: f.title, Groups: f.groups, Timeout: f.timeout, TraceURL: f.traceURL,
		Logger:     slog.New(slog.NewTextHandler(env.stderr, nil)),
		ShowValues: func(*http.Request) bool { return f.values },
	}
	if f.timeout <= 0 {
		return nil, nil, usagef("-timeout is %v: make it longer", f.timeout)
	}
	if f.allow {
		cfg.Authorize = func(*http.Request, console.Action) error { return nil }
	}
	if cfg.Processes, err = f.processes(env, args); err != nil {
		return nil, nil, err
	}
	var open []io.Closer
	end = func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
	cluster, err := f.cluster(env)
	if err != nil {
		return nil, nil, err
	}
	if cluster != nil {
		cfg.Kafka, open = cluster, append(open, cluster)
	}
	db, err := f.database(env, cfg)
	if err != nil {
		end()
		return nil, nil, err
	}
	if db != nil {
		open = append(open, db)
	}
	if f.audit && cfg.Audit == nil {
		end()
		return nil, nil, usagef("-audit needs the database: set -url or %s", envURL)
	}
	return cfg, end, nil
}

// processes reads NAME=URL and NAME,CONSOLE=URL.
func (f *consoleFlags) processes(env *environment, args []string) (list []console.Process, err error) {
	token := ""
	if f.tokenEnv != "" {
		if token = env.getenv(f.tokenEnv); token == "" {
			return nil, usagef("-env-token: the environment has no %s", shown(f.tokenEnv))
		}
	}
	for _, arg := range args {
		who, at, ok := strings.Cut(arg, "=")
		name, own, _ := strings.Cut(who, ",")
		if !ok || name == "" {
			return nil, usagef("name each process as NAME=URL, billing-1=http://billing-1:8080/status for example")
		}
		if _, err := url.Parse(at); err != nil {
			return nil, usagef("the URL of the process %s is none: want http://host:port/path", shown(name))
		}
		list = append(list, console.Process{Name: name, URL: at, Token: token, Console: own})
	}
	return list, nil
}

// cluster is nil where no brokers are named.
func (f *consoleFlags) cluster(env *environment) (*consumer.Cluster, error) {
	if f.kafka.brokers == "" && env.getenv(envBrokers) == "" {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	brokers, err := f.kafka.addresses(env)
	if err != nil {
		return nil, err
	}
	security, err := f.kafka.security(env)
	if err != nil {
		return nil, err
	}
	security.Uncommitted = f.kafka.uncommitted
	return consumer.NewCluster(brokers, security.Apply)
}

// database adds the tables of the database, if one is named. It need not be there yet.
func (f *consoleFlags) database(env *environment, cfg *console.Config) (io.Closer, error) {
	from := urlFlags{url: f.url}
	if from.get(env) == "" {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	w, err := f.tables.wants(from.get(env), []string{string(schema.DeadLetter)})
	if err != nil {
		return nil, err
	}
	db, err := from.prepare(env, w.dialect, false)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(3) // a job, its row, and who looks at it
	cfg.DeadLetters = []console.DeadLetters{{Name: "database", Table: tableOf(db, w)}}
	if f.allow && w.dialect == schema.Postgres { // the outbox is there only
		cfg.DeadLetters[0].Redrive, cfg.DeadLetters[0].Publishes = f.redrive(db, w), true
	}
	if f.audit {
		cfg.Audit = sqlaudit.New(db, w.dialect, &sqlaudit.Config{Schema: w.cfg.Schema, Table: w.cfg.Tables["console_action"]})
	}
	if w.dialect == schema.Postgres {
		cfg.Outboxes = []console.Outbox{{Name: "database", Operator: outbox.NewOperator(sqloutbox.NewDatabase(db), w.cfg)}}
	}
	return db, nil
}

// redrive publishes dead letters again: a fleet's console has no handlers.
func (f *consoleFlags) redrive(db *sql.DB, w *wanted) func(context.Context, deadletter.RedriveConfig) (deadletter.Report,
	error) {
	return func(ctx context.Context, cfg deadletter.RedriveConfig) (deadletter.Report, error) {
		all := &forward.RedriveConfig{RedriveConfig: cfg, EventID: f.eventID.from}
		return republish(ctx, db, w, all, outbox.DefaultMaxBytes)
	}
}
