package consumer_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// A replay ends with its context: the message in work is cancelled and is not counted, and can be replayed from there.
func TestReplayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store := memstore.New()
	cfg := config(b, group, topic,
		middleware.Dedup(store, func(ctx context.Context, _ *memstore.Tx, msg *consumer.Message) error {
			if msg.Offset < 2 {
				return nil
			}
			cancel()
			<-ctx.Done()
			return nil // a handler that swallows it
		}, nil))
	cfg.Logger = logger(t)
	report, err := consumer.Replay(ctx, cfg, whole(topic))
	if !errors.Is(err, context.Canceled) || report.Read != 2 || report.Next[0] != (consumer.OffsetRange{From: 2, To: 5}) {
		t.Errorf("%v, %+v", err, report)
	}
	if store.Recorded(dedupstore.Key{Consumer: group + "/" + topic, Event: topic + "-0-2"}) {
		t.Error("what was cancelled is recorded")
	}
}

// What a chain hands on has not taken effect. What it had handed on before is not handed on again: nothing brings it
// back, so it has failed.
func TestReplayOfWhatIsHandedOn(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 3)...)
	store, sent := memstore.New(), 0
	cfg := config(b, group, topic, nil)
	cfg.Topics = map[string]consumer.Topic{topic: {
		Middleware: []consumer.Middleware{
			middleware.HandOn(store, "1m", func(context.Context, *memstore.Tx, *consumer.Message) error { sent++; return nil },
				nil),
			middleware.Retry(1, nil),
		},
		Handler: middleware.Dedup(store, func(_ context.Context, _ *memstore.Tx, msg *consumer.Message) error {
			if msg.Offset == 1 {
				return errors.New("never")
			}
			return nil
		}, nil),
	}}
	if got := replay(t, cfg, whole(topic)).ReplayCounts; got != (consumer.ReplayCounts{Read: 3, Processed: 2,
		HandedOn: 1}) || sent != 1 {
		t.Errorf("%+v, %d sent", got, sent)
	}
	rc := whole(topic)
	report, err := consumer.Replay(t.Context(), cfg, rc)
	if stopped := (*consumer.StopError)(nil); !errors.As(err, &stopped) || stopped.Offset != 1 || sent != 1 ||
		!strings.Contains(err.Error(), "never") {
		t.Errorf("%+v, %v, %d sent", report, err, sent)
	}
	rc.OnFailure = consumer.CountFailures
	if got := replay(t, cfg, rc).ReplayCounts; got != (consumer.ReplayCounts{Read: 3, Duplicates: 2, Failed: 1}) ||
		sent != 1 {
		t.Errorf("%+v, %d sent", got, sent)
	}
}

// A dry run says which offsets a replay would read, and has no effect; a replay tells how far it is.
func TestReplayDryRunAndProgress(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 2, 10)
	pool := effects(t)
	cfg := config(b, group, topic, middleware.Dedup(pgxstore.New(pool, nil), effect, nil))
	rc := whole(topic)
	rc.DryRun, rc.All = true, false
	rc.Offsets = map[int32]consumer.OffsetRange{0: {From: 4}, 1: {From: 2, To: 5}}
	report := replay(t, cfg, rc)
	if want := (map[int32]consumer.OffsetRange{0: {From: 4, To: 10}, 1: {From: 2, To: 5}}); !maps.Equal(report.Next,
		want) || report.ReplayCounts != (consumer.ReplayCounts{}) {
		t.Errorf("%+v, want %v", report, want)
	}
	if n := rows(t, pool, "effect"); n != 0 {
		t.Errorf("%d effects of a dry run", n)
	}
	var told atomic.Int64
	rc.DryRun, rc.Progress = false, func(c consumer.ReplayCounts) { told.Store(max(told.Load(), c.Read)) }
	if got := replay(t, cfg, rc); got.Read != 9 || got.Processed != 9 || told.Load() != 9 {
		t.Errorf("%+v, told %d", got, told.Load())
	}
}
