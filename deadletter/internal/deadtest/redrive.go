package deadtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

func billing(cfg deadletter.RedriveConfig) *deadletter.RedriveConfig {
	cfg.Filter.Consumer, cfg.PerSecond = "billing/orders", -1
	return &cfg
}

// charge writes an effect named after the key.
func (h Harness[Tx]) charge(ctx context.Context, tx Tx, _ *consumer.Message) error {
	key, _ := dedupstore.KeyFrom(ctx)
	return h.Write(ctx, tx, key.Event)
}

func redrives[Tx any](t *testing.T, h Harness[Tx]) {
	some(t, h) // of which one is of another consumer
	report, err := deadletter.Redrive(t.Context(), h.Store, h.Table, h.charge,
		billing(deadletter.RedriveConfig{DryRun: true}))
	if want := (deadletter.Report{Found: 3}); err != nil || report != want || h.effects() != 0 || h.dead() != 4 {
		t.Errorf("dry run: %+v, %v", report, err)
	}
	report, err = deadletter.Redrive(t.Context(), h.Store, h.Table, h.charge, billing(deadletter.RedriveConfig{Limit: 2}))
	if want := (deadletter.Report{Found: 2, Redriven: 2}); err != nil || report != want || h.effects() != 2 ||
		h.dead() != 2 {
		t.Errorf("two: %+v, %v", report, err)
	}
	var message consumer.Message
	report, err = deadletter.Redrive(t.Context(), h.Store, h.Table,
		func(ctx context.Context, tx Tx, msg *consumer.Message) error {
			message = *msg
			if from, ok := consumer.MessageFrom(ctx); !ok || from != msg {
				t.Error("MessageFrom does not find the message")
			}
			return h.charge(ctx, tx, msg)
		}, billing(deadletter.RedriveConfig{}))
	if want := (deadletter.Report{Found: 1, Redriven: 1}); err != nil || report != want || h.effects() != 3 ||
		h.dead() != 1 {
		t.Errorf("the last: %+v, %v", report, err)
	}
	if message.EventID != event(4) || message.Offset != 4 || message.Attempt != 1 ||
		message.TopicID != (consumer.TopicID{1, 2, 3}) || string(message.Key) != "k\x00\xff" {
		t.Errorf("the handler got %+v", message)
	}
	if n := h.Count("select count(*) from processed_event"); n != 4 {
		t.Errorf("%d events are recorded, want 4", n)
	}
	// The record is the effect's now.
	if ran, err := h.Store.Once(t.Context(), record(4).DedupKey(),
		func(ctx context.Context, tx Tx) error { return h.Write(ctx, tx, "again") }); ran || err != nil {
		t.Errorf("a redelivery: %v, %v", ran, err)
	}
}

// One that fails, one that panics, one that cannot be read, one without its bytes, and one that is right.
func redriveFails[Tx any](t *testing.T, h Harness[Tx]) {
	large := record(4)
	large.Value, large.Size = make([]byte, 5000), 5000
	ids := h.write(t, h.Limited(4000, true), record(0), record(1), record(2), record(3), large, record(5))
	h.Run("update dead_message set headers = '7' where kafka_offset = 2")
	h.Run("update dead_message set size = 0 where kafka_offset = 5")
	var each []int64
	handler := func(ctx context.Context, tx Tx, msg *consumer.Message) error {
		if err := h.charge(ctx, tx, msg); err != nil {
			return err
		}
		switch msg.Offset {
		case 0:
			return consumer.Permanent(errors.New("no such account"))
		case 1:
			panic("boom")
		case 3:
			return errors.Join(h.Write(ctx, tx, "more"), errors.New(`refused "no such", password=hunter2`))
		}
		return nil
	}
	for round := 1; round <= 2; round++ {
		each = nil
		report, err := deadletter.Redrive(t.Context(), h.Store, h.Table, handler, billing(deadletter.RedriveConfig{
			Each: func(rec *deadletter.Record, err error) {
				if (err == nil) != (rec.Offset == 5) {
					t.Errorf("%d: %v", rec.Offset, err)
				}
				each = append(each, rec.ID)
			},
		}))
		want := deadletter.Report{Found: 6, Failed: 5, Redriven: 1}
		if round == 2 {
			want = deadletter.Report{Found: 5, Failed: 5}
		}
		if report != want || err != nil || len(each) != want.Found {
			t.Errorf("round %d: %+v, %v", round, report, err)
		}
	}
	if h.effects() != 1 || h.dead() != 5 {
		t.Errorf("%d effects, %d dead letters", h.effects(), h.dead())
	}
	for id, says := range map[int64]string{ids[0]: "no such account", ids[1]: "panic: boom", ids[2]: "cannot be read",
		ids[3]: "password=***", ids[4]: "too large to be kept"} {
		list, err := h.Table.List(t.Context(), deadletter.Filter{IDs: []int64{id}}, 0, 1)
		if err != nil || list[0].Redrives != 2 || !strings.Contains(list[0].RedriveError, says) {
			t.Errorf("%+v, %v, want %q", list[0], err, says)
		}
	}
	report, err := deadletter.Redrive(t.Context(), h.Store, h.Table, handler,
		billing(deadletter.RedriveConfig{Failures: 2}))
	if want := (deadletter.Report{Found: 2, Failed: 2}); report != want || err != nil {
		t.Errorf("two failures: %+v, %v", report, err)
	}
	// The event is not to blame for what its database says.
	report, err = deadletter.Redrive(t.Context(), h.Store, h.Table,
		func(context.Context, Tx, *consumer.Message) error { return dedupstore.ErrUnavailable },
		billing(deadletter.RedriveConfig{}))
	if want := (deadletter.Report{Found: 1}); report != want || !errors.Is(err, dedupstore.ErrUnavailable) {
		t.Errorf("no database: %+v, %v", report, err)
	}
}

// Two operators redrive the same dead letters.
func redriveByTwo[Tx any](t *testing.T, h Harness[Tx]) {
	const all = 50
	recs := make([]*deadletter.Record, all)
	for i := range recs {
		recs[i] = record(int64(i))
		recs[i].Event += string(rune('A' + i/26))
	}
	h.write(t, h.Table, recs...)
	var operators sync.WaitGroup
	var redriven atomic.Int64
	for range 3 {
		operators.Go(func() {
			report, err := deadletter.Redrive(t.Context(), h.Store, h.Table, h.charge, billing(deadletter.RedriveConfig{}))
			if err != nil || report.Failed != 0 || report.Redriven+report.Gone != report.Found {
				t.Errorf("%+v, %v", report, err)
			}
			redriven.Add(int64(report.Redriven))
		})
	}
	operators.Wait()
	if n := h.Count("select count(distinct name) from effect"); n != all || h.effects() != all || h.dead() != 0 ||
		redriven.Load() != all {
		t.Errorf("%d effects of %d events, %d dead letters, %d redriven; want %d once each", h.effects(), n, h.dead(),
			redriven.Load(), all)
	}
}

// Dead letters that died in another order than the one in which they stood are redriven in the latter, whatever their
// number.
func redriveInOrder[Tx any](t *testing.T, h Harness[Tx]) {
	const each, partitions = 110, 3 // more than a page of each
	var recs []*deadletter.Record
	for i := range each * partitions {
		rec := record(int64(i))
		rec.Event, rec.Partition, rec.Offset = fmt.Sprint("event", i), int32(i%partitions), int64(i)
		if rec.Partition > 0 { // those of the first one died in their order
			rec.Offset = int64(7 * i % (each * partitions))
		}
		recs = append(recs, rec)
	}
	h.write(t, h.Table, recs...)
	last, n := map[int32]int64{}, 0
	report, err := deadletter.Redrive(t.Context(), h.Store, h.Table,
		func(_ context.Context, _ Tx, msg *consumer.Message) error {
			if before, ok := last[msg.Partition]; ok && msg.Offset < before {
				t.Errorf("%d[%d] comes behind %d", msg.Offset, msg.Partition, before)
			}
			last[msg.Partition] = msg.Offset
			return nil
		}, billing(deadletter.RedriveConfig{Limit: each * 2, Each: func(*deadletter.Record, error) {
			if n++; n == each { // somebody else takes one that was seen
				h.Run("delete from dead_message where id = (select max(id) from dead_message)")
			}
		}}))
	if want := (deadletter.Report{Found: 2 * each, Redriven: 2 * each}); err != nil || report != want ||
		h.dead() != each-1 {
		t.Errorf("%+v, %v, %d are left", report, err, h.dead())
	}
	report, err = deadletter.Redrive(t.Context(), h.Store, h.Table,
		func(context.Context, Tx, *consumer.Message) error { return nil }, billing(deadletter.RedriveConfig{}))
	if want := (deadletter.Report{Found: each - 1, Redriven: each - 1}); err != nil || report != want || h.dead() != 0 {
		t.Errorf("%+v, %v, %d are left", report, err, h.dead())
	}
}
