package consumer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func TestZeroFieldsAreTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	if cfg.DrainTimeout != 8*time.Second || cfg.StartTimeout != 30*time.Second || cfg.StallTimeout != 10*time.Minute ||
		cfg.Logger == nil {
		t.Errorf("defaults: DrainTimeout %v, StartTimeout %v, StallTimeout %v, Logger %v", cfg.DrainTimeout, cfg.StartTimeout,
			cfg.StallTimeout, cfg.Logger)
	}
	if want := (Limits{PartitionBytes: 16 << 20, Messages: 100_000, Bytes: 256 << 20, Ahead: 20_000_000}); cfg.Limits != want { // PartitionMessages is the topic's
		t.Errorf("default limits: %+v, want %+v", cfg.Limits, want)
	}
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, nil))
	limits := Limits{PartitionMessages: 1, PartitionBytes: 2, Messages: 3, Bytes: 4, Ahead: 5}
	set := Config{DrainTimeout: time.Minute, StartTimeout: time.Second, StallTimeout: time.Hour, Limits: limits,
		Logger: log}.withDefaults()
	if set.DrainTimeout != time.Minute || set.StartTimeout != time.Second || set.StallTimeout != time.Hour ||
		set.Limits != limits {
		t.Errorf("fields that are set were changed: %+v", set)
	}
	if set.Logger.Info("hello"); !strings.Contains(lines.String(), "hello") {
		t.Error("Logger does not get what is logged")
	}
}

func TestTopicDefaults(t *testing.T) {
	t.Parallel()
	h := HandlerFunc(func(context.Context, *Message) error { return nil })
	tp, err := newTopic(Config{Group: "billing", Topics: map[string]Topic{"orders": {Handler: h}}}, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if tp.consumer != "billing/orders" || tp.onFailure != KeepTrying {
		t.Errorf("Consumer %q, OnFailure %v", tp.consumer, tp.onFailure)
	}
	id, err := tp.eventID(&Message{Headers: []Header{{Key: "event-id", Value: []byte("e1")}}})
	if id != "e1" || err != nil {
		t.Errorf("EventID returns %q, %v", id, err)
	}
	tp, err = newTopic(Config{Group: "billing", Topics: map[string]Topic{"orders": {
		Handler: h, Consumer: "charges", OnFailure: Stop,
		EventID: func(*Message) (string, error) { return "e2", nil },
	}}}, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := tp.eventID(&Message{}); id != "e2" || tp.consumer != "charges" || tp.onFailure != Stop {
		t.Errorf("fields that are set were changed: %+v", tp)
	}
}

// What is fetched ahead suffices for the workers.
func TestPartitionMessagesFollowsWorkers(t *testing.T) {
	t.Parallel()
	h := HandlerFunc(func(context.Context, *Message) error { return nil })
	for _, test := range []struct{ limit, workers, want int }{
		{0, 0, 5000}, {0, 1250, 5000}, {0, 1251, 5004}, {0, 10_000, 40_000}, {7, 0, 7}, {7, 10_000, 7},
	} {
		cfg := Config{Group: "g", Limits: Limits{PartitionMessages: test.limit},
			Topics: map[string]Topic{"orders": {Handler: h, Workers: test.workers}}}
		tp, err := newTopic(cfg.withDefaults(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if tp.partitionMessages != test.want {
			t.Errorf("PartitionMessages %d, Workers %d: %d, want %d", test.limit, test.workers, tp.partitionMessages, test.want)
		}
	}
}

// The func sees the values that it may change, and what it sets is what the client gets.
func TestSaramaIsCalledOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	c, err := New(Config{
		Brokers: []string{"localhost:9092"}, Group: "billing",
		Topics: map[string]Topic{"orders": {Handler: HandlerFunc(func(context.Context, *Message) error { return nil })}},
		Sarama: func(sc *sarama.Config) {
			calls++
			if sc.ClientID != "einmal-billing" {
				t.Errorf("ClientID %q", sc.ClientID)
			}
			sc.ClientID = "mine"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls != 1 || c.sarama.ClientID != "mine" {
		t.Errorf("called %d times, the client's id is %q", calls, c.sarama.ClientID)
	}
	if s := c.Status(); s.Phase != Created || s.Partitions != nil {
		t.Errorf("status before Run: %+v", s)
	}
}

func TestRunReportsTheErrorsOfNew(t *testing.T) {
	t.Parallel()
	var ce *ConfigError
	if err := Run(t.Context(), Config{}); !errors.As(err, &ce) || ce.Field != "Config.Brokers" {
		t.Errorf("Run returned %v", err)
	}
}
