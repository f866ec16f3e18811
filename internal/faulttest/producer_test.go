package faulttest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// producer writes to all partitions until produced is called: first a backlog, then perSecond messages to each. It
// waits for all replicas, and tries again for ever, so what it sends can be in the log twice: as two messages with one
// event id.
type producer struct {
	async sarama.AsyncProducer
	topic string
	id    string
	stop  chan struct{}
	once  sync.Once
	done  sync.WaitGroup

	mu    sync.Mutex
	acked map[int32][]int64 // offsets
	ids   map[string]bool   // of what was acknowledged
	sent  int
	fails []string
}

func startProducer(t *testing.T, addrs []string, topic, id string) *producer {
	t.Helper()
	c := toolConfig()
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 100_000, 250*time.Millisecond
	c.Producer.Flush.MaxMessages = 20 // small batches: a consumer takes whole ones, and must not live from memory while a broker is away
	async, err := sarama.NewAsyncProducer(addrs, c)
	must(t, err)
	p := &producer{async: async, topic: topic, id: id, stop: make(chan struct{}), acked: map[int32][]int64{},
		ids: map[string]bool{}}
	p.done.Go(p.readAcks)
	p.done.Go(p.readErrors)
	for i := range backlog {
		p.send(i)
	}
	p.done.Go(func() { p.write(backlog) })
	eventually(t, time.Minute, "the backlog is there", func() bool { return p.acknowledged() >= backlog*partitions })
	t.Cleanup(p.produced)
	return p
}

// write goes on at its rate.
func (p *producer) write(i int) {
	defer p.async.AsyncClose() // waits for what is under way
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.send(i)
			i++
		}
	}
}

var filler = sarama.StringEncoder(strings.Repeat(".", 150))

// send sends one message to each partition.
func (p *producer) send(i int) {
	for partition := range int32(partitions) {
		event := fmt.Sprintf("%s-%d-%d", p.id, partition, i)
		p.async.Input() <- &sarama.ProducerMessage{
			Topic: p.topic, Partition: partition, Value: filler, Metadata: event,
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(event)}},
		}
	}
}

func (p *producer) readAcks() {
	for m := range p.async.Successes() {
		p.mu.Lock()
		p.acked[m.Partition] = append(p.acked[m.Partition], m.Offset)
		p.ids[m.Metadata.(string)] = true
		p.sent++
		p.mu.Unlock()
	}
}

func (p *producer) readErrors() {
	for err := range p.async.Errors() {
		p.mu.Lock()
		p.fails = append(p.fails, err.Error())
		p.mu.Unlock()
	}
}

func (p *producer) acknowledged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// produced ends the producer, and returns when everything is acknowledged.
func (p *producer) produced() {
	p.once.Do(func() { close(p.stop) })
	p.done.Wait()
}
