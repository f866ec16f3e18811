package main

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/sqldeadletter"
	"github.com/einmal-go/einmal/schema"
)

// deadFlags say which dead letters are meant.
type deadFlags struct {
	tables       tableFlags
	url          urlFlags
	filter       deadletter.Filter
	kind         string
	since, until moment
}

func (f *deadFlags) add(flags *flag.FlagSet) {
	f.tables.add(flags)
	f.url.add(flags)
	flags.StringVar(&f.filter.Consumer, "consumer", "", "of this `consumer`, by default \"group/topic\"")
	flags.StringVar(&f.filter.Topic, "topic", "", "of this `topic`")
	flags.StringVar(&f.kind, "kind", "", "of this `kind` of failure: "+kinds())
	flags.StringVar(&f.filter.ErrorType, "error", "", "whose error has this `type`, as the list shows it")
	flags.Var(&f.since, "since", "that died at this `time` or later: 2026-01-02T15:04:05Z, or 36h for so long ago")
	flags.Var(&f.until, "until", "that died before this `time`")
}

func kinds() string {
	var names []string
	for _, kind := range deadletter.Kinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// moment is a time, or how long ago it was.
type moment struct{ time.Time }

func (m *moment) Set(text string) error {
	if ago, err := time.ParseDuration(text); err == nil {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("want 2026-01-02T15:04:05Z, 2026-01-02, or a duration such as 36h")
}

func (m *moment) String() string { return "" }

// complete takes the ids from the arguments. restricts is whether anything says which dead letters are meant.
func (f *deadFlags) complete(args []string) (restricts bool, err error) {
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return false, usagef("%s is no id of a dead letter: want numbers, as the list shows them", shown(arg))
		}
		f.filter.IDs = append(f.filter.IDs, id)
	}
	f.filter.Kind, f.filter.Since, f.filter.Until = deadletter.Kind(f.kind), f.since.Time, f.until.Time
	none := f.filter.Consumer == "" && f.filter.Topic == "" && f.filter.Kind == "" && f.filter.ErrorType == "" &&
		f.filter.Since.IsZero() && f.filter.Until.IsZero() && len(f.filter.IDs) == 0
	return !none, nil
}

// with opens the table and calls do.
func (f *deadFlags) with(ctx context.Context, env *environment,
	do func(ctx context.Context, table *sqldeadletter.Table) error) error {
	return f.open(ctx, env, func(ctx context.Context, db *sql.DB, w *wanted) error { return do(ctx, tableOf(db, w)) })
}

// open opens the database and calls do.
func (f *deadFlags) open(ctx context.Context, env *environment,
	do func(ctx context.Context, db *sql.DB, w *wanted) error) error {
	if f.url.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.url.timeout)
		defer cancel()
	}
	w, err := f.tables.wants(f.url.get(env), []string{string(schema.DeadLetter)})
	if err != nil {
		return err
	}
	db, err := f.url.open(ctx, env, w.dialect, false)
	if err != nil {
		return err
	}
	defer db.Close()
	return do(ctx, db, w)
}

func tableOf(db *sql.DB, w *wanted) *sqldeadletter.Table {
	return sqldeadletter.New(db, w.dialect,
		&sqldeadletter.Config{Schema: w.cfg.Schema, Table: w.cfg.Tables["dead_message"]})
}

var deadList = command{
	name: "dead list", args: "[id...]",
	about: "List dead letters, the oldest first, without their messages.",
	more: "The flags restrict what is listed; together they all must hold. Texts of errors are those of the table, in which what looks like a secret or\n" +
		"like a part of the message is masked.\n\nexample: einmal dead list -consumer billing -since 36h",
	setup: func(flags *flag.FlagSet) action {
		var dead deadFlags
		dead.add(flags)
		limit := flags.Int("limit", 100, "list so many at most")
		after := flags.Int64("after", 0, "begin behind this `id`")
		asJSON := flags.Bool("json", false, "print JSON, an object a line")
		return func(ctx context.Context, env *environment, args []string) error {
			if _, err := dead.complete(args); err != nil {
				return err
			}
			if *limit < 1 {
				return usagef("-limit is %d: make it at least 1", *limit)
			}
			return dead.with(ctx, env, func(ctx context.Context, table *sqldeadletter.Table) error {
				list, err := table.List(ctx, dead.filter, *after, *limit)
				if err != nil {
					return err
				}
				all, err := table.Count(ctx, dead.filter)
				if err != nil {
					return err
				}
				for _, rec := range list {
					if *asJSON {
						err = printJSON(env.stdout, facts(rec), "")
					} else {
						err = showDead(env.stdout, rec)
					}
					if err != nil {
						return err
					}
				}
				if !*asJSON {
					fmt.Fprintf(env.stdout, "listed: %d of %d\n", len(list), all)
				}
				return nil
			})
		}
	},
}

// showDead prints a line or two.
func showDead(to io.Writer, rec *deadletter.Record) error {
	_, err := fmt.Fprintf(to, "%d  %s  %s  %s[%d]@%d  %s  %s  attempts %d  redrives %d\n    %s\n", rec.ID,
		rec.Died.Format(time.RFC3339), plain(rec.Consumer), plain(rec.Topic),
		rec.Partition, rec.Offset, plain(string(rec.Kind)), plain(rec.ErrorType), rec.Attempts, rec.Redrives,
		cmp.Or(plain(rec.Error), "-"))
	if err == nil && rec.RedriveError != "" {
		_, err = fmt.Fprintf(to, "    redrive: %s\n", plain(rec.RedriveError))
	}
	return err
}

// deadFacts is a dead letter in JSON, without the message.
type deadFacts struct {
	ID           int64      `json:"id"`
	Consumer     string     `json:"consumer"`
	Event        string     `json:"event"`
	Group        string     `json:"group"`
	Topic        string     `json:"topic"`
	TopicID      string     `json:"topic_id,omitempty"`
	Partition    int32      `json:"partition"`
	Offset       int64      `json:"offset"`
	Timestamp    *time.Time `json:"timestamp,omitempty"`
	Size         int64      `json:"size"`
	LeftOut      bool       `json:"left_out"`
	Kind         string     `json:"kind"`
	ErrorType    string     `json:"error_type"`
	Error        string     `json:"error"`
	Attempts     int        `json:"attempts"`
	FirstAttempt *time.Time `json:"first_attempt,omitempty"`
	Died         time.Time  `json:"died"`
	Version      string     `json:"einmal_version"`
	TraceID      string     `json:"trace_id,omitempty"`
	Redrives     int        `json:"redrives"`
	RedriveError string     `json:"redrive_error,omitempty"`
}

func facts(r *deadletter.Record) *deadFacts {
	optional := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return &deadFacts{
		r.ID, plain(r.Consumer), plain(r.Event), plain(r.Group), plain(r.Topic), r.TopicID, r.Partition, r.Offset,
		optional(r.Timestamp), r.Size, r.LeftOut,
		string(r.Kind), plain(r.ErrorType), plain(r.Error), r.Attempts, optional(r.FirstAttempt), r.Died, r.Version,
		r.TraceID, r.Redrives, plain(r.RedriveError),
	}
}

var deadShow = command{
	name: "dead show", args: "id...",
	about: "Show dead letters in full, as JSON.",
	more: "With -message also the key, the value and the headers, which are the bytes that stood in Kafka: each as {\"text\": ...} where it is UTF-8, and\n" +
		"as {\"base64\": ...} where it is not. Mind who looks over your shoulder.\n\nexample: einmal dead show -message 4711",
	setup: func(flags *flag.FlagSet) action {
		var dead deadFlags
		dead.tables.add(flags)
		dead.url.add(flags)
		withMessage := flags.Bool("message", false, "show key, value and headers too")
		return func(ctx context.Context, env *environment, args []string) error {
			if some, err := dead.complete(args); err != nil || !some {
				return cmp.Or(err, usagef("name the ids of dead letters, as the list shows them"))
			}
			return dead.with(ctx, env, func(ctx context.Context, table *sqldeadletter.Table) error {
				for _, id := range dead.filter.IDs {
					rec, err := table.Get(ctx, id)
					if err != nil {
						return err
					}
					var shown any = facts(rec)
					if *withMessage {
						message := messageOf(rec.Key, rec.Value)
						for _, h := range rec.Headers {
							message.Headers = append(message.Headers, headerOf(h.Key, h.Value))
						}
						shown = struct {
							*deadFacts
							messageFacts
						}{facts(rec), message}
					}
					if err := printJSON(env.stdout, shown, indentedJSON); err != nil {
						return err
					}
				}
				return nil
			})
		}
	},
}

var deadDiscard = command{
	name: "dead discard", args: "[id...]",
	about: "Delete dead letters for good.",
	more: "The flags and ids say which; without any, -all must. It shows them, and asks. The records of the events stay: the messages are not handled\n" +
		"again. Those that are being redriven are left. To have dead letters handled, repair the cause, then call dead redrive. The exit code is 1 if an id is\n" +
		"not there.\n\nexample: einmal dead discard -topic orders -kind permanent -until 720h",
	setup: func(flags *flag.FlagSet) action {
		var dead deadFlags
		dead.add(flags)
		unlimited(flags)
		all := flags.Bool("all", false, "all of them")
		dry := flags.Bool("dry-run", false, "say which it would be, and delete none")
		yes := confirmFlag(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			switch some, err := dead.complete(args); {
			case err != nil:
				return err
			case !some && !*all:
				return usagef("say which: by ids, by flags, or -all")
			case some && *all:
				return usagef("-all is for all of them: leave it out, or the ids and flags")
			}
			return dead.with(ctx, env, func(ctx context.Context, table *sqldeadletter.Table) error {
				c, err := dead.choose(ctx, env.stderr, table)
				if err != nil {
					return err
				}
				c.show(env.stdout, "discard")
				if *dry || len(c.ids) == 0 {
					return c.deadDone(nil)
				}
				if err := confirm(env, *yes, fmt.Sprintf("delete %d dead letters for good?", len(c.ids))); err != nil {
					return err
				}
				n, err := table.Discard(ctx, dead.filter)
				fmt.Fprintf(env.stdout, "discarded: %d\n", n)
				return c.deadDone(err)
			})
		}
	},
}
