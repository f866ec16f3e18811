package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

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
		var f auditFlags
		f.add(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) > 0 {
				return usagef("audit takes no arguments, only flags: %s is one", shown(args[0]))
			}
			return f.run(ctx, env)
		}
	},
}

// unableError is the error of a command whose answer is neither yes nor no.
type unableError struct{ error }

func (e *unableError) Unwrap() error { return e.error }

// auditFlags say what is audited.
type auditFlags struct {
	tables  tableFlags
	url     urlFlags
	kafka   kafkaFlags
	cfg     audit.Config
	id      string
	filter  string
	from    moment
	to      moment
	offsets offsetRanges

	json, all bool
}

func (f *auditFlags) add(flags *flag.FlagSet) {
	f.tables.add(flags)
	f.url.add(flags)
	unlimited(flags)
	f.kafka.add(flags)
	flags.StringVar(&f.cfg.Topic, "topic", "", "the `topic`")
	flags.StringVar(&f.cfg.Group, "group", "", "the consumer `group` of the service")
	flags.StringVar(&f.cfg.Consumer, "consumer", "", "the `consumer` whose records are meant. By default \"group/topic\"")
	flags.StringVar(&f.id, "id", "header:"+consumer.DefaultEventIDHeader, "`where` the event's id is")
	flags.StringVar(&f.filter, "filter", "", "what is for this consumer, as `header=value,value`: what has another value there is foreign, as by middleware.OtherType")
	flags.Var(&f.from, "from", "from the first message of this `time` on: 2026-01-02T15:04:05Z, or 36h for so long ago. By default from the topic's beginning")
	flags.Var(&f.to, "to", "up to the first message of this `time`, without it. By default to what is the end")
	flags.Var(&f.offsets, "offsets", "a partition's offsets, as `partition=from:to`, without to; 3=100: is up to the end. Can be repeated; others are not read")
	flags.StringVar(&f.cfg.Effects, "effects", "", "a `query` that returns the id of an event for each effect")
	flags.DurationVar(&f.cfg.Keep, "keep", 0, "how long records are kept, as the janitor does. By default for ever")
	flags.Float64Var(&f.cfg.Rate, "rate", 0, "read so many messages and rows a second at most. By default as many as it can")
	flags.StringVar(&f.cfg.TempDir, "temp", "", "the `directory` of the sorted files. By default the system's for such")
	flags.BoolVar(&f.cfg.Values, "value", false, "show the keys and values of the examples")
	flags.BoolVar(&f.all, "v", false, "list all that was found, not only the first ten of each kind")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// validate finds out what is wrong with the flags.
func (f *auditFlags) validate() error {
	switch {
	case f.cfg.Topic == "":
		return usagef("which topic? Set -topic")
	case f.cfg.Group == "":
		return usagef("whose offsets? Set -group")
	case f.cfg.Keep < 0:
		return usagef("-keep is %v: make it as long as records are kept, or leave it out", f.cfg.Keep)
	case f.cfg.Rate < 0:
		return usagef("-rate is %v: make it positive, or leave it out", f.cfg.Rate)
	case (!f.from.IsZero() || !f.to.IsZero()) && len(f.offsets) > 0:
		return usagef("-from and -to, and -offsets, exclude each other")
	case !f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to.Time):
		return usagef("-from is not before -to")
	}
	return f.complete()
}

// complete makes the configuration of the flags.
func (f *auditFlags) complete() (err error) {
	f.cfg.From, f.cfg.To = f.from.Time, f.to.Time
	if len(f.offsets) > 0 {
		f.cfg.Offsets = map[int32]consumer.OffsetRange{}
	}
	for p, rg := range f.offsets {
		f.cfg.Offsets[p] = consumer.OffsetRange{From: rg.From, To: rg.To}
	}
	if f.all {
		f.cfg.Examples = -1
	}
	if f.filter != "" {
		header, values, ok := strings.Cut(f.filter, "=")
		if !ok || header == "" || values == "" {
			return usagef("-filter is header=value,value")
		}
		f.cfg.Foreign = middleware.OtherType(header, strings.Split(values, ",")...)
	}
	f.cfg.EventID, err = idSources(f.id)
	return err
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

func (f *auditFlags) run(ctx context.Context, env *environment) error {
	if err := f.validate(); err != nil {
		return err
	}
	brokers, err := f.kafka.addresses(env)
	if err != nil {
		return err
	}
	w, err := f.tables.wants(f.url.get(env), nil)
	if err != nil {
		return err
	}
	f.cfg.Dialect, f.cfg.Tables = w.dialect, w.cfg
	report, err := f.audit(ctx, env, brokers)
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		return &unableError{err}
	}
	if err := f.print(env.stdout, report); err != nil {
		return &unableError{err}
	}
	if !report.Clean() {
		return errNo
	}
	return nil
}

func (f *auditFlags) audit(ctx context.Context, env *environment, brokers []string) (*audit.Report, error) {
	if f.url.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.url.timeout, fmt.Errorf("it was not done within %v: -timeout takes longer", f.url.timeout))
		defer cancel()
	}
	security, err := f.kafka.security(env)
	if err != nil {
		return nil, err
	}
	db, err := f.url.open(ctx, env, f.cfg.Dialect, false)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	show, end := auditProgress(env)
	defer end()
	f.cfg.Progress = show
	kafka := audit.Kafka{
		Brokers: brokers, TLS: security.TLS, Mechanism: security.Mechanism, User: security.User, Password: security.Password,
		ReadUncommitted: f.kafka.uncommitted,
	}
	return audit.Run(ctx, kafka, db, f.cfg)
}

// auditProgress shows on a terminal what is read.
func auditProgress(env *environment) (show func(audit.Progress), end func()) {
	if !isTerminal(env.stderr) || env.stdin == nil {
		return nil, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(p audit.Progress) {
		of := ""
		if p.Total > 0 {
			of = fmt.Sprintf(" of %d", p.Total)
		}
		fmt.Fprintf(env.stderr, clearLine+"%s: %d%s", p.Step, p.Done, of)
	}, func() { fmt.Fprint(env.stderr, clearLine) }
}

// titles are what findings are called in the table.
var titles = map[audit.Kind]string{
	audit.Lost:                 "lost",
	audit.DoubledEffects:       "doubled effects",
	audit.EffectsWithoutRecord: "effects without a record",
	audit.RecordsWithoutEffect: "records without an effect",
	audit.DifferentValues:      "ids with different values",
	audit.CommittedTooFar:      "partitions committed too far",
	audit.Unreadable:           "unreadable places",
	audit.Repeated:             "repeated in the topic",
	audit.WithoutID:            "without id",
}

func (f *auditFlags) print(to io.Writer, r *audit.Report) error {
	if f.json {
		return printJSON(to, r, indentedJSON)
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "partition\tfrom\tto\tcommitted\tmessages\tunread")
	slices.SortFunc(r.Partitions, func(a, b *audit.Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\n", p.Partition, p.From, p.To, p.Committed, p.Messages, p.Unread)
	}
	fmt.Fprintf(w, "\nevents\trecorded\tdead\thanded on\tfiltered\ttoo old\tundecided\n%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
		r.Events, r.Recorded, r.Dead, r.HandedOn, r.Filtered, r.TooOld, r.Undecided)
	kinds := audit.Findings()
	if f.cfg.Effects == "" {
		kinds = slices.DeleteFunc(kinds, needsEffects)
	} else {
		fmt.Fprintf(w, "\nrecords\teffects\tunjudged\n%d\t%d\t%d\n", r.Records, r.Effects, r.Unjudged)
	}
	fmt.Fprintln(w, "\nfound\tcount")
	for _, kind := range append(kinds, audit.Notes()...) {
		fmt.Fprintf(w, "%s\t%d\n", titles[kind], r.Found[kind].Count)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, kind := range append(kinds, audit.Notes()...) {
		f.examples(to, titles[kind], r.Found[kind])
	}
	if r.Records == 0 && r.Found[audit.Lost].Count > 0 {
		fmt.Fprintf(to, "\nThe consumer %q has no record at all: check the name (Topic.Consumer), the schema and the table.\n", r.Consumer)
	}
	return nil
}

func needsEffects(kind audit.Kind) bool {
	return kind == audit.DoubledEffects || kind == audit.EffectsWithoutRecord || kind == audit.RecordsWithoutEffect
}

// examples lists them, each on a line.
func (f *auditFlags) examples(to io.Writer, title string, found *audit.Finding) {
	if len(found.Examples) == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s:\n", title)
	for _, e := range found.Examples {
		var about []string
		if e.Event != "" {
			about = append(about, fmt.Sprintf("%q", plain(e.Event)))
		}
		for _, p := range e.Places {
			about = append(about, placeText(p, f.cfg.Values))
		}
		if e.Times > 0 {
			about = append(about, fmt.Sprintf("%d times", e.Times))
		}
		if e.Problem != "" {
			about = append(about, plain(e.Problem))
		}
		fmt.Fprintf(to, "  %s\n", strings.Join(about, ", "))
	}
	if more := found.Count - int64(len(found.Examples)); more > 0 {
		fmt.Fprintf(to, "  and %d more: -v lists all\n", more)
	}
}

func placeText(p audit.Place, values bool) string {
	text := fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset)
	if !p.Time.IsZero() {
		text += " of " + p.Time.Format(time.RFC3339)
	}
	if values {
		text += fmt.Sprintf(" key %q value %q", p.Key, p.Value)
	}
	return text
}
