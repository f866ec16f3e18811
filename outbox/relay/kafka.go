package relay

import (
	"math"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/outbox"
)

// newSaramaConfig returns the client's configuration before the user's func has seen it.
func newSaramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "einmal-outbox"
	c.Version = sarama.V3_6_0_0 // a ceiling: older brokers answer with what they have

	c.Net.DialTimeout = 5 * time.Second
	c.Net.ReadTimeout = 10 * time.Second
	c.Net.WriteTimeout = 10 * time.Second
	c.Net.MaxOpenRequests = 1 // a batch of a partition is sent when the one before it is acknowledged
	c.Metadata.Full = false   // only the topics that are sent to
	c.Metadata.Retry.Max = 1  // the relay repeats the batch
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	c.Metadata.Timeout = 10 * time.Second
	c.Metadata.RefreshFrequency = time.Minute
	c.Metadata.AllowAutoTopicCreation = false // else a misspelt topic is created by an event
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Producer.Timeout = 5 * time.Second // for the replicas
	c.Producer.MaxMessageBytes = outbox.DefaultMaxBytes
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewHashPartitioner // Config.Partitioner and Partitioners choose
	return c
}

// owned are the fields that Config.Sarama must leave as they are.
var owned = []kafkaconf.Owned{
	{
		Name: "Producer.RequiredAcks", Field: func(c *sarama.Config) any { return c.Producer.RequiredAcks },
		Remedy: "a row is deleted when its record is acknowledged by all in-sync replicas; set min.insync.replicas of the topic",
	},
	{
		Name: "Producer.Idempotent", Field: func(c *sarama.Config) any { return c.Producer.Idempotent },
		Remedy: "without it a broken connection doubles records",
	},
	{
		Name: "Producer.Transaction.ID", Field: func(c *sarama.Config) any { return c.Producer.Transaction.ID },
		Remedy: "transactions of Kafka and of the database do not commit together; " +
			"consumers recognise what was sent twice by its id",
	},
	{
		Name: "Producer.Retry", Field: func(c *sarama.Config) any {
			return []any{c.Producer.Retry.Max,
				c.Producer.Retry.Backoff}
		},
		Remedy: "the relay repeats by itself; Config.PublishTimeout bounds it",
	},
	{
		Name: "Producer.Flush", Field: func(c *sarama.Config) any {
			f := c.Producer.Flush
			return []any{f.Bytes, f.Messages, f.Frequency, f.MaxMessages}
		},
		Remedy: "use Config.BatchRows and Config.BatchBytes",
	},
	{
		Name: "Producer.Interceptors", Field: func(c *sarama.Config) any { return len(c.Producer.Interceptors) },
		Remedy: "what is sent is what was written",
	},
	{
		Name: "Net.MaxOpenRequests", Field: func(c *sarama.Config) any { return c.Net.MaxOpenRequests },
		Remedy: "order rests on it",
	},
	{
		Name:   "Metadata.AllowAutoTopicCreation",
		Field:  func(c *sarama.Config) any { return c.Metadata.AllowAutoTopicCreation },
		Remedy: "a misspelt topic would be created; create topics before they are sent to",
	},
}

// samePartitions compares partitioners by what they do: functions cannot be compared.
func samePartitions(a, b sarama.PartitionerConstructor) bool {
	if a == nil || b == nil {
		return false
	}
	p, q := a("t"), b("t")
	for _, key := range []string{"", "a", "key", "einmal", "0123456789"} {
		msg := &sarama.ProducerMessage{Topic: "t", Key: sarama.StringEncoder(key)}
		x, err := p.Partition(msg, math.MaxInt32)
		y, _ := q.Partition(msg, math.MaxInt32)
		if err != nil || x != y {
			return false
		}
	}
	return true
}

func saramaConfig(p *problems, cfg *Config) *sarama.Config {
	sc := newSaramaConfig()
	if cfg.Sarama != nil {
		cfg.Sarama(sc)
		ours := newSaramaConfig()
		for _, f := range kafkaconf.Changed(owned, ours, sc) {
			p.add("Config.Sarama", "sets %s, which the relay needs as it is: leave it out; %s", f.Name, f.Remedy)
		}
		if !samePartitions(ours.Producer.Partitioner, sc.Producer.Partitioner) {
			p.add("Config.Sarama", "sets Producer.Partitioner: leave it out; use Config.Partitioner or Config.Partitioners")
		}
	}
	if err := sc.Validate(); err != nil {
		p.add("Config.Sarama", "%v", err)
	}
	if !sc.Version.IsAtLeast(sarama.V2_1_0_0) {
		p.add("Config.Sarama", "sets Version to %v: set at least %v", sc.Version, sarama.V2_1_0_0)
	}
	if sc.Producer.Timeout >= sc.Net.ReadTimeout {
		p.add("Config.Sarama", "Producer.Timeout is %v and Net.ReadTimeout is %v: make the first smaller, else answers come too late",
			sc.Producer.Timeout, sc.Net.ReadTimeout)
	}
	return sc
}
