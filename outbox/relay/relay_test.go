package relay_test

import (
	"context"
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
)

var modes = []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase}

// harness runs the suite by a driver on a broker.
func harness(t testing.TB, d tabletest.Driver, b *serverstest.Broker) outboxtest.Harness {
	f := tabletest.Open(t)
	write, db := d.Open(t, f.URL, nil)
	return outboxtest.Harness{
		Database: db,
		Write:    write,
		Exec: func(ctx context.Context, sql string) error {
			_, err := f.Exec(ctx, sql)
			return err
		},
		Value: func(ctx context.Context, sql string) (n int64, err error) {
			err = f.QueryRow(ctx, sql).Scan(&n)
			return n, err
		},
		Brokers: b.Addrs,
		Topic: func(t testing.TB, partitions int32, settings map[string]string) string {
			topic := b.Topic(t, partitions)
			configure(t, b, topic, settings)
			return topic
		},
	}
}

// configure changes settings of a topic.
func configure(t testing.TB, b *serverstest.Broker, topic string, settings map[string]string) {
	t.Helper()
	if len(settings) == 0 {
		return
	}
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin(b.Addrs, cfg)
	must(t, err)
	defer admin.Close()
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for k, v := range settings {
		entries[k] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v}
	}
	must(t, admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false))
}

func TestRelay(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				outboxtest.Run(t, mode, func(t testing.TB) outboxtest.Harness { return harness(t, tabletest.Drivers[0], b) })
			})
		})
	}
}

// The other tabletest.Drivers run the suite too. bun writes events by itself, in either mode alike, and its relay is
// that of database/sql with its driver.
func TestRelayByOtherDrivers(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers[1:] {
		for _, mode := range modes {
			if d.Name == "bun" && mode == outbox.TwoPhase {
				continue
			}
			t.Run(d.Name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				b := serverstest.InProcess(t)
				outboxtest.Run(t, mode, func(t testing.TB) outboxtest.Harness { return harness(t, d, b) })
			})
		}
	}
}
