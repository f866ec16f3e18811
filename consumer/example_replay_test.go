package consumer_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/middleware"
)

// What has had its effect is a duplicate, and no offset is committed: a replay can be repeated.
func ExampleReplay() {
	brokers, stop := kafkaWith("a", "b", "c")
	defer stop()
	cfg := consumer.Config{
		Brokers: brokers, Group: "billing", Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{"orders": {
			EventID: consumer.UniqueKeyID,
			Handler: middleware.Dedup(memstore.New(),
				func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }, nil),
		}},
	}
	for _, offsets := range []consumer.OffsetRange{{From: 1, To: 2}, {From: 0}} {
		report, err := consumer.Replay(context.Background(), cfg, consumer.ReplayConfig{
			Topic: "orders", Offsets: map[int32]consumer.OffsetRange{0: offsets}, Keep: consumer.KeptForever,
		})
		fmt.Println("processed", report.Processed, "duplicates", report.Duplicates, err)
	}
	// Output:
	// processed 1 duplicates 0 <nil>
	// processed 2 duplicates 1 <nil>
}
