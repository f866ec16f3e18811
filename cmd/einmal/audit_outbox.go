package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/schema"
)

var auditOutbox = command{
	name:  "audit outbox",
	about: "Check that what relays have sent is in its topic, in the order of its keys.",
	more: "It reads the rows of the outbox that are about the topic, and the topic behind them: each row that is PUBLISHED must have its event there, once or\n" +
		"more often, and the events of a key must stand there in the order of their rows. Events that no row has are found with -keep, which says how long\n" +
		"relays keep rows that were sent: a single-phase relay without a Keep deletes them at once, and leaves nothing to be checked.\n\n" +
		"It writes nothing: a role with SELECT on outbox_event suffices, and a replica can be asked. It is right beside the running relays.\n" +
		"docs/audit.md says what an audit can prove and what it cannot.\n\n" +
		"Exit codes: 0 nothing was found, 1 something was found, 2 it could not look.\n\n" +
		"example: einmal audit outbox -topic orders.confirmed -from 24h -keep 48h",
	setup: func(flags *flag.FlagSet) action {
		var f auditFlags
		f.add(flags, "at which a relay has marked a row as PUBLISHED",
			"how long relays keep rows that were sent (relay.Config.Keep). By default nobody knows, and no event of the topic needs a row")
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) > 0 {
				return usagef("audit outbox takes no arguments, only flags: %s is one", shown(args[0]))
			}
			return f.runOutbox(ctx, env)
		}
	},
}

func (f *auditFlags) runOutbox(ctx context.Context, env *environment) error {
	if err := f.validate(); err != nil {
		return err
	}
	w, err := f.tables.wants(f.url.get(env), nil)
	switch {
	case err != nil:
		return err
	case w.dialect != schema.Postgres:
		return usagef("the outbox needs PostgreSQL")
	}
	var report *audit.OutboxReport
	err = f.with(ctx, env, w, func(ctx context.Context, s *servers) (err error) {
		report, err = audit.Outbox(ctx, s.kafka, s.db, audit.OutboxConfig{
			Topic: f.topic, From: f.from.Time, To: f.to.Time, Keep: f.keep, Tables: w.cfg,
			Examples: f.examples(), Values: f.values, Rate: f.rate, TempDir: f.temp, Progress: s.progress,
		})
		return err
	})
	if err != nil {
		return err
	}
	if err := f.printOutbox(env.stdout, report); err != nil {
		return &unableError{err}
	}
	if !report.Clean() {
		return errNo
	}
	return nil
}

func (f *auditFlags) printOutbox(to io.Writer, r *audit.OutboxReport) error {
	if f.json {
		return printJSON(to, r, indentedJSON)
	}
	w := table(to)
	fmt.Fprintln(w, "partition\tfrom\tto\tmessages\tunread")
	byPartition(r.Partitions, func(p *audit.Part) int32 { return p.Partition })
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\n", p.Partition, p.From, p.To, p.Messages, p.Unread)
	}
	fmt.Fprintf(w, "\nrows\twaiting\tblocked\tdiscarded\tpublished\tsent\tdeleted\tundecided\n%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
		r.Rows, r.Waiting, r.Blocked, r.Discarded, r.Published, r.Sent, r.Deleted, r.Undecided)
	fmt.Fprintf(w, "\nevents\tswept\tnew\n%d\t%d\t%d\n", r.Events, r.Swept, r.New)
	if err := f.printFound(to, w, append(audit.OutboxFindings(), audit.OutboxNotes()...), r.Found); err != nil {
		return err
	}
	if f.keep == 0 && r.Swept > 0 {
		fmt.Fprintf(to, "\n%d events have no row. Say by -keep how long relays keep rows, so that those are found which should have one.\n", r.Swept)
	}
	if r.Published == 0 {
		fmt.Fprintf(to, "\nNo row of the topic %q was marked as PUBLISHED in that window: nothing was checked. Relays keep rows for their Config.Keep.\n", plain(r.Topic))
	}
	return nil
}
