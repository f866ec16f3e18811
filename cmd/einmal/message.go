package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/internal/topicwindow"
)

var messageShow = command{
	name: "message", args: "TOPIC/PARTITION@OFFSET",
	about: "Show one record of a topic: its time, headers and key; with -value also its value.",
	more: "It reads outside of any group and commits nothing. The user needs the right to READ the topic. Keys and headers can be personal data, and\n" +
		"so can values, which are shown with -value only: mind who looks over your shoulder. What a terminal obeys is shown as an escape; what is\n" +
		"no text, in base64.\n\n" +
		"The exit code is 1 if there is no record at the offset: it was deleted, it is a marker of a transaction, or it was aborted (-uncommitted\n" +
		"shows it).\n\nexample: einmal message -value orders.confirmed/3@4711",
	setup: func(flags *flag.FlagSet) action {
		var f messageFlags
		f.kafka.add(flags)
		flags.BoolVar(&f.value, "value", false, "show the value too")
		flags.BoolVar(&f.json, "json", false, "print JSON, with key, value and headers in base64 where they are no text")
		flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long it may take")
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) != 1 {
				return usagef("name one record as TOPIC/PARTITION@OFFSET, orders.confirmed/3@4711 for example")
			}
			place, err := recordPlace(args[0])
			if err != nil {
				return err
			}
			return f.show(ctx, env, place)
		}
	},
}

type messageFlags struct {
	kafka       kafkaFlags
	value, json bool
	timeout     time.Duration
}

// place is where a record stands.
type place struct {
	topic     string
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s/%d@%d", p.topic, p.partition, p.offset) }

// recordPlace reads TOPIC/PARTITION@OFFSET, and TOPIC[PARTITION]@OFFSET as lines of the log have it.
func recordPlace(text string) (p place, err error) {
	before, offset, ok := strings.Cut(text, "@")
	before = strings.TrimSuffix(strings.Replace(before, "[", "/", 1), "]")
	i := strings.LastIndexByte(before, '/')
	if !ok || i < 1 {
		return p, usagef("%s is no place of a record: want TOPIC/PARTITION@OFFSET, orders.confirmed/3@4711 for example",
			shown(text))
	}
	partition, perr := strconv.ParseInt(before[i+1:], 10, 32)
	at, oerr := strconv.ParseInt(offset, 10, 64)
	if perr != nil || oerr != nil || partition < 0 || at < 0 {
		return p, usagef("%s is no place of a record: partition and offset are numbers, as in orders.confirmed/3@4711",
			shown(text))
	}
	return place{before[:i], int32(partition), at}, nil
}

func (f *messageFlags) show(ctx context.Context, env *environment, at place) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	cluster, err := f.kafka.dial(ctx, env)
	if err != nil {
		return err
	}
	defer cluster.Close()
	rec, err := readRecord(ctx, cluster, at)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("the record was not read within %v: -timeout takes longer", f.timeout)
		}
		return err
	}
	facts := newRecordFacts(rec, f.value)
	if f.json {
		return printJSON(env.stdout, facts, indentedJSON)
	}
	return facts.print(env.stdout)
}

// readRecord reads the record, or says why there is none.
func readRecord(ctx context.Context, cluster *topicwindow.Cluster, at place) (*topicwindow.Record, error) {
	reader, err := cluster.Topic(at.topic)
	if err != nil {
		return nil, err
	}
	rec, err := reader.Record(ctx, at.partition, at.offset)
	if errors.Is(err, topicwindow.ErrUnseen) {
		err = fmt.Errorf("%w (-uncommitted)", err)
	}
	return rec, err
}

// recordFacts is a record in JSON.
type recordFacts struct {
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Timestamp time.Time     `json:"timestamp"`
	Key       *piece        `json:"key"` // null if there is none
	Headers   []headerFacts `json:"headers"`
	Size      int           `json:"value_bytes"`
	Tombstone bool          `json:"tombstone"`       // there is no value
	Value     *piece        `json:"value,omitempty"` // with -value
}

func newRecordFacts(rec *topicwindow.Record, withValue bool) *recordFacts {
	f := &recordFacts{
		Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Timestamp: rec.Timestamp.UTC(),
		Key: optionalPiece(rec.Key), Headers: []headerFacts{}, Size: len(rec.Value), Tombstone: rec.Value == nil,
	}
	for _, h := range rec.Headers {
		f.Headers = append(f.Headers, headerOf(string(h.Key), h.Value))
	}
	if withValue {
		f.Value = optionalPiece(rec.Value)
	}
	return f
}

// print shows the record. Each piece is on one line, in quotes, so that none can look like another.
func (f *recordFacts) print(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d@%d, of %s\n", plain(f.Topic), f.Partition, f.Offset, f.Timestamp.Format(time.RFC3339Nano))
	if f.Key == nil {
		b.WriteString("key: none\n")
	} else {
		fmt.Fprintf(&b, "key: %s\n", f.Key.show())
	}
	for _, h := range f.Headers {
		fmt.Fprintf(&b, "header %s: %s\n", strconv.QuoteToGraphic(h.Name), h.show())
	}
	if len(f.Headers) == 0 {
		b.WriteString("headers: none\n")
	}
	switch {
	case f.Tombstone:
		b.WriteString("value: none, a tombstone\n")
	case f.Value == nil:
		fmt.Fprintf(&b, "value: %d bytes; -value shows it\n", f.Size)
	default:
		fmt.Fprintf(&b, "value: %s\n", f.Value.show())
	}
	_, err := io.WriteString(to, redact.Lines(b.String()))
	return err
}
