package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A record with very many headers, some without a key or a value, arrives whole, and the last event id of many is
// found.
func TestManyHeaders(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		const n = 10_000
		var noKey []byte
		if b.Fake == nil {
			noKey = []byte{} // Apache Kafka refuses a record whose header has no key at all
		}
		headers := make([]sarama.RecordHeader, n)
		for i := range headers {
			switch i % 4 {
			case 0:
				headers[i] = sarama.RecordHeader{Key: []byte("event-id"), Value: fmt.Append(nil, "e", i)}
			case 1:
				headers[i] = sarama.RecordHeader{Key: noKey, Value: []byte("no key")}
			case 2:
				headers[i] = sarama.RecordHeader{Key: []byte("no value")}
			default:
				headers[i] = sarama.RecordHeader{Key: noKey}
			}
		}
		b.Produce(t, &sarama.ProducerMessage{Topic: topic, Headers: headers}, &sarama.ProducerMessage{Topic: topic})
		var s seen
		m := start(t, config(b, group, topic, &s))
		eventually(t, "both are handled", func() bool { return s.len() == 2 })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		msg := s.all()[0]
		if len(msg.Headers) != n || msg.EventID != "e9996" || msg.EventIDErr != nil {
			t.Errorf("%d headers, event id %q, %v", len(msg.Headers), msg.EventID, msg.EventIDErr)
		}
		if v, ok := msg.Header(""); !ok || len(v) != 0 {
			t.Errorf("the last header without a key: %q, %v, want an empty one", v, ok)
		}
		if v, ok := msg.Header("no value"); !ok || v != nil {
			t.Errorf("a header without a value: %q, %v, want nil and true", v, ok)
		}
	})
}

// What handlers keep of a batch stays as it was, whatever they append to their own.
func TestKeptValues(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		const n = 50
		b.Produce(t, records(topic, 1, n)...)
		var mu sync.Mutex
		var kept, grown [][]byte
		done := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(kept)
		}
		m := start(t, config(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, msg.Value)
			grown = append(grown, append(msg.Value, strings.Repeat("X", 1000)...))
			for i := range grown { // those of earlier messages too
				grown[i] = append(grown[i], 'X')
			}
			return nil
		})))
		eventually(t, "all are handled", func() bool { return done() == n })
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		for i, value := range kept {
			if want := fmt.Sprintf("0-%d", i); string(value) != want || !strings.HasPrefix(string(grown[i]), want+"X") {
				t.Errorf("kept %q, want %q", value, want)
			}
		}
	})
}
