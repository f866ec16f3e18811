package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// warnings collects what is logged at level Warn, with the topic.
type warnings struct {
	slog.Handler
	mu   sync.Mutex
	text []string
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w *warnings) WithGroup(string) slog.Handler            { return w }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Level == slog.LevelWarn {
		w.text = append(w.text, r.Message)
	}
	return nil
}

func (w *warnings) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.text, "\n")
}

// setTopic changes a topic's configuration.
func setTopic(t *testing.T, b *serverstest.Broker, topic string, settings map[string]string) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(b.Addrs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range settings {
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet,
			Value: &value}
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker knows of it", func() bool { // in a real cluster it comes from the controller
		told, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic}},
			sarama.DescribeConfigsOptions{})
		if err != nil || len(told) != 1 {
			return false
		}
		known := 0
		for _, e := range told[0].Configs {
			if want, ok := settings[e.Name]; ok && e.Value == want {
				known++
			}
		}
		return known == len(settings)
	})
}

func withWindow(w time.Duration) consumer.Handler {
	return middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil },
		&middleware.DedupConfig{Window: w})
}

// warned runs a Consumer until it is ready, and returns its warnings.
func warned(t *testing.T, cfg consumer.Config) string {
	t.Helper()
	var w warnings
	cfg.Logger = slog.New(&w)
	m := start(t, cfg)
	eventually(t, "it runs", m.Ready)
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	return w.all()
}

// At its start Run says where the window is shorter than the topic's retention, and by what sum.
func TestWindowIsComparedWithTheTopic(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic := b.Topic(t, 1)
		setTopic(t, b, topic, map[string]string{"retention.ms": "36000000", "segment.ms": "7200000"}) // 10 h and 2 h
		run := func(w time.Duration) string { return warned(t, config(b, serverstest.Group(t), topic, withWindow(w))) }
		if text := run(11 * time.Hour); !strings.Contains(text,
			"retention.ms 10h + segment.ms 2h + log.retention.check.interval.ms") ||
			!strings.Contains(text, "older than the window, 11h,") || !strings.Contains(text, "offsets.retention.minutes") {
			t.Errorf("11 h: %q", text)
		}
		for _, w := range []time.Duration{0, 13 * time.Hour} {
			if text := run(w); strings.Contains(text, "window") {
				t.Errorf("%v: %q", w, text)
			}
		}
		setTopic(t, b, topic, map[string]string{"retention.ms": "-1"})
		if text := run(1000 * time.Hour); !strings.Contains(text, "retention.ms is -1") {
			t.Errorf("without a retention: %q", text)
		}
		setTopic(t, b, topic, map[string]string{"cleanup.policy": "compact", "retention.ms": "36000000"})
		if text := run(1000 * time.Hour); !strings.Contains(text, "cleanup.policy is compact") {
			t.Errorf("compacted: %q", text)
		}
	})
}

// What Kafka's defaults come to, and what only it tells.
func TestWindowOnKafka(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		if b.Fake != nil { // message.timestamp.after.max.ms and log.retention.check.interval.ms are Kafka's alone
			return
		}
		topic := b.Topic(t, 1)
		setTopic(t, b, topic, map[string]string{"message.timestamp.after.max.ms": "7200000", "retention.ms": "36000000",
			"segment.ms": "7200000"})
		text := warned(t, config(b, serverstest.Group(t), topic, withWindow(time.Hour)))
		for _, want := range []string{"log.retention.check.interval.ms", "offsets.retention.minutes",
			"by up to 2h (message.timestamp.after.max.ms)"} {
			if !strings.Contains(text, want) || strings.Contains(text, "not known") {
				t.Errorf("%q does not say %q", text, want)
			}
		}
		setTopic(t, b, topic, map[string]string{"message.timestamp.type": "LogAppendTime"})
		if text := warned(t, config(b, serverstest.Group(t), topic, withWindow(time.Hour))); strings.Contains(text,
			"after.max") {
			t.Errorf("%q", text)
		}
	})
}

// A user who may not see the configuration, and a broker that does not answer, are a warning and no error.
func TestWindowIsNotCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(req *kmsg.DescribeConfigsRequest) kmsg.Response // nil for none
		says   string
	}{
		"not allowed": {func(req *kmsg.DescribeConfigsRequest) kmsg.Response {
			res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
			for _, r := range req.Resources {
				res.Resources = append(res.Resources, kmsg.DescribeConfigsResponseResource{
					ErrorCode: kerr.TopicAuthorizationFailed.Code, ResourceType: r.ResourceType, ResourceName: r.ResourceName,
				})
			}
			return res
		}, "not authorized"},
		"no answer": {nil, context.DeadlineExceeded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t, kfake.NumBrokers(1))
			topic := b.Topic(t, 1)
			b.Fake.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				if c.answer == nil {
					return nil, nil, true //nolint:nilnil // no answer
				}
				return c.answer(req.(*kmsg.DescribeConfigsRequest)), nil, true
			})
			text := warned(t, config(b, serverstest.Group(t), topic, withWindow(time.Hour)))
			if !strings.Contains(text, "was not compared") || !strings.Contains(text, c.says) ||
				!strings.Contains(text, "DESCRIBE_CONFIGS") {
				t.Errorf("%q", text)
			}
			if c.answer == nil {
				return
			}
			if text := warned(t, config(b, serverstest.Group(t), topic, withWindow(0))); strings.Contains(text, "compared") {
				t.Errorf("without a window: %q", text)
			}
		})
	}
}

// An event beyond the window is not handled, and not skipped: it holds its partition, Status shows why, and nothing is
// committed behind it. One without a time is not old.
func TestTooOldIsNeverSkipped(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		msgs := records(topic, 2, 3)
		msgs[1].Timestamp = time.Now().Add(-2 * time.Hour) // 0/1
		b.Produce(t, msgs...)
		var handled atomic.Int32
		cfg := config(b, group, topic,
			middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error {
				handled.Add(1)
				return nil
			}, &middleware.DedupConfig{Window: time.Hour}))
		cfg.Middleware = []consumer.Middleware{middleware.Retry(3, nil), middleware.Recover()}
		m := start(t, cfg)
		eventually(t, "the others are handled, and Status shows why one is not", func() bool {
			for _, p := range m.Status().Partitions {
				if p.Partition == 0 && p.Failing != nil && p.Failing.Attempts >= 2 {
					return handled.Load() == 4 && p.Failing.Offset == 1 && errors.Is(p.Failing.Err, middleware.ErrTooOld) &&
						consumer.IsPermanent(p.Failing.Err)
				}
			}
			return false
		})
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		if c := b.Committed(t, group, topic); c[0] != 1 || c[1] != 3 {
			t.Errorf("committed %s, want 1 and 3", fmt.Sprint(c))
		}
	})
}
