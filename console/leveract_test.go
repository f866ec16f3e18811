package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// The levers of a consumer that runs: pause and resume, a message tried now, a window replayed; and what is refused.
func TestLevers(t *testing.T) {
	t.Parallel()
	broker := serverstest.InProcess(t)
	topic, group := broker.Topic(t, 1), serverstest.Group(t)
	var handled atomic.Int64
	var healed atomic.Bool
	store := memstore.New()
	cfg := consumer.Config{
		Brokers: broker.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{topic: {Handler: middleware.Dedup(store,
			func(context.Context, *memstore.Tx, *consumer.Message) error {
				if !healed.Load() {
					return consumer.RetryAfter(time.Hour, errors.New("not yet"))
				}
				handled.Add(1)
				return nil
			}, nil)}},
	}
	run, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	b, c := serving(t, Config{Authorize: allowAll, Timeout: 30 * time.Second, Consumers: []Consumer{{
		Name: "billing", Levers: run,
		Replay: func(ctx context.Context, rc consumer.ReplayConfig) (*consumer.ReplayReport, error) {
			rc.Keep = consumer.KeptForever
			return consumer.Replay(ctx, cfg, rc)
		},
	}}})
	t.Cleanup(c.jobs.end)
	produce := func(id string) {
		broker.Produce(t, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("v"),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}}})
	}
	with := func(pairs ...string) url.Values {
		form := url.Values{"topic": {topic}, "reason": {"the bank is away"}}
		for i := 0; i < len(pairs); i += 2 {
			form.Set(pairs[i], pairs[i+1])
		}
		return form
	}
	sent := func(verb string, form url.Values, code int, says string) {
		t.Helper()
		if w := b.send(verb, form); w.Code != code || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s %v: %d, want %d and %q\n%s", verb, form, w.Code, code, says, w.Body)
		}
	}

	produce("e1")
	b.until("levers", "try now")
	sent("try", with("partition", "0", "offset", "7"), http.StatusConflict, "not fetched yet")
	sent("try", with("partition", "0"), http.StatusBadRequest, "an offset")
	healed.Store(true)
	b.has(b.get("do/try?partition=0&offset=0&topic="+topic, 200), "counts as any other")
	sent("try", with("partition", "0", "offset", "0"), http.StatusSeeOther, "")
	waitFor(t, "it is tried", func() bool { return handled.Load() == 1 })

	b.has(b.get("do/pause?topic="+topic, 200), "pause them in their own consoles", "<select")
	sent("pause", with("for", "tomorrow"), http.StatusBadRequest, "is no duration")
	sent("pause", with("partition", "5", "for", forGood), http.StatusConflict, "has no partition 5")
	sent("pause", url.Values{"topic": {"other"}, "reason": {"because"}}, http.StatusBadRequest, "no topic")
	sent("resume", with(), http.StatusConflict, "nothing to resume")
	sent("pause", with("for", "1h"), http.StatusSeeOther, "")
	b.has(b.get("levers", 200), "is paused for", "the bank is away", "192.0.2.1", "Resume it")
	produce("e2")
	waitFor(t, "the lag is told", func() bool { p := run.Status().Partitions; return len(p) == 1 && p[0].Lag == 1 })
	if n := handled.Load(); n != 1 {
		t.Errorf("%d were handled", n)
	}
	b.has(b.get("do/resume?topic="+topic, 200), "It was paused by")
	sent("resume", with(), http.StatusSeeOther, "")
	waitFor(t, "it is handled", func() bool { return handled.Load() == 2 })

	sent("replay", with(), http.StatusBadRequest, "Name a window")
	sent("replay", with("from", "1h", "to", "2h"), http.StatusBadRequest, "ends before it begins")
	sent("replay", with("from", "2020-01-01", "to", "2020-01-02"), http.StatusConflict, "nothing to replay")
	b.has(b.get("do/replay?all=1&topic="+topic, 200), "At most 2 messages in 1 partition", "offsets 0 to 1")
	b.has(b.until(b.begin("replay", with("from", "1h", "per_second", "1000")), "It is done"),
		"0 took effect now, 2 had taken effect before")
	if n := handled.Load(); n != 2 {
		t.Errorf("%d were handled", n)
	}
	readonly, _ := serving(t, Config{Consumers: []Consumer{{Name: "billing", Levers: run}}})
	if w := readonly.send("pause", with("for", "1h")); w.Code != http.StatusForbidden {
		t.Errorf("read-only: %d", w.Code)
	}
	readonly.hasNot(readonly.get("levers", 200), "do/")
	if p := run.Status().Pauses; len(p) != 0 {
		t.Errorf("%+v", p)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
