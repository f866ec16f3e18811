package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// latencies measures the time from the commit of an event to its append in Kafka, at 100 events/s.
func (b *backlog) latencies(ctx context.Context, length time.Duration) error {
	fmt.Printf("\nlatency at 100 events/s, commit to append%8s%10s%10s\n", "p50", "p99", "most")
	few := *b
	few.rows = 0
	for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
		for _, how := range []string{"polling", "signal in process", "LISTEN/NOTIFY"} {
			var list []time.Duration
			_, err := few.round(ctx, func(ctx context.Context, r *outboxRound) (err error) {
				list, err = r.latency(ctx, mode, how, length)
				r.took = time.Second
				return err
			})
			if err != nil {
				return err
			}
			at := func(q float64) time.Duration { return list[int(q*float64(len(list)-1))].Round(100 * time.Microsecond) }
			fmt.Printf("  %-39s%8v%10v%10v\n", string(mode)+", "+how, at(0.5), at(0.99), at(1))
		}
	}
	return nil
}

func (r *outboxRound) latency(ctx context.Context, mode outbox.Mode, how string, length time.Duration) ([]time.Duration,
	error) {
	if err := r.stampByBroker(); err != nil {
		return nil, err
	}
	cfg := relay.Config{Mode: mode}
	if how == "LISTEN/NOTIFY" {
		cfg.Listener = pgxoutbox.NewListener(r.pool, "")
	}
	sender, pool, err := r.relay(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	stop, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- sender.Run(stop) }()
	signal := func() {}
	switch how {
	case "signal in process":
		signal = sender.Wake
	case "LISTEN/NOTIFY":
		n := pgxoutbox.NewNotifier(r.pool, "", 0)
		defer n.Close()
		signal = n.Notify
	}
	time.Sleep(2 * time.Second)
	committed, err := r.trickle(ctx, length, signal)
	if err == nil {
		time.Sleep(2 * time.Second)
	}
	end()
	if err := <-ended; err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return r.appended(committed)
}

// stampByBroker has the broker write the time of the append into each record.
func (r *outboxRound) stampByBroker() error {
	admin, err := sarama.NewClusterAdmin(r.kafka.Addrs, clientConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	value := "LogAppendTime"
	return admin.IncrementalAlterConfig(sarama.TopicResource, r.topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"message.timestamp.type": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}, false)
}

// trickle writes 100 events a second, each in a transaction, and returns when each was committed.
func (r *outboxRound) trickle(ctx context.Context, length time.Duration, signal func()) (committed []time.Time,
	err error) {
	w := pgxoutbox.NewWriter(nil)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			return w.Write(ctx, tx, outbox.Event{ID: strconv.Itoa(len(committed)), Topic: r.topic,
				Key: fmt.Append(nil, "key-", len(committed)%keys), Value: r.value})
		})
		if err != nil {
			return nil, err
		}
		committed = append(committed, time.Now())
		signal()
	}
	return committed, nil
}

// appended reads the topic and subtracts. Kafka's times are in whole milliseconds, so half of one is added.
func (r *outboxRound) appended(committed []time.Time) ([]time.Duration, error) {
	consumer, err := sarama.NewConsumer(r.kafka.Addrs, clientConfig())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	var list []time.Duration
	for p := range int32(4) {
		claim, err := consumer.ConsumePartition(r.topic, p, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for done := false; !done; {
			select {
			case msg := <-claim.Messages():
				i, err := strconv.Atoi(string(msg.Headers[0].Value))
				if err != nil {
					return nil, err
				}
				list = append(list, max(0, msg.Timestamp.Sub(committed[i])+time.Millisecond/2))
			case <-time.After(time.Second):
				done = true
			}
		}
		_ = claim.Close()
	}
	if len(list) != len(committed) {
		return nil, fmt.Errorf("%d events were written, the topic has %d records", len(committed), len(list))
	}
	slices.Sort(list)
	return list, nil
}
