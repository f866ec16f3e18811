package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

var auditTopic = command{
	name:  "audit",
	about: "Check on a window of a topic that each event has taken effect once.",
	more: "It reads the window outside of any group, the group's committed offsets, the consumer's records, dead letters and hand-ons, and with -effects\n" +
		"the ids that a query returns, one for each effect. It writes nothing: a role with SELECT suffices, and a replica can be asked. It is right beside\n" +
		"the running service: what is not behind the committed offset is undecided, not lost.\n\n" +
		"-id says where the ids are: header:NAME, cloudevents, json:FIELD (json:meta.id for nested ones), key, or place (consumer.OffsetID); several with\n" +
		"a comma between them are joined, as consumer.CompositeID does. -keep says how long records are kept: an older event is told apart, not lost.\n\n" +
		"Ids are shown, values are not: they are compared by a hash, and -value shows those of the examples. What is read stands in sorted files\n" +
		"meanwhile, with the ids in them (-temp). docs/audit.md says what an audit can prove and what it cannot.\n\n" +
		"Exit codes: 0 nothing was found, 1 something was found, 2 it could not look.\n\n" +
		"example: einmal audit -topic orders -group billing -from 24h -effects 'select event_id from charge'",
	setup: func(flags *flag.FlagSet) action {
		var f topicAudit
		f.add(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) > 0 {
				return usagef("audit takes no arguments, only flags: %s is one", shown(args[0]))
			}
			return f.run(ctx, env)
		}
	},
}

// topicAudit are the flags of an audit of a topic.
type topicAudit struct {
	auditFlags
	group, consumer, effects string

	id      string
	filter  string
	offsets offsetRanges
}

func (f *topicAudit) add(flags *flag.FlagSet) {
	f.auditFlags.add(flags, "of messages", "how long records are kept, as the janitor does. By default for ever")
	flags.StringVar(&f.group, "group", "", "the consumer `group` of the service")
	flags.StringVar(&f.consumer, "consumer", "", "the `consumer` whose records are meant. By default \"group/topic\"")
	flags.StringVar(&f.id, "id", "header:"+consumer.DefaultEventIDHeader, "`where` the event's id is")
	flags.StringVar(&f.filter, "filter", "",
		"what is for this consumer, as `header=value,value`: what has another value there is foreign, as by middleware.OtherType")
	flags.Var(&f.offsets, "offsets",
		"a partition's offsets, as `partition=from:to`, without to; 3=100: is up to the end. Can be repeated; others are not read")
	flags.StringVar(&f.effects, "effects", "", "a `query` that returns the id of an event for each effect")
}

// validate finds out what is wrong with the flags.
func (f *topicAudit) validate() error {
	switch err := f.auditFlags.validate(); {
	case err != nil:
		return err
	case f.group == "":
		return usagef("whose offsets? Set -group")
	case (!f.from.IsZero() || !f.to.IsZero()) && len(f.offsets) > 0:
		return usagef("-from and -to, and -offsets, exclude each other")
	}
	return nil
}

// config makes the configuration of the flags.
func (f *topicAudit) config(w *wanted) (cfg audit.Config, err error) {
	cfg = audit.Config{
		Topic: f.topic, Group: f.group, Consumer: f.consumer, From: f.from.Time, To: f.to.Time, Keep: f.keep,
		Effects: f.effects,
		Dialect: w.dialect, Tables: w.cfg, Examples: f.examples(), Values: f.values, Rate: f.rate, TempDir: f.temp,
	}
	if len(f.offsets) > 0 {
		cfg.Offsets = map[int32]consumer.OffsetRange{}
	}
	for p, rg := range f.offsets {
		cfg.Offsets[p] = consumer.OffsetRange{From: rg.From, To: rg.To}
	}
	if f.filter != "" {
		header, values, ok := strings.Cut(f.filter, "=")
		if !ok || header == "" || values == "" {
			return cfg, usagef("-filter is header=value,value")
		}
		cfg.Foreign = middleware.OtherType(header, strings.Split(values, ",")...)
	}
	cfg.EventID, err = idSources(f.id)
	return cfg, err
}

// idSources joins several with a comma between them.
func idSources(text string) (func(*consumer.Message) (string, error), error) {
	var parts []func(*consumer.Message) (string, error)
	for part := range strings.SplitSeq(text, ",") {
		id, err := idSource(part)
		if err != nil {
			return nil, err
		}
		parts = append(parts, id)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return consumer.CompositeID(parts...), nil
}

func (f *topicAudit) run(ctx context.Context, env *environment) error {
	if err := f.validate(); err != nil {
		return err
	}
	w, err := f.tables.wants(f.url.get(env), nil)
	if err != nil {
		return err
	}
	cfg, err := f.config(w)
	if err != nil {
		return err
	}
	var report *audit.Report
	err = f.with(ctx, env, w, func(ctx context.Context, s *servers) (err error) {
		cfg.Progress = s.progress
		report, err = audit.Run(ctx, s.kafka, s.db, cfg)
		return err
	})
	if err != nil {
		return err
	}
	if err := f.print(env.stdout, report); err != nil {
		return &unableError{err}
	}
	if !report.Clean() {
		return errNo
	}
	return nil
}

func (f *topicAudit) print(to io.Writer, r *audit.Report) error {
	if f.json {
		return printJSON(to, r, indentedJSON)
	}
	w := table(to)
	fmt.Fprintln(w, "partition\tfrom\tto\tcommitted\tmessages\tunread")
	byPartition(r.Partitions, func(p *audit.Partition) int32 { return p.Partition })
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\n", p.Partition, p.From, p.To, p.Committed, p.Messages, p.Unread)
	}
	fmt.Fprintf(w, "\nevents\trecorded\tdead\thanded on\tfiltered\ttoo old\tundecided\n%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
		r.Events, r.Recorded, r.Dead, r.HandedOn, r.Filtered, r.TooOld, r.Undecided)
	kinds := audit.Findings()
	if f.effects == "" {
		kinds = slices.DeleteFunc(kinds, needsEffects)
	} else {
		fmt.Fprintf(w, "\nrecords\teffects\tunjudged\n%d\t%d\t%d\n", r.Records, r.Effects, r.Unjudged)
	}
	if err := f.printFound(to, w, append(kinds, audit.Notes()...), r.Found); err != nil {
		return err
	}
	if r.Records == 0 && r.Found[audit.Lost].Count > 0 {
		fmt.Fprintf(to, "\nThe consumer %q has no record at all: check the name (Topic.Consumer), the schema and the table.\n", r.Consumer)
	}
	return nil
}

func needsEffects(kind audit.Kind) bool {
	return kind == audit.DoubledEffects || kind == audit.EffectsWithoutRecord || kind == audit.RecordsWithoutEffect
}
