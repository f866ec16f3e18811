package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/relay"
)

// How many copies brokers cost that die, or stand still, for publish time-outs that are shorter than what Kafka needs
// to know of it, and longer: a time-out does not make a relay forget by what Kafka knows its batches again. With
// -faults.full the lines are the table of docs/outbox.md.
func TestCopiesWhenBrokersDie(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	c := need(t)
	b := &serverstest.Broker{Addrs: c.Addrs, Kind: servers.Apache}
	timeouts, rounds := []time.Duration{time.Second, 5 * time.Second}, 1
	if *full {
		rounds = 3
		timeouts = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	}
	t.Cleanup(func() { must(t, c.Restore(context.Background())) })
	done := make(chan struct{})
	var writers sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(done)
		writers.Wait()
	})
	var all []*relayed
	for _, mode := range []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase} {
		for _, timeout := range timeouts {
			r := newRelayed(t, mode, c.Addrs, b.Topic(t, 3), func(cfg *relay.Config) {
				cfg.PublishTimeout, cfg.LeaseTTL = timeout, max(45*time.Second, 2*timeout+10*time.Second)
				cfg.Sarama = func(c *sarama.Config) { c.Producer.Timeout = min(timeout, 5*time.Second) }
			})
			r.name, r.pause = fmt.Sprintf("%s, %v", mode, timeout), 20*time.Millisecond
			all = append(all, r)
			t.Cleanup(stop)
			writers.Go(func() { r.feed(done) })
		}
	}
	for _, r := range all {
		eventually(t, time.Minute, "something is sent", func() bool { return r.relay.Status().Published > 0 })
	}
	copies := make([]int, len(all))
	count := func(what string) {
		must(t, c.Settle(t.Context()))
		for i, r := range all {
			r.awaitSent()
			list, err := outboxtest.Records(r.addrs, r.topic)
			must(t, err)
			_, n := outboxtest.FirstCopies(list)
			t.Logf("%s: %s: %d copies", what, r.name, n-copies[i])
			if n > copies[i] {
				t.Errorf("%s: %s: %d copies of %d events, want none", what, r.name, n-copies[i], len(list)-n)
			}
			copies[i] = n
		}
	}
	for i := range rounds {
		node := 1 + i%3
		must(t, c.Kill(node))
		for _, r := range all {
			r.awaitSent()
		}
		must(t, c.Start(t.Context(), node))
		count(fmt.Sprintf("node %d is killed", node))
		node = 1 + (i+1)%3
		must(t, c.Freeze(node))
		time.Sleep(current().freezes[0])
		must(t, c.Thaw(node))
		count(fmt.Sprintf("node %d stands still for %v", node, current().freezes[0]))
	}
	stop()
	for _, r := range all {
		r.awaitSent()
		r.judge()
	}
}
