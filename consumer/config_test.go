package consumer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func TestZeroFieldsAreTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	if cfg.DrainTimeout != 8*time.Second || cfg.StartTimeout != 30*time.Second || cfg.Logger != slog.Default() {
		t.Errorf("defaults: DrainTimeout %v, StartTimeout %v, Logger %v", cfg.DrainTimeout, cfg.StartTimeout, cfg.Logger)
	}
	log := slog.New(slog.DiscardHandler)
	set := Config{DrainTimeout: time.Minute, StartTimeout: time.Second, Logger: log}.withDefaults()
	if set.DrainTimeout != time.Minute || set.StartTimeout != time.Second || set.Logger != log {
		t.Errorf("fields that are set were changed: %+v", set)
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
