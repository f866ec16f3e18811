package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/topicwindow"
	"github.com/einmal-go/einmal/schema"
)

var replayCheck = command{
	name:  "replay check",
	about: "Say how many events of a window of a topic are recorded for a consumer, and how many are not.",
	more: "It is the dry run of consumer.Replay, which a service calls, because the handlers are in it: what is not recorded would be handled. It\n" +
		"reads the window outside of any group, commits no offset, and looks the ids up in processed_event; it writes nothing. An id that stands\n" +
		"twice in the window counts twice. Neither payloads nor ids are shown.\n\n" +
		"-id says where the ids are: header:NAME, cloudevents, json:FIELD (json:meta.id for nested ones), key, or place (consumer.OffsetID). What\n" +
		"has no id there, or one that cannot be recorded, would not be handled.\n\n" +
		"A window is -from, -to, both, or -offsets; the whole topic needs -all. PostgreSQL only. The exit code is 0 if the window was read.\n\n" +
		"What producers have aborted is not read, and what they have not committed yet ends the window of its partition (\"unread\" in JSON).",
	setup: func(flags *flag.FlagSet) action {
		var f replayFlags
		f.add(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) > 0 {
				return usagef("replay check takes no arguments, only flags: %s is one", shown(args[0]))
			}
			return f.check(ctx, env)
		}
	},
}

// replayFlags say what is to be read, and who has handled it.
type replayFlags struct {
	tables          tableFlags
	url             urlFlags
	kafka           kafkaFlags
	topic, consumer string
	id              string
	from, to        moment
	offsets         offsetRanges
	all, json       bool
	keep            time.Duration
}

func (f *replayFlags) add(flags *flag.FlagSet) {
	f.tables.add(flags)
	f.url.add(flags)
	f.kafka.add(flags)
	flags.StringVar(&f.topic, "topic", "", "the `topic`")
	flags.StringVar(&f.consumer, "consumer", "",
		"the `consumer` whose records are looked up, by default of Topic.Consumer \"group/topic\"")
	flags.StringVar(&f.id, "id", "header:"+consumer.DefaultEventIDHeader, "`where` the event's id is")
	flags.Var(&f.from, "from", "from the first message of this `time` on: 2026-01-02T15:04:05Z, or 36h for so long ago")
	flags.Var(&f.to, "to", "up to the first message of this `time`, without it")
	flags.Var(&f.offsets, "offsets",
		"a partition's offsets, as `partition=from:to`, without to; 3=100: is up to the end. Can be repeated; others are not read")
	flags.BoolVar(&f.all, "all", false, "the whole topic")
	flags.DurationVar(&f.keep, "keep", 0,
		"how long records are kept: older messages are not looked up, and would not be handled. By default for ever")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// offsetRanges collects partition=from:to.
type offsetRanges map[int32]topicwindow.Range

func (o *offsetRanges) String() string { return "" }

func (o *offsetRanges) Set(text string) error {
	partition, offsets, ok := strings.Cut(text, "=")
	from, to, ok2 := strings.Cut(offsets, ":")
	p, err := strconv.ParseInt(partition, 10, 32)
	begin, ferr := strconv.ParseInt(cmp.Or(from, "0"), 10, 64)
	end, terr := strconv.ParseInt(cmp.Or(to, strconv.Itoa(math.MaxInt64)), 10, 64)
	if !ok || !ok2 || errors.Join(err, ferr, terr) != nil || p < 0 || begin < 0 || end < begin {
		return errors.New("want partition=from:to, 3=100:200 for example")
	}
	if *o == nil {
		*o = offsetRanges{}
	}
	(*o)[int32(p)] = topicwindow.Range{Partition: int32(p), From: begin, To: end}
	return nil
}

// validate finds out what is wrong with the flags, and where ids are.
func (f *replayFlags) validate() (id func(*consumer.Message) (string, error), err error) {
	timed := !f.from.IsZero() || !f.to.IsZero()
	switch {
	case f.topic == "":
		return nil, usagef("which topic? Set -topic")
	case f.consumer == "":
		return nil, usagef("whose records? Set -consumer, to \"group/topic\" unless the service says otherwise by Topic.Consumer")
	case timed && len(f.offsets) > 0, f.all && (timed || len(f.offsets) > 0):
		return nil, usagef("-from and -to, -offsets, and -all exclude each other")
	case !timed && len(f.offsets) == 0 && !f.all:
		return nil, usagef("which window? Set -from, -to, -offsets, or -all for the whole topic")
	case !f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to.Time):
		return nil, usagef("-from is not before -to")
	case f.keep < 0:
		return nil, usagef("-keep is %v: make it as long as records are kept, or leave it out", f.keep)
	}
	return idSource(f.id)
}

// idSource is the function of Topic.EventID that -id means.
func idSource(text string) (func(*consumer.Message) (string, error), error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case kind == "header" && name != "":
		return consumer.HeaderID(name), nil
	case kind == "json" && name != "":
		return consumer.JSONID(strings.Split(name, ".")...), nil
	case named:
	case kind == "cloudevents":
		return consumer.CloudEventID, nil
	case kind == "key":
		return consumer.UniqueKeyID, nil
	case kind == "place":
		return consumer.OffsetID, nil
	}
	return nil, usagef("-id is header:NAME, cloudevents, json:FIELD, key or place")
}

func (f *replayFlags) check(ctx context.Context, env *environment) error {
	id, err := f.validate()
	if err != nil {
		return err
	}
	if _, err := f.kafka.addresses(env); err != nil {
		return err
	}
	w, err := f.tables.wants(f.url.get(env), []string{string(schema.Dedup)})
	switch {
	case err != nil:
		return err
	case w.dialect != schema.Postgres:
		return usagef("replay check needs PostgreSQL")
	}
	ctx, cancel := context.WithTimeout(ctx, f.url.timeout)
	defer cancel()
	db, err := f.url.open(ctx, env, w.dialect, false)
	if err != nil {
		return err
	}
	defer db.Close()
	records, err := newRecords(ctx, db, w.cfg, f.consumer)
	if err != nil {
		return err
	}
	cluster, err := f.kafka.dial(ctx, env)
	if err != nil {
		return err
	}
	defer cluster.Close()
	counts, err := f.count(ctx, cluster, &window{id: id, keep: f.keep, consumer: f.consumer, records: records})
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("the window was not read within %v: -timeout takes longer", f.url.timeout)
		}
		return err
	}
	var recorded int64
	for _, c := range counts {
		recorded += c.Recorded
	}
	if instead := records.instead(); recorded == 0 && instead != "" {
		fmt.Fprintf(env.stderr, "consumer %s has no records of these events, but others have: %s; check -consumer\n",
			plain(f.consumer), instead)
	}
	for _, c := range counts {
		if c.Unread > 0 {
			fmt.Fprintf(env.stderr, "partition %d was read up to offset %d, and %d offsets behind it were not: a producer's transaction is open there\n", c.Partition, c.To, c.Unread)
		}
	}
	return f.print(env.stdout, counts)
}

// count reads the window.
func (f *replayFlags) count(ctx context.Context, cluster *topicwindow.Cluster, w *window) ([]*windowCounts, error) {
	reader, err := cluster.Topic(f.topic)
	if err != nil {
		return nil, err
	}
	w.topicID = reader.TopicID()
	partitions, err := reader.Partitions()
	if err != nil {
		return nil, err
	}
	ranges, err := reader.Windows(ctx, partitions, f.from.Time, f.to.Time, f.offsets)
	if err != nil {
		return nil, err
	}
	var all []*windowCounts
	for _, rg := range ranges {
		counts, err := w.count(ctx, reader, rg)
		if err != nil {
			return nil, err
		}
		all = append(all, counts)
	}
	return all, nil
}

// print shows the counts, and their sum.
func (f *replayFlags) print(to io.Writer, all []*windowCounts) error {
	total := &windowCounts{}
	for _, c := range all {
		total.add(c)
	}
	if f.json {
		return printJSON(to, struct {
			Topic      string          `json:"topic"`
			Consumer   string          `json:"consumer"`
			ID         string          `json:"id"`
			Total      *messageCounts  `json:"total"`
			Partitions []*windowCounts `json:"partitions"`
		}{f.topic, f.consumer, f.id, &total.messageCounts, append([]*windowCounts{}, all...)}, indentedJSON)
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "partition\tfrom\tto\tread\trecorded\tnot recorded\twithout id\ttoo old")
	line := func(c *messageCounts) string {
		return fmt.Sprintf("%d\t%d\t%d\t%d\t%d", c.Read, c.Recorded, c.NotRecorded, c.WithoutID, c.TooOld)
	}
	slices.SortFunc(all, func(a, b *windowCounts) int { return cmp.Compare(a.Partition, b.Partition) })
	for _, c := range all {
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\n", c.Partition, c.From, c.To, line(&c.messageCounts))
	}
	fmt.Fprintf(w, "all\t\t\t%s\n", line(&total.messageCounts))
	return w.Flush()
}
