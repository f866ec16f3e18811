package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

var deadRedrive = command{
	name: "dead redrive", args: "[id...]",
	about: "Publish dead letters again, for their consumers to handle.",
	more: "The flags and ids say which; without any, -all must. For each of them one transaction deletes the dead letter and the record of its event, and\n" +
		"writes the message to the outbox, for the topic where it stood: a relay sends it, and the consumer handles it like a new message. Interrupt it\n" +
		"where you like, and call it again. Begin with -dry-run, which does it all and rolls it back.\n\n" +
		"The message must carry its id, where -event-id says. One that does not, or whose bytes were left out, stays, with the reason in its row: have the\n" +
		"service call deadletter.Redrive for it. Of kinds whose effect may be there already, or which end the process (too_old, transaction_ended,\n" +
		"crash_loop), only those are redriven that -kind or an id names; delete the row of a crash_loop from started_message first.\n\n" +
		"It shows how many there are, says where some of a key would overtake others, and asks. The exit code is 1 if one cannot be published, or an id is not there.\n\n" +
		"example: einmal dead redrive -consumer billing -kind gave_up -since 36h",
	setup: func(flags *flag.FlagSet) action {
		var dead deadFlags
		var id eventID
		cfg := forward.RedriveConfig{}
		dead.add(flags)
		unlimited(flags)
		all := flags.Bool("all", false, "all of them")
		maxBytes := flags.Int("max-bytes", outbox.DefaultMaxBytes, "the largest message to publish, in `bytes`")
		flags.Var(&id, "event-id", "where the consumer finds the event's id: "+eventIDForms)
		flags.BoolVar(&cfg.DryRun, "dry-run", false, "say what would become of them, and change nothing")
		flags.Float64Var(&cfg.PerSecond, "per-second", 10, "publish so many in a second at most; -1 is no limit")
		yes := confirmFlag(flags)
		flags.IntVar(&cfg.Limit, "limit", 0, "end after so many; 0 is no limit")
		flags.IntVar(&cfg.Failures, "failures", 0, "end after so many that cannot be published; 0 is no limit")
		return func(ctx context.Context, env *environment, args []string) error {
			switch some, err := dead.complete(args); {
			case err != nil:
				return err
			case !some && !*all:
				return usagef("say which: by ids, by flags, or -all")
			case some && *all:
				return usagef("-all is for all of them: leave it out, or the ids and flags")
			case cfg.PerSecond == 0 || cfg.Limit < 0 || cfg.Failures < 0 || *maxBytes < 1:
				return usagef("-per-second must not be 0, -limit and -failures not be negative, -max-bytes be at least 1")
			}
			cfg.Filter, cfg.EventID = dead.filter, id.from
			return dead.open(ctx, env, func(ctx context.Context, db *sql.DB, w *wanted) error {
				if w.dialect != schema.Postgres {
					return usagef("dead redrive writes to the outbox, which needs PostgreSQL: have the service call deadletter.Redrive")
				}
				c, err := dead.choose(ctx, env.stderr, tableOf(db, w))
				if err != nil {
					return err
				}
				c.show(env.stdout, "publish again")
				if err := c.warnOrder(ctx, env.stderr, db, w, &cfg.Filter); err != nil {
					return err
				}
				if !cfg.DryRun && len(c.ids) > 0 {
					if err := confirm(env, *yes, fmt.Sprintf("publish %d dead letters again?", len(c.ids))); err != nil {
						return err
					}
				}
				return c.deadDone(redrive(ctx, env, db, w, &cfg, *maxBytes, len(c.ids)))
			})
		}
	},
}

// unlimited has -timeout be none by default: many messages take their time at so many a second.
func unlimited(flags *flag.FlagSet) {
	timeout := flags.Lookup("timeout")
	timeout.DefValue = "0s"
	timeout.Usage = "how long it may take; 0 is no limit"
	_ = timeout.Value.Set(timeout.DefValue)
}

func redrive(ctx context.Context, env *environment, db *sql.DB, w *wanted, cfg *forward.RedriveConfig, maxBytes,
	total int) error {
	done := "published"
	if cfg.DryRun {
		done = "would be published"
	}
	show, end := progress(env, "looked at", int64(total))
	looked := int64(0)
	cfg.Each = func(rec *deadletter.Record, err error) {
		showRedrive(env.stdout, rec, err)
		looked++
		show(looked)
	}
	report, err := republish(ctx, db, w, cfg, maxBytes)
	end()
	fmt.Fprintf(env.stdout, "%s: %d, cannot be: %d, held: %d, gone: %d\n", done, report.Redriven, report.Failed,
		report.Held, report.Gone)
	return cmp.Or(err, failedIf(report.Failed > 0))
}

// republish publishes dead letters again, by way of the outbox.
func republish(ctx context.Context, db *sql.DB, w *wanted, cfg *forward.RedriveConfig, maxBytes int) (deadletter.Report,
	error) {
	store := sqlstore.New(db, w.dialect, &sqlstore.Config{Schema: w.cfg.Schema, Table: w.cfg.Tables["processed_event"]})
	events := sqloutbox.NewWriter(&outbox.WriterConfig{Tables: w.cfg, MaxBytes: maxBytes})
	return forward.Redrive(ctx, store, tableOf(db, w), events, cfg)
}

func failedIf(yes bool) error {
	if yes {
		return errNo
	}
	return nil
}

// showRedrive prints what did not go well.
func showRedrive(to io.Writer, rec *deadletter.Record, err error) {
	if err != nil {
		fmt.Fprintf(to, "%d  %s[%d]@%d  %s\n", rec.ID, plain(rec.Topic), rec.Partition, rec.Offset,
			plain(deadletter.Text(err, nil)))
	}
}

// eventIDForms are what -event-id takes.
const eventIDForms = "header:`NAME`, cloudevents, json:FIELD (json:meta.id for a field within a field), or key. By default header:" +
	consumer.DefaultEventIDHeader

// eventID is where the id of an event stands.
type eventID struct {
	from func(*consumer.Message) (string, error)
}

func (e *eventID) String() string { return "" }

func (e *eventID) Set(text string) error {
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case kind == "header" && name != "":
		e.from = consumer.HeaderID(name)
	case kind == "json" && name != "":
		e.from = consumer.JSONID(strings.Split(name, ".")...)
	case text == "cloudevents":
		e.from = consumer.CloudEventID
	case text == "key":
		e.from = consumer.UniqueKeyID
	default:
		return errors.New("want header:NAME, cloudevents, json:FIELD or key")
	}
	return nil
}
