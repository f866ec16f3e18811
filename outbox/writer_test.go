package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/internal/fuzztest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/schema"
)

// strange are events of which every byte must arrive.
var strange = []outbox.Event{
	{ID: "plain", Topic: "t", Key: []byte("k"), Value: []byte("v"),
		Headers: []outbox.Header{{Key: "b", Value: []byte("1")}, {Key: "a", Value: []byte("2")},
			{Key: "b", Value: []byte("3")}}},
	{ID: `quotes " ' \ {} , NULL`, Topic: "t.a-b_c", Key: []byte{}, Value: []byte{},
		Headers: []outbox.Header{{Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}}},
	{ID: "none", Topic: "T", Partition: new(int32)},
	{ID: "bytes ä\u20ac", Topic: "t", Key: []byte{0, 255, '"', '\\', '{'},
		Value: []byte("\x00\\x\xff{\"a\":\"a\",\"a\":1}")},
	{ID: "null", Topic: "t", Key: []byte("NULL"), Value: []byte("NULL"), Partition: new(int32(math.MaxInt32))},
}

// Every byte comes back, by each driver, through the relay's Database too; what is null and what is empty stays so.
func TestWriteKeepsEveryByte(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			write, db := d.Open(t, f.URL, nil)
			must(t, write(t.Context(), tabletest.Commit, strange...))
			got := stored(t, db, "outbox_event")
			if len(got) != len(strange) {
				t.Fatalf("%d rows, want %d", len(got), len(strange))
			}
			for i, want := range strange {
				if !same(got[i], want) {
					t.Errorf("row %d is %#v, want %#v", i, got[i], want)
				}
			}
		})
	}
}

// stored returns the events in the order of their rows.
func stored(t *testing.T, db outbox.Database, table string) (events []outbox.Event) {
	t.Helper()
	must(t, db.InTx(t.Context(), func(ctx context.Context, tx outbox.Tx) error {
		return tx.Query(ctx, "select event_id, topic, partition_key, partition::bigint, payload, headers from "+table+
			" order by id", nil, func(scan func(...any) error) error {
			var e outbox.Event
			var headers []byte
			var partition *int64
			if err := scan(&e.ID, &e.Topic, &e.Key, &partition, &e.Value, &headers); err != nil {
				return err
			}
			if partition != nil {
				e.Partition = new(int32(*partition))
			}
			var err error
			e.Headers, err = outbox.DecodeHeaders(headers)
			events = append(events, e)
			return err
		})
	}))
	return events
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func same(a, b outbox.Event) bool {
	if (a.Partition == nil) != (b.Partition == nil) || a.Partition != nil && *a.Partition != *b.Partition {
		return false
	}
	return a.ID == b.ID && a.Topic == b.Topic && sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y outbox.Header) bool {
			return x.Key == y.Key &&
				sameBytes(x.Value, y.Value)
		})
}

func TestWriteBelongsToTheTransaction(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			write, _ := d.Open(t, f.URL, nil)
			no := errors.New("no")
			if err := write(t.Context(), func() error { return no }, strange...); !errors.Is(err, no) {
				t.Fatal(err)
			}
			must(t, write(t.Context(), tabletest.Commit)) // no events
			if n := tabletest.Value[int](f, "select count(*) from outbox_event"); n != 0 {
				t.Errorf("%d rows of a transaction that was rolled back", n)
			}
		})
	}
}

// A Write is one statement, and its rows are numbered in the order of its events.
func TestWriteIsOneStatement(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	f.MustExec(`create table seen (n int); create function see() returns trigger language plpgsql as 'begin insert into seen values (1); return null; end';
		create trigger see after insert on outbox_event for each statement execute function see()`)
	write, db := tabletest.Drivers[0].Open(t, f.URL, &outbox.WriterConfig{LockKeys: true})
	var events []outbox.Event
	for i := range 3000 {
		events = append(events, outbox.Event{ID: fmt.Sprint(i), Topic: "t", Key: []byte(fmt.Sprint(i % 7))})
	}
	must(t, write(t.Context(), tabletest.Commit, events...))
	if n := tabletest.Value[int](f, "select count(*) from seen"); n != 1 {
		t.Errorf("%d statements", n)
	}
	for i, e := range stored(t, db, "outbox_event") {
		if e.ID != fmt.Sprint(i) {
			t.Fatalf("row %d is event %s", i, e.ID)
		}
	}
}

func TestDefaultID(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	must(t, write(t.Context(), tabletest.Commit, outbox.Event{Topic: "t"}, outbox.Event{Topic: "t"}))
	got := stored(t, db, "outbox_event")
	version7 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if got[0].ID == got[1].ID || !version7.MatchString(got[0].ID) {
		t.Errorf("ids %q and %q", got[0].ID, got[1].ID)
	}
	if age := tabletest.Value[float64](f,
		`select extract(epoch from clock_timestamp())::float8 - ('x' || substr(replace(event_id, '-', ''), 1, 12))::bit(48)::bigint / 1000.0 from outbox_event limit 1`); age < -5 || age > 60 {
		t.Errorf("the time in the id is %v s ago", age)
	}
}

// Refused events leave nothing behind, and the transaction usable. The error tells what to do, and nothing of the
// event.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	valid := outbox.Event{Topic: "t"}
	many := make([]outbox.Header, outbox.MaxHeaders+1)
	for i := range many {
		many[i].Key = "h"
	}
	for want, e := range map[string]outbox.Event{
		"at most 1000000 are allowed": {Topic: "t",
			Value: append([]byte(secret), make([]byte, outbox.DefaultMaxBytes)...)},
		"at most 1000 are allowed":             {Topic: "t", Headers: many},
		`"" is not the name of a topic`:        {},
		`"a b" is not the name of a topic`:     {Topic: "a b"},
		`"a\x00b" is not the name of a topic`:  {Topic: "a\x00b"},
		`".." is not the name of a topic`:      {Topic: ".."},
		"is not the name of a topic: 1 to 249": {Topic: strings.Repeat("a", 250)},
		"the id has 1025 bytes":                {Topic: "t", ID: strings.Repeat("x", 1025)},
		"the id is not UTF-8 text without NUL": {Topic: "t", ID: secret + "\x00"},
		"the id is not UTF-8":                  {Topic: "t", ID: secret + "\xff"},
		"header 1 has no name":                 {Topic: "t", Headers: []outbox.Header{{Value: []byte(secret)}}},
		"the name of header 1 is not UTF-8":    {Topic: "t", Headers: []outbox.Header{{Key: secret + "\xff"}}},
		"set Event.ID": {Topic: "t",
			Headers: []outbox.Header{{Key: "event-id", Value: []byte(secret)}}},
	} {
		_, _, err := outbox.NewWriter(nil).Statement(t.Context(), []outbox.Event{valid, e}, outbox.TextArrays)
		if !errors.Is(err, outbox.ErrInvalidEvent) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "event 2 of 2") {
			t.Errorf("%v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("it repeats the event: %v", err)
		}
	}
	if _, _, err := outbox.NewWriter(&outbox.WriterConfig{MaxBytes: 2e6}).Statement(t.Context(),
		[]outbox.Event{{Topic: "t", Value: make([]byte, 1.5e6)}}, outbox.TextArrays); err != nil {
		t.Error(err)
	}
}

// The trace context of Write's ctx goes into the headers, unless the event has one.
func TestWriteKeepsTheTrace(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), sc)
	own := []outbox.Header{{Key: "traceparent", Value: []byte("mine")}}
	shared := append(make([]outbox.Header, 0, 10), outbox.Header{Key: "a"})
	must(t, write(ctx, tabletest.Commit, outbox.Event{Topic: "t", Headers: shared},
		outbox.Event{Topic: "t", Headers: own}))
	got := stored(t, db, "outbox_event")
	if h := got[0].Headers; len(h) != 2 || h[1].Key != "traceparent" ||
		!strings.Contains(string(h[1].Value), sc.TraceID().String()) {
		t.Errorf("headers %q", h)
	}
	if h := got[1].Headers; len(h) != 1 || string(h[0].Value) != "mine" {
		t.Errorf("headers %q", h)
	}
	if shared[:2][1].Key != "" {
		t.Error("Write wrote into the caller's slice")
	}
}

// With LockKeys the order of a key's rows is the order of its commits, also where writers begin together.
func TestLockKeys(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			write, _ := d.Open(t, f.URL, &outbox.WriterConfig{LockKeys: true})
			first := make(chan struct{})
			second := make(chan error, 1)
			go func() {
				<-first
				second <- write(t.Context(), tabletest.Commit, outbox.Event{ID: "second", Topic: "t", Key: []byte("k")})
			}()
			must(t, write(t.Context(), func() error {
				close(first)
				eventually(t, "the second writer waits", func() bool {
					return tabletest.Value[int](f, "select count(*) from pg_locks where locktype = 'advisory' and not granted") > 0
				})
				// another key does not wait
				return write(t.Context(), tabletest.Commit, outbox.Event{ID: "other", Topic: "t", Key: []byte("k2")})
			}, outbox.Event{ID: "first", Topic: "t", Key: []byte("k")}))
			must(t, <-second)
			if order := tabletest.Value[string](f,
				"select string_agg(event_id, ' ' order by id) from outbox_event"); order != "first other second" {
				t.Errorf("order %s", order)
			}
		})
	}
}

// Writers of many keys in any order do not deadlock.
func TestLockKeysInOneOrder(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, _ := tabletest.Drivers[0].Open(t, f.URL, &outbox.WriterConfig{LockKeys: true})
	errs := make(chan error)
	for range 4 {
		go func() {
			for range 50 {
				var events []outbox.Event
				for _, k := range rand.Perm(20) {
					events = append(events, outbox.Event{Topic: "t", Key: []byte{byte(k)}})
				}
				if err := write(t.Context(), tabletest.Commit, events...); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestWriteElsewhere(t *testing.T) {
	t.Parallel()
	url := tabletest.Open(t)
	cfg := &schema.Config{Schema: tabletest.Value[string](url, "select current_schema()"),
		Tables: map[string]string{"outbox_event": `my "events"`}}
	f := &tabletest.Fixture{Pool: url.Pool, URL: url.URL, T: t}
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := f.Exec(ctx, sql)
		return err
	}, cfg, schema.Outbox))
	write, db := tabletest.Drivers[0].Open(t, f.URL, &outbox.WriterConfig{Tables: cfg})
	must(t, write(t.Context(), tabletest.Commit, outbox.Event{Topic: "t"}))
	if got := stored(t, db, `"my ""events"""`); len(got) != 1 {
		t.Errorf("%d rows", len(got))
	}
}

// A key's events are in one bucket; those without a key are in all.
func TestBuckets(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, _ := tabletest.Drivers[0].Open(t, f.URL, nil)
	var events []outbox.Event
	for i := range 4000 {
		e := outbox.Event{ID: "keyed", Topic: "t", Key: []byte(fmt.Sprint(i % 2000))}
		if i%4 == 0 {
			e = outbox.Event{ID: "keyless", Topic: "t"}
		}
		events = append(events, e)
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	must(t, write(t.Context(), tabletest.Commit, events...))
	if n := tabletest.Value[int](f,
		"select max(n) from (select count(distinct bucket) n from outbox_event where event_id = 'keyed' group by partition_key) x"); n != 1 {
		t.Errorf("a key is in %d buckets", n)
	}
	for _, id := range []string{"keyed", "keyless"} {
		if n := tabletest.Value[int](f,
			"select count(distinct bucket) from outbox_event where event_id = $1 and bucket between 0 and 63",
			id); n != outboxsql.Buckets {
			t.Errorf("%s events are in %d buckets", id, n)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add([]byte{1, 1, 'a', 0})
	f.Add(outbox.EncodeHeaders(strange[0].Headers))
	f.Fuzz(func(t *testing.T, b []byte) {
		var headers []outbox.Header
		var err error
		fuzztest.Bounded(t, len(b), 1<<20, func() { headers, err = outbox.DecodeHeaders(b) })
		if err != nil {
			return
		}
		again, err := outbox.DecodeHeaders(outbox.EncodeHeaders(headers))
		if err != nil || !same(outbox.Event{Headers: headers}, outbox.Event{Headers: again}) {
			t.Errorf("%q became %q, %v", headers, again, err)
		}
	})
}
