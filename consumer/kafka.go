package consumer

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// Time-outs of the group. Their order matters: drain < rebalance < read < session. A member must have finished and
// committed before the group goes on without it, must outwait a JoinGroup that the broker parks for the rebalance
// time-out, and must notice a dead connection before its session ends.
const (
	rebalanceTimeout  = 10 * time.Second
	readTimeout       = 12 * time.Second // Kafka 4.3 answers a heartbeat up to 10.1 s late while it fences a dead broker
	sessionTimeout    = 20 * time.Second
	heartbeatInterval = time.Second // a joiner waits for the others' next heartbeat
)

// newSaramaConfig returns the client's configuration before the user's func has seen it.
func newSaramaConfig(group string, st *strategy) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "einmal-" + clientID(group)
	c.Version = sarama.V3_6_0_0 // a ceiling: older brokers answer with what they have, newer requests bring nothing here

	c.Net.DialTimeout = 5 * time.Second
	c.Net.ReadTimeout = readTimeout
	c.Net.WriteTimeout = readTimeout
	c.Metadata.Retry.Max = 3
	c.Metadata.Retry.Backoff = 250 * time.Millisecond
	c.Metadata.RefreshFrequency = time.Minute       // how soon new partitions are seen
	c.Metadata.AllowAutoTopicCreation = false       // else a deleted or misspelt topic is created by reading it
	c.Consumer.Return.Errors = true                 // they are logged
	c.Consumer.MaxWaitTime = 250 * time.Millisecond // bounds how long a claim takes to close
	if st.kind == Cooperative {
		c.Consumer.MaxWaitTime = 100 * time.Millisecond // a rebalance waits for it several times
	}
	c.Consumer.Fetch.Default = 4 << 20               // per partition and request, at most: see fetchSize
	c.Consumer.IsolationLevel = sarama.ReadCommitted // what a producer has aborted must take no effect
	c.Consumer.Retry.Backoff = 500 * time.Millisecond
	c.Consumer.Retry.Max = 0                         // for ever: giving up on a partition would end the session for all others
	c.Consumer.Offsets.Initial = sarama.OffsetOldest // newest skips what was produced before the first commit
	c.Consumer.Offsets.AutoCommit.Enable = true      // marks follow the database's commit, so any of them may be committed
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Offsets.Retry.Max = 3
	c.Consumer.Group.ResetInvalidOffsets = true // to the oldest: delivered again, not skipped
	c.Consumer.Group.Rebalance.GroupStrategies = st.list()
	c.Consumer.Group.Rebalance.Timeout = rebalanceTimeout
	c.Consumer.Group.Rebalance.Retry.Max = 20
	c.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	c.Consumer.Group.Session.Timeout = sessionTimeout
	c.Consumer.Group.Heartbeat.Interval = heartbeatInterval
	return c
}

// clientID keeps what Kafka and sarama accept in a client id.
func clientID(group string) string {
	id := []byte(group)
	for i, b := range id {
		if b <= ' ' || b > '~' {
			id[i] = '_'
		}
	}
	return string(id)
}

// owned are the fields that Config.Sarama must leave as they are, each with what to do instead.
var owned = []kafkaconf.Owned{
	{Name: "Consumer.Return.Errors", Field: func(c *sarama.Config) any { return c.Consumer.Return.Errors },
		Remedy: "errors go to Config.Logger"},
	{Name: "Consumer.Offsets.AutoCommit.Enable",
		Field:  func(c *sarama.Config) any { return c.Consumer.Offsets.AutoCommit.Enable },
		Remedy: "only finished messages are marked, so committing them in the background is safe; change its Interval if you must"},
	{Name: "Consumer.Offsets.Initial", Field: func(c *sarama.Config) any { return c.Consumer.Offsets.Initial },
		Remedy: "use Topic.Start"},
	{Name: "Consumer.Group.ResetInvalidOffsets",
		Field: func(c *sarama.Config) any { return c.Consumer.Group.ResetInvalidOffsets }, Remedy: "use Topic.OutOfRange"},
	{Name: "Consumer.Group.Rebalance.Strategy",
		Field: func(c *sarama.Config) any { return c.Consumer.Group.Rebalance.Strategy }, Remedy: strategyRemedy},
	{Name: "Consumer.Group.Rebalance.GroupStrategies", Field: strategies, Remedy: strategyRemedy},
	{Name: "Consumer.Group.InstanceId", Field: func(c *sarama.Config) any { return c.Consumer.Group.InstanceId },
		Remedy: "use Config.InstanceID"},
	{Name: "Consumer.MaxProcessingTime", Field: func(c *sarama.Config) any { return c.Consumer.MaxProcessingTime },
		Remedy: "it is no time limit for handlers, and raising it starves other partitions; middleware.Timeout limits handlers"},
	{Name: "Consumer.Fetch.Max", Field: func(c *sarama.Config) any { return c.Consumer.Fetch.Max },
		Remedy: "a maximum can skip messages that are larger"},
	{Name: "Consumer.Interceptors", Field: func(c *sarama.Config) any { return len(c.Consumer.Interceptors) },
		Remedy: "they can run twice for a message; use a Middleware"},
	{Name: "Metadata.AllowAutoTopicCreation",
		Field:  func(c *sarama.Config) any { return c.Metadata.AllowAutoTopicCreation },
		Remedy: "a misspelt topic would be created; create topics before consuming them"},
}

const strategyRemedy = "use Config.Rebalance; sticky is not offered, because it keeps Kafka from moving the group to its newer protocol (KIP-848)"

func strategies(c *sarama.Config) any {
	var names []string
	for _, s := range c.Consumer.Group.Rebalance.GroupStrategies {
		if s != nil { // sarama's own check refuses it
			names = append(names, s.Name())
		}
	}
	return names
}

// saramaConfig builds the client's configuration and checks what the user's func made of it.
func saramaConfig(p *problems, cfg Config, st *strategy) *sarama.Config {
	sc := newSaramaConfig(cfg.Group, st)
	sc.Consumer.Group.InstanceId = cfg.InstanceID
	if cfg.Sarama != nil {
		cfg.Sarama(sc)
		checkOwned(p, sc, cfg)
	}
	if !sc.Version.IsAtLeast(sarama.V0_11_0_0) {
		p.add("Config.Sarama", "sets Version to %v: set at least %v, older ones have no record headers", sc.Version,
			sarama.V0_11_0_0)
	} else if err := sc.Validate(); err != nil {
		p.add("Config.Sarama", "%v", err)
	}
	checkTimeouts(p, sc)
	checkLoops(p, sc)
	checkSizes(p, sc)
	return sc
}

func checkOwned(p *problems, sc *sarama.Config, cfg Config) {
	ours := newSaramaConfig(cfg.Group, &strategy{kind: cfg.Rebalance})
	ours.Consumer.Group.InstanceId = cfg.InstanceID
	for _, f := range kafkaconf.Changed(owned, ours, sc) {
		p.add("Config.Sarama", "sets %s, which einmal needs as it is: leave it out; %s", f.Name, f.Remedy)
	}
}

func checkTimeouts(p *problems, sc *sarama.Config) {
	g := sc.Consumer.Group
	below := func(small string, a time.Duration, large string, b time.Duration, why string) {
		if a >= b {
			p.add("Config.Sarama", "%s is %v and %s is %v: make the first smaller, %s", small, a, large, b, why)
		}
	}
	below("2 x Consumer.Group.Heartbeat.Interval", 2*g.Heartbeat.Interval, "Consumer.Group.Rebalance.Timeout",
		g.Rebalance.Timeout,
		"else nothing is left of a rebalance for finishing messages")
	below("Consumer.Group.Rebalance.Timeout", g.Rebalance.Timeout, "Net.ReadTimeout", sc.Net.ReadTimeout,
		"else joining the group times out while the others drain")
	below("Net.ReadTimeout", sc.Net.ReadTimeout, "Consumer.Group.Session.Timeout", g.Session.Timeout,
		"else a dead connection costs the session")
}

// leastPeriod and leastBackoff are the least that settings may be which say how often the brokers are asked something.
const leastPeriod, leastBackoff = 100 * time.Millisecond, 10 * time.Millisecond

// checkLoops refuses what makes a loop without a pause.
func checkLoops(p *problems, sc *sarama.Config) {
	for _, f := range []struct {
		name  string
		d     time.Duration
		least time.Duration
		what  string
	}{
		{"Metadata.RefreshFrequency", sc.Metadata.RefreshFrequency, leastPeriod,
			"new partitions are looked for that often, 0 does not switch it off"},
		{"Metadata.Retry.Backoff", sc.Metadata.Retry.Backoff, leastBackoff,
			"a broker that is away would be asked without a pause"},
		{"Consumer.Retry.Backoff", sc.Consumer.Retry.Backoff, leastBackoff,
			"a partition that cannot be read would be asked for without a pause"},
		{"Consumer.Group.Rebalance.Retry.Backoff", sc.Consumer.Group.Rebalance.Retry.Backoff, leastBackoff,
			"the group would be joined without a pause"},
	} {
		if f.d < f.least {
			p.add("Config.Sarama", "sets %s to %v: set at least %v; %s", f.name, f.d, f.least, f.what)
		}
	}
}

// checkSizes refuses a fetch whose answer sarama would not read: it fails as a whole, again and again, for all
// partitions of the broker. sarama.MaxResponseSize is a variable of the whole process, so it is main's to set.
func checkSizes(p *problems, sc *sarama.Config) {
	f := sc.Consumer.Fetch
	if limit := int64(sarama.MaxResponseSize); int64(f.MaxBytes)+int64(f.Default) > limit {
		p.add("Config.Sarama", "sets Consumer.Fetch.MaxBytes to %d, and Consumer.Fetch.Default is %d, but sarama.MaxResponseSize is %d: "+
			"keep their sum below it, or let main raise sarama.MaxResponseSize; a response beyond it stops all partitions of its broker", f.MaxBytes, f.Default, limit)
	}
}

// revokeBudget is how long messages in work may go on after a rebalance has begun.
func revokeBudget(sc *sarama.Config) time.Duration {
	return sc.Consumer.Group.Rebalance.Timeout - 2*sc.Consumer.Group.Heartbeat.Interval
}

// partitionName names a partition in texts.
func partitionName(topic string, partition int32) string {
	return fmt.Sprintf("%s[%d]", topic, partition)
}
