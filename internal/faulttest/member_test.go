package faulttest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/middleware"
)

// member is one member of a group.
type member struct {
	name    string
	brokers []string
	group   string
	topic   string
	pace    *atomic.Int64 // how long a handler takes
	journal *journal
	store   *memstore.Store // of the whole group
	network *network
	log     servers.Output

	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

const (
	einmal = "einmal"
	plain  = "sarama"
)

// prepare returns what runs the member until its context ends.
func (m *member) prepare(client string) (run func(context.Context) error, err error) {
	if client == plain {
		return m.plain()
	}
	return m.einmal()
}

// einmal is a member that is a consumer.Consumer: with its defaults, but for what a member holds in memory.
func (m *member) einmal() (run func(context.Context) error, err error) {
	c, err := consumer.New(consumer.Config{
		Brokers: m.brokers,
		Group:   m.group,
		Topics:  map[string]consumer.Topic{m.topic: {Handler: m.handler()}},
		Limits:  consumer.Limits{PartitionMessages: perSecond / 2},
		Hooks: consumer.Hooks{
			Assigned:     func(_ string, p int32) { m.journal.held(hold{m.name, p, true, time.Now()}) },
			Revoked:      func(_ string, p int32, _ time.Duration) { m.journal.held(hold{m.name, p, false, time.Now()}) },
			ShortSession: func(int) { m.journal.shortSession() },
		},
		Logger: slog.New(slog.NewTextHandler(&m.log, nil)),
		Sarama: func(c *sarama.Config) {
			holdLittle(c)
			m.network.install(c)
		},
	})
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

// holdLittle bounds what a client holds in memory to about a second's messages: with more, it would hide that a broker
// is away.
func holdLittle(c *sarama.Config) { c.Consumer.Fetch.Default = 4 << 10 }

// handler takes its time, then has its effect once.
func (m *member) handler() consumer.Handler {
	dedup := middleware.Dedup(m.store, func(_ context.Context, tx *memstore.Tx, msg *consumer.Message) error {
		tx.OnCommit(func() { m.journal.effect(msg.EventID) })
		return nil
	}, nil)
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		began := time.Now()
		if err := m.work(ctx); err != nil {
			return err
		}
		if err := dedup.Handle(ctx, msg); err != nil {
			return err
		}
		m.journal.delivered(delivery{m.name, msg.Partition, msg.Offset, began, time.Now()})
		return nil
	})
}

// work takes as long as the pace says.
func (m *member) work(ctx context.Context) error { return sleep(ctx, time.Duration(m.pace.Load())) }

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
