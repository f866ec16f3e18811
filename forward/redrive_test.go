package forward_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/outbox"
)

func unhurried(cfg deadletter.RedriveConfig) *forward.RedriveConfig {
	cfg.PerSecond = -1
	return &forward.RedriveConfig{RedriveConfig: cfg}
}

// In one transaction the dead letter and the records go, and the event comes.
func TestRedrive(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
		for i := range int64(3) {
			must(t, k.bury(t.Context(), deadOf(message(i), deadletter.KindGaveUp)))
		}
		other := deadOf(message(1), deadletter.KindGaveUp)
		other.Consumer = "mail"
		must(t, k.bury(t.Context(), other))
		handedOn := dedupstore.Key{Consumer: "billing/orders", Event: id(1)}.HandOn("1m")
		_, err := k.record(t.Context(), handedOn)
		must(t, err)
		f.want(4, 5, 0)

		report, err := k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{DryRun: true, Failures: 1}))
		if want := (deadletter.Report{Found: 4, Redriven: 4}); err != nil || report != want {
			t.Errorf("dry run: %+v, %v", report, err)
		}
		f.want(4, 5, 0)

		report, err = k.redrive(t.Context(),
			unhurried(deadletter.RedriveConfig{Filter: deadletter.Filter{Consumer: "billing/orders"}, Limit: 2}))
		if want := (deadletter.Report{Found: 2, Redriven: 2}); err != nil || report != want {
			t.Errorf("two: %+v, %v", report, err)
		}
		f.want(2, 2, 2)
		partition := int32(3) // that of the message
		for i, e := range f.events() {
			want := outbox.Event{
				ID: id(int64(i)), Topic: "orders", Partition: &partition, Key: []byte("k\x00\xff"), Value: []byte{},
				Headers: []outbox.Header{{Key: "raw", Value: []byte{0, 1, 0xff}}, {Key: "none"}, {Key: "empty", Value: []byte{}},
					{Key: "raw", Value: []byte("again")}},
			}
			if !reflect.DeepEqual(e, want) {
				t.Errorf("%+v, want %+v", e, want)
			}
		}
		for _, key := range []dedupstore.Key{{Consumer: "billing/orders", Event: id(1)}, handedOn} {
			if ran, err := k.record(t.Context(), key); err != nil || !ran {
				t.Errorf("%v: %v, %v: its record is still there", key, ran, err)
			}
		}
		report, err = k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{}))
		if want := (deadletter.Report{Found: 2, Redriven: 2}); err != nil || report != want {
			t.Errorf("the rest: %+v, %v", report, err)
		}
		if report, err := k.redrive(t.Context(), nil); err != nil || report != (deadletter.Report{}) {
			t.Errorf("once more: %+v, %v", report, err)
		}
	})
}

// Two operators publish each dead letter once.
func TestRedriveByTwo(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
		const n = 40
		for i := range int64(n) {
			must(t, k.bury(t.Context(), deadOf(message(i), deadletter.KindGaveUp)))
		}
		var both sync.WaitGroup
		reports, errs := make([]deadletter.Report, 3), make([]error, 3)
		for i := range reports {
			both.Go(func() {
				reports[i], errs[i] = k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{DryRun: i == 2}))
			})
		}
		both.Wait()
		must(t, errors.Join(errs...))
		rest, err := k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{})) // what the dry run had in its hands
		must(t, err)
		if sum := reports[0].Redriven + reports[1].Redriven + rest.Redriven; sum != n {
			t.Errorf("%+v, %+v: %d were published, want %d", reports, rest, sum, n)
		}
		f.want(0, 0, n)
		if distinct := f.count("select count(distinct event_id) from outbox_event"); distinct != n {
			t.Errorf("%d distinct events, want %d", distinct, n)
		}
	})
}

// A dead letter that somebody else has in hand is neither published nor failed, in a dry run as in any other.
func TestRedriveBesideSomebodyElse(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
		for i := range int64(3) {
			must(t, k.bury(t.Context(), deadOf(message(i), deadletter.KindGaveUp)))
		}
		tx, err := f.pool.Begin(t.Context())
		must(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "select from dead_message where id = (select min(id) from dead_message) for update")
		must(t, err)
		for _, dry := range []bool{true, false} {
			report, err := k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{DryRun: dry}))
			must(t, err)
			if report.Redriven != 2 || report.Failed != 0 {
				t.Errorf("dry run %v: %+v, want 2 that are published and none that failed", dry, report)
			}
		}
		f.want(1, 1, 2)
	})
}

// What its consumer would not know by its id stays, and the row says why.
func TestWhatIsPublishable(t *testing.T) {
	t.Parallel()
	json, cloud := consumer.JSONID("meta", "id"), consumer.CloudEventID
	composite := consumer.CompositeID(consumer.HeaderID("source"), consumer.HeaderID("event-id"))
	h := func(pairs ...string) (headers []consumer.Header) {
		for i := 0; i < len(pairs); i += 2 {
			headers = append(headers, consumer.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return headers
	}
	valued := []byte(`{"meta": {"id": "j1"}}`)
	for name, test := range map[string]struct {
		msg  consumer.Message // EventID is the id under which it died; "" is its place
		kind deadletter.Kind
		from func(*consumer.Message) (string, error)
		says string // "" if it can be published
		id   string // of the event
	}{
		"header": {consumer.Message{EventID: "e1", Headers: h("event-id", "e1")}, deadletter.KindGaveUp, nil,
			"", "e1"},
		"another header": {consumer.Message{EventID: "e1", Headers: h("id", "e1")}, deadletter.KindGaveUp,
			consumer.HeaderID("id"), "", "e1"},
		"header beside": {consumer.Message{EventID: "e1", Headers: h("id", "e1", "event-id", "x")},
			deadletter.KindGaveUp, consumer.HeaderID("id"), "", "x"},
		"another, not said": {consumer.Message{EventID: "e1", Headers: h("id", "e1", "event-id", "x")},
			deadletter.KindGaveUp, nil, "set EventID", ""},
		"edited header": {consumer.Message{EventID: "e1", Headers: h("event-id", "e2")}, deadletter.KindGaveUp, nil,
			"not the one under which it died", ""},
		"json": {consumer.Message{EventID: "j1", Value: valued}, deadletter.KindGaveUp, json, "", "j1"},
		"json, edited": {consumer.Message{EventID: "j1", Value: []byte("{}")}, deadletter.KindGaveUp, json,
			"it is missing", ""},
		"cloud event": {consumer.Message{EventID: "/s c1",
			Headers: h("ce_id", "c1", "ce_source", "/s", "ce_specversion", "1.0", "ce_type", "t")}, deadletter.KindGaveUp, cloud,
			"", "/s c1"},
		"composite": {consumer.Message{EventID: "s e1", Headers: h("event-id", "e1", "source", "s")},
			deadletter.KindGaveUp, composite, "", "e1"},
		"key": {consumer.Message{EventID: "k1", Key: []byte("k1")}, deadletter.KindGaveUp,
			consumer.UniqueKeyID, "", "k1"},
		"place":       {consumer.Message{}, deadletter.KindGaveUp, nil, "its id is its place", ""},
		"place, said": {consumer.Message{}, deadletter.KindGaveUp, consumer.OffsetID, "its id is its place", ""},
		"place, with a header": {consumer.Message{Headers: h("event-id", "e1")}, deadletter.KindGaveUp, nil,
			"its id is its place", ""},
		"without an id":       {consumer.Message{}, deadletter.KindNoEventID, nil, "", "place"},
		"an id was edited in": {consumer.Message{Headers: h("event-id", "e1")}, deadletter.KindNoEventID, nil, "", "e1"},
		"without an id in JSON": {consumer.Message{Value: []byte("{}")}, deadletter.KindNoEventID, json, "deadletter.Redrive",
			""},
		"an id that is no text": {consumer.Message{Headers: h("event-id", "\xff")}, deadletter.KindNoEventID, nil,
			"encode binary ids", ""},
		"a nameless header": {consumer.Message{EventID: "e1", Headers: h("event-id", "e1", "", "x")},
			deadletter.KindGaveUp, nil, "has no name", ""},
		"a dead one of a retry": {consumer.Message{EventID: "d1", Headers: h("event-id", "d1", forward.RetryEventHeader,
			"e1")}, deadletter.KindGaveUp, nil, "", "d1"},
		"from a retry topic": {consumer.Message{EventID: "s e1", Headers: h("event-id", "e1", forward.RetryEventHeader,
			"s e1", forward.RetryTopicHeader, "first")}, deadletter.KindGaveUp, nil, "", "e1"},
		"as if from one": {consumer.Message{EventID: "s e1", Headers: h("event-id", "e1", forward.RetryEventHeader,
			"s e1", forward.RetryTopicHeader, "orders")}, deadletter.KindGaveUp, nil, "is not the one under which it died", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			k := drivers["pgx"](f)
			msg := test.msg
			msg.Topic, msg.TopicID, msg.Offset, msg.Consumer = "orders", consumer.TopicID{1}, 7, "billing"
			place := deadletter.Place(&msg)
			if msg.EventID == "" {
				msg.EventID = place
			}
			if test.id == "place" {
				test.id = deadletter.RedrivenID(place)
			}
			must(t, k.bury(t.Context(), deadOf(&msg, test.kind)))
			var told error
			cfg := unhurried(deadletter.RedriveConfig{Each: func(_ *deadletter.Record, err error) { told = err }})
			cfg.EventID = test.from
			for _, cfg.DryRun = range []bool{true, false} {
				report, err := k.redrive(t.Context(), cfg)
				want := deadletter.Report{Found: 1, Redriven: 1}
				if test.says != "" {
					want = deadletter.Report{Found: 1, Failed: 1}
				}
				if err != nil || report != want || (told == nil) != (test.says == "") || told != nil &&
					!strings.Contains(told.Error(), test.says) {
					t.Fatalf("dry run %v: %+v, %v, told %v; want %+v, %q", cfg.DryRun, report, err, told, want, test.says)
				}
			}
			if test.says != "" {
				f.want(1, 1, 0)
				if n := f.count("select count(*) from dead_message where redrives = 1 and redrive_error <> ''"); n != 1 {
					t.Error("the row does not say why")
				}
				return
			}
			f.want(0, 0, 1)
			if e := f.events()[0]; e.ID != test.id || string(e.Value) != string(msg.Value) || string(e.Key) != string(msg.Key) {
				t.Errorf("%+v, want the id %q", e, test.id)
			} else if deadletter.Reserved(e.ID) {
				t.Errorf("no consumer takes the id %q", e.ID)
			}
		})
	}
}

// Kinds whose effect may be there are held, what has no bytes fails, and one that an open transaction holds is not
// waited for.
func TestRedriveHolds(t *testing.T) {
	t.Parallel()
	f := open(t)
	k := drivers["pgx"](f)
	kinds := []deadletter.Kind{deadletter.KindTooOld, deadletter.KindCrashLoop, deadletter.KindGaveUp,
		deadletter.KindGaveUp}
	for i, kind := range kinds {
		must(t, k.bury(t.Context(), deadOf(message(int64(i)), kind)))
	}
	f.exec("update dead_message set left_out = true where kafka_offset = 2")
	tx, err := f.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "select from dead_message where kafka_offset = 3 for update")
	must(t, err)
	report, err := k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{}))
	if want := (deadletter.Report{Found: 2, Held: 2, Failed: 1, Gone: 1}); err != nil || report != want {
		t.Errorf("%+v, %v, want %+v", report, err, want)
	}
	report, err = k.redrive(t.Context(),
		unhurried(deadletter.RedriveConfig{Filter: deadletter.Filter{Kind: deadletter.KindTooOld}}))
	if want := (deadletter.Report{Found: 1, Redriven: 1}); err != nil || report != want {
		t.Errorf("named: %+v, %v, want %+v", report, err, want)
	}
	f.want(3, 3, 1)
}

// One that cannot be published is not overtaken by those of its key that come after it, which stay too and say why;
// what has another key, or none, goes. When it can be published, they follow.
func TestRedriveKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]string{
		"it has another id": `update dead_message set headers = '[{"key": "event-id", "text": "x"}]' where kafka_offset in (1, 7)`,
		"it was left out":   "update dead_message set left_out = true where kafka_offset in (1, 7)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			k := drivers["pgx"](f)
			for i := range int64(9) {
				msg := message(i)
				switch i {
				case 3:
					msg.Key = []byte("another")
				case 4, 7, 8:
					msg.Key = nil
				case 5:
					msg.Partition++
				}
				must(t, k.bury(t.Context(), deadOf(msg, deadletter.KindGaveUp)))
			}
			f.exec(harm)
			for _, dry := range []bool{true, false} {
				var told []string
				report, err := k.redrive(t.Context(),
					unhurried(deadletter.RedriveConfig{DryRun: dry, Each: func(rec *deadletter.Record, err error) {
						if err != nil && strings.Contains(err.Error(), "another dead letter of its key") {
							told = append(told, fmt.Sprint(rec.Offset))
						}
					}}))
				if want := (deadletter.Report{Found: 9, Redriven: 5, Failed: 4}); err != nil || report != want ||
					strings.Join(told, " ") != "2 6" {
					t.Errorf("dry run %v: %+v, %v, behind another: %v", dry, report, err, told)
				}
			}
			report, err := k.redrive(t.Context(),
				unhurried(deadletter.RedriveConfig{Filter: deadletter.Filter{IDs: []int64{int64(f.count("select id from dead_message where kafka_offset = 6"))}}}))
			if want := (deadletter.Report{Found: 1, Redriven: 1}); err != nil || report != want {
				t.Errorf("by its id: %+v, %v", report, err)
			}
		})
	}
}

// A table or a privilege that is missing ends the redrive, and blames no dead letter.
func TestRedriveCannot(t *testing.T) {
	t.Parallel()
	for says, harm := range map[string]string{
		"outbox_event":    "drop table outbox_event",
		"processed_event": "drop table processed_event",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			eachDriver(t, func(t *testing.T, f *fixture, k *kit) {
				must(t, k.bury(t.Context(), deadOf(message(1), deadletter.KindGaveUp)))
				f.exec(harm)
				report, err := k.redrive(t.Context(), unhurried(deadletter.RedriveConfig{}))
				if err == nil || !strings.Contains(err.Error(), says) || report.Failed != 0 ||
					f.count("select count(*) from dead_message where redrives = 0") != 1 {
					t.Errorf("%+v, %v", report, err)
				}
			})
		})
	}
	_, err := forward.Redrive[int](t.Context(), nil, nil, nil, nil)
	for _, want := range []string{"the store is nil", "the table is nil", "the writer of events is nil"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// It keeps its pace.
func TestRedrivePace(t *testing.T) {
	t.Parallel()
	f := open(t)
	k := drivers["pgx"](f)
	for i := range int64(3) {
		must(t, k.bury(t.Context(), deadOf(message(i), deadletter.KindGaveUp)))
	}
	begin := time.Now()
	_, err := k.redrive(t.Context(), &forward.RedriveConfig{RedriveConfig: deadletter.RedriveConfig{PerSecond: 10}})
	if took := time.Since(begin); err != nil || took < 200*time.Millisecond {
		t.Errorf("three at ten a second took %v, %v", took, err)
	}
}
