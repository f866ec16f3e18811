package forward_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/outbox"
)

var errBase = errors.New("no such account, password=hunter2")

// failing is a handler that gives up.
func failing(mw consumer.Middleware, err error) consumer.Handler {
	return mw(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return err }))
}

// A dead letter is an event of the outbox, in the transaction of the record.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
		spoilt := failing(k.topic("orders.dead", nil, errBase), consumer.Permanent(errBase))
		if err := spoilt.Handle(t.Context(), message(1)); err == nil {
			t.Error("a transaction that is rolled back is taken for done")
		}
		f.want(0, 0, 0)

		h := failing(k.topic("orders.dead", nil, nil), consumer.Permanent(errBase))
		for range 2 { // the second time it is a duplicate
			must(t, h.Handle(t.Context(), message(1)))
		}
		f.want(0, 1, 1)
		e, msg := f.events()[0], message(1)
		if e.Topic != "orders.dead" || !slices.Equal(e.Key, msg.Key) || e.Value == nil || len(e.Value) != 0 ||
			e.ID == id(1) || len(e.ID) != 36 {
			t.Errorf("%+v", e)
		}
		want := []outbox.Header{
			{Key: forward.DeadEventIDHeader, Value: []byte("older")}, {Key: "raw", Value: []byte{0, 1, 0xff}}, {Key: "none"},
			{Key: "empty", Value: []byte{}},
			{Key: forward.DeadEventIDHeader, Value: []byte(id(1))}, {Key: "raw", Value: []byte("again")},
		}
		if got := e.Headers[:min(len(want), len(e.Headers))]; !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		for name, value := range map[string]string{
			forward.DeadConsumerHeader: "billing/orders", forward.DeadEventHeader: id(1), forward.DeadGroupHeader: "billing",
			forward.DeadTopicHeader:   "orders",
			forward.DeadTopicIDHeader: msg.TopicID.String(), forward.DeadPartitionHeader: "3", forward.DeadOffsetHeader: "1",
			forward.DeadTimestampHeader: "2026-11-29T12:00:00.123Z",
			forward.DeadKindHeader:      "permanent", forward.DeadErrorHeader: "no such account, password=***",
			forward.DeadAttemptsHeader:     "5",
			forward.DeadFirstAttemptHeader: "2026-11-29T12:00:01Z", forward.DeadSizeHeader: "", forward.DeadHeadersHeader: "",
		} {
			if got := header(e, name); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
		if header(e, forward.DeadErrorTypeHeader) == "" || header(e, forward.DeadVersionHeader) == "" {
			t.Errorf("%q", e.Headers)
		}
	})
}

// events keeps what is written, as the outbox would take it.
type events struct {
	max     int
	written []outbox.Event
}

func (e *events) Write(ctx context.Context, _ int, list ...outbox.Event) error {
	if _, _, err := outbox.NewWriter(&outbox.WriterConfig{MaxBytes: e.max}).Statement(ctx, list,
		outbox.TextArrays); err != nil {
		return err
	}
	e.written = append(e.written, list...)
	return nil
}

// Headers that no event can have are kept all the same; so is what a message can be at its worst.
func TestDeadLettersOfOddMessages(t *testing.T) {
	t.Parallel()
	many := make([]consumer.Header, outbox.MaxHeaders)
	for i := range many {
		many[i] = consumer.Header{Key: "h"}
	}
	for name, headers := range map[string][]consumer.Header{
		"no name": {{Key: "", Value: []byte("v")}, {Key: "event-id", Value: []byte("e")}}, "binary name": {{Key: "\xff"}},
		"too many": many,
	} {
		e := &events{}
		rec := deadOf(&consumer.Message{Topic: "orders", Headers: headers, EventID: "e", Consumer: "c"},
			deadletter.KindPermanent)
		rec.Error = strings.Repeat("é", deadletter.MaxText)
		must(t, forward.DeadLetters[int](e, "dead", nil).Write(t.Context(), 0, rec))
		got, err := deadletter.DecodeHeaders(header(e.written[0], forward.DeadHeadersHeader))
		if err != nil || !reflect.DeepEqual(got, headers) ||
			len(header(e.written[0], forward.DeadErrorHeader)) > deadletter.MaxText {
			t.Errorf("%s: %v, %d headers came back of %d", name, err, len(got), len(headers))
		}
	}
}

func TestDeadLettersTooLarge(t *testing.T) {
	t.Parallel()
	rec := deadOf(&consumer.Message{Topic: "orders", Key: []byte("key"), Value: make([]byte, 4997), EventID: "e",
		Consumer: "c"}, deadletter.KindPermanent)
	e := &events{max: 4000}
	err := forward.DeadLetters[int](e, "dead", nil).Write(t.Context(), 0, rec)
	if !errors.Is(err, deadletter.ErrTooLarge) || dedupstore.ClassOf(err) != dedupstore.Misconfigured ||
		!strings.Contains(err.Error(), "LeaveOut") || len(e.written) > 0 {
		t.Errorf("%v", err)
	}
	must(t, forward.DeadLetters[int](e, "dead", &forward.DeadLettersConfig{LeaveOut: true}).Write(t.Context(), 0, rec))
	if got := e.written[0]; got.Value != nil || string(got.Key) != "key" ||
		header(got, forward.DeadSizeHeader) != "5000" || header(got, forward.DeadOffsetHeader) != "0" {
		t.Errorf("%+v", got)
	}
	rec.Key = make([]byte, 4001)
	must(t, forward.DeadLetters[int](e, "dead", &forward.DeadLettersConfig{LeaveOut: true}).Write(t.Context(), 0, rec))
	if got := e.written[1]; got.Key != nil {
		t.Errorf("a key that is too large: %+v", got)
	}
}

func TestDeadLettersInvalid(t *testing.T) {
	t.Parallel()
	for says, w := range map[string]deadletter.Writer[int]{
		"the writer of events is nil": forward.DeadLetters[int](nil, "dead", nil),
		"not the name of a topic":     forward.DeadLetters[int](&events{}, "no topic", nil),
	} {
		checker, _ := w.(dedupstore.Checker)
		for what, err := range map[string]error{"Check": checker.Check(t.Context()),
			"Write": w.Write(t.Context(), 0, &deadletter.Record{})} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", what, err, says)
			}
		}
	}
	err := forward.DeadLetters[int](&events{}, "orders.dead", nil).Write(t.Context(), 0,
		&deadletter.Record{Topic: "orders.dead"})
	if err == nil || !strings.Contains(err.Error(), "name another topic") ||
		dedupstore.ClassOf(err) != dedupstore.Misconfigured {
		t.Errorf("a dead letter of the topic of dead letters: %v", err)
	}
}

// That the outbox is not there is not the message's fault.
func TestDeadLettersWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
		f.exec("drop table outbox_event")
		err := failing(k.topic("orders.dead", nil, nil), consumer.Permanent(errBase)).Handle(t.Context(), message(1))
		if _, again := consumer.Delay(err); !again || dedupstore.ClassOf(err) == dedupstore.Permanent ||
			f.count("select count(*) from processed_event") != 0 {
			t.Errorf("%v: want that it stays and is tried again", err)
		}
	})
}

// A consumer whose dead letters have nowhere to go does not start; the check leaves nothing behind.
func TestDeadLettersAreCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
		c, err := consumer.New(consumer.Config{
			Brokers: []string{"b:1"}, Group: "g", Middleware: []consumer.Middleware{k.checked("orders.dead")},
			Topics: map[string]consumer.Topic{"orders": {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })}},
		})
		must(t, err)
		must(t, c.Check(t.Context()))
		f.want(0, 0, 0)
		f.exec("drop table outbox_event")
		err = c.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), "outbox_event") ||
			!strings.Contains(err.Error(), "einmal schema print -db postgres outbox") ||
			dedupstore.ClassOf(err) != dedupstore.Misconfigured {
			t.Errorf("without an outbox: %v", err)
		}
	})
}

// failingWriter is a writer whose outbox fails.
type failingWriter struct{ err error }

func (f failingWriter) Write(context.Context, int, ...outbox.Event) error { return f.err }

// That a trigger swallows events, or that the database is away, is no message's fault.
func TestDeadLettersOfAnOutboxThatFails(t *testing.T) {
	t.Parallel()
	rec := deadOf(&consumer.Message{Topic: "orders", EventID: "e", Consumer: "c"}, deadletter.KindPermanent)
	for _, c := range []struct {
		err  error
		want dedupstore.Class
	}{
		{fmt.Errorf("write: %w", outbox.ErrSwallowed), dedupstore.Misconfigured},
		{&pgconn.PgError{Code: "42P01"}, dedupstore.Misconfigured},
		{&pgconn.PgError{Code: "57P01"}, dedupstore.Unavailable},
		{errors.New("something else"), dedupstore.Unclassified},
	} {
		if err := forward.DeadLetters[int](failingWriter{c.err}, "dead", nil).Write(t.Context(), 0, rec); !errors.Is(err,
			c.err) || dedupstore.ClassOf(err) != c.want {
			t.Errorf("%v: %v, class %v, want %v", c.err, err, dedupstore.ClassOf(err), c.want)
		}
	}
}
