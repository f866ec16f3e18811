package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Cluster is an Apache Kafka of three nodes, each both broker and controller, for tests of what a group does when
// brokers die. Its topics have three replicas, of which two must be in sync. Nodes are numbered 1, 2 and 3, as Kafka
// numbers them. It is safe for concurrent use.
type Cluster struct {
	// Addrs are the brokers, as host:port, in the order of their numbers. A node keeps its address when it is started
	// again.
	Addrs []string
	// Origin tells a human what serves and where it is from.
	Origin string
	// BrokerSession is how long a broker that is silent counts as alive.
	BrokerSession time.Duration

	nodes []clusterNode
	end   func() error // after the nodes

	mu   sync.Mutex
	down map[int]nodeSignal // what nodes that do not answer were sent
}

// clusterNode is one node, whatever it runs in.
type clusterNode interface {
	// run starts the node, or starts it again with what it had stored. It does not wait until it answers.
	run() error
	// ended is closed once the node that run started has ended.
	ended() <-chan struct{}
	signal(s nodeSignal) error
	// output is the last of what it said.
	output() string
	// remove ends it for good, with its files.
	remove() error
}

// nodeSignal is what can be done to a node that runs.
type nodeSignal int

const (
	kill      nodeSignal = iota // it ends at once, as in a crash
	terminate                   // it hands its partitions over and ends
	freeze                      // it stands still, its connections stay open
	thaw                        // it goes on
)

const clusterSize = 3

// ClusterConfig is what can be chosen about a Cluster. The zero value is Kafka as it comes.
type ClusterConfig struct {
	// BrokerSession is how long a broker that is silent counts as alive: no client can make the partitions that it led
	// come back sooner. Defaults to 9 s, as in Kafka (broker.session.timeout.ms).
	BrokerSession time.Duration
	// Lifetime is when Docker ends the nodes, also if this process was killed. Defaults to an hour.
	Lifetime time.Duration
}

func (c ClusterConfig) withDefaults() ClusterConfig {
	if c.BrokerSession == 0 {
		c.BrokerSession = 9 * time.Second
	}
	if c.Lifetime == 0 {
		c.Lifetime = testLifetime
	}
	return c
}

// StartCluster starts a cluster by Docker, from the image that EINMAL_KAFKA_IMAGE names or from apache/kafka:4.3.1, or
// else from the jars in EINMAL_KAFKA_JARS. ctx bounds the start, not the life of the nodes: that ends with Close, or
// with this process.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	cfg = cfg.withDefaults()
	c, reasons, err := first(ctx, []source[*Cluster]{
		{"Docker", EnvKafkaImage, func() (*Cluster, error) { return dockerCluster(ctx, cfg) }},
		{"local jars", EnvKafkaJars, func() (*Cluster, error) { return localCluster(ctx, cfg) }},
	})
	if err != nil {
		return nil, fmt.Errorf("no Apache Kafka of three nodes could be started: start Docker, with %s naming an image that is there, or set %s "+
			"to a directory with Kafka's jars\n\t%s", EnvKafkaImage, EnvKafkaJars, strings.Join(reasons, "\n\t"))
	}
	c.Origin = describe("Apache Kafka of three nodes", c.Origin, reasons)
	return c, nil
}

// startNodes starts all of them at once and waits until each knows all.
func (c *Cluster) startNodes(ctx context.Context) error {
	return c.each(func(i int) error {
		if err := c.nodes[i].run(); err != nil {
			return err
		}
		return c.await(ctx, i+1)
	})
}

// each does something with all nodes, at once.
func (c *Cluster) each(do func(i int) error) error {
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i := range c.nodes {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// await waits until the node answers and knows all of the cluster.
func (c *Cluster) await(ctx context.Context, node int) error {
	n := c.nodes[node-1]
	err := until(ctx, n.ended(), func() error { return errors.New("it ended") }, func(context.Context) error {
		return knowsAll(c.Addrs[node-1])
	})
	if err != nil {
		return fmt.Errorf("node %d: %w; it said\n%s", node, err, n.output())
	}
	return nil
}

// knowsAll tells whether a broker answers, knows all of the cluster, and a controller.
func knowsAll(addr string) error {
	client, err := sarama.NewClient([]string{addr}, clusterClientConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	if n := len(client.Brokers()); n < clusterSize {
		return fmt.Errorf("%d of %d brokers are known", n, clusterSize)
	}
	_, err = client.Controller()
	return err
}

// Addr is the address of a node.
func (c *Cluster) Addr(node int) string { return c.Addrs[node-1] }

// Node is the number of the node at an address, 0 if there is none.
func (c *Cluster) Node(addr string) int {
	for i, a := range c.Addrs {
		if a == addr {
			return i + 1
		}
	}
	return 0
}

// Kill ends a node as SIGKILL does, and waits until it has ended.
func (c *Cluster) Kill(node int) error { return c.endNode(node, kill) }

// KillAll kills all nodes at once.
func (c *Cluster) KillAll() error { return c.each(func(i int) error { return c.Kill(i + 1) }) }

// Terminate ends a node as SIGTERM does: it hands its partitions over first. It waits until it has ended.
func (c *Cluster) Terminate(node int) error { return c.endNode(node, terminate) }

func (c *Cluster) endNode(node int, s nodeSignal) error {
	if err := c.send(node, s); err != nil {
		return fmt.Errorf("end node %d: %w", node, err)
	}
	select {
	case <-c.nodes[node-1].ended():
		return nil
	case <-time.After(startTimeout):
		return fmt.Errorf("node %d does not end", node)
	}
}

// Freeze has a node stand still: it answers nothing, and its connections stay open.
func (c *Cluster) Freeze(node int) error { return c.send(node, freeze) }

// Thaw has a frozen node go on.
func (c *Cluster) Thaw(node int) error { return c.send(node, thaw) }

func (c *Cluster) send(node int, s nodeSignal) error {
	c.mark(node, s)
	return c.nodes[node-1].signal(s)
}

// mark remembers which nodes do not answer, and why.
func (c *Cluster) mark(node int, s nodeSignal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == thaw {
		delete(c.down, node)
		return
	}
	if c.down == nil {
		c.down = map[int]nodeSignal{}
	}
	c.down[node] = s
}

// downs are the nodes that do not answer, with what they were sent.
func (c *Cluster) downs() map[int]nodeSignal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.down)
}

// up are the addresses of the nodes that answer.
func (c *Cluster) up() []string {
	var addrs []string
	down := c.downs()
	for i, addr := range c.Addrs {
		if _, is := down[i+1]; !is {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// Start starts nodes again that have ended, with what they had stored, and waits until they know all of the cluster.
func (c *Cluster) Start(ctx context.Context, nodes ...int) error {
	for _, node := range nodes {
		if err := c.nodes[node-1].run(); err != nil {
			return fmt.Errorf("start node %d: %w", node, err)
		}
		c.mark(node, thaw)
	}
	for _, node := range nodes {
		if err := c.await(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// Restore starts what has ended, thaws what is frozen, and settles, so that a test finds the cluster as the one before
// did.
func (c *Cluster) Restore(ctx context.Context) error {
	for node, s := range c.downs() {
		again := func() error { return c.Start(ctx, node) }
		if s == freeze {
			again = func() error { return c.Thaw(node) }
		}
		if err := again(); err != nil {
			return err
		}
	}
	return c.Settle(ctx)
}

// Close ends the nodes and removes their files.
func (c *Cluster) Close() error {
	err := c.each(func(i int) error { return c.nodes[i].remove() })
	if c.end != nil {
		err = errors.Join(err, c.end())
	}
	return err
}

// clusterSettings are the properties of a node that do not depend on where it runs.
func clusterSettings(id int, cfg ClusterConfig) [][2]string {
	settings := [][2]string{
		{"node.id", strconv.Itoa(id)},
		{"process.roles", "broker,controller"},
		{"controller.listener.names", "CONTROLLER"},
		{"inter.broker.listener.name", "INTERNAL"},
		{"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"},
		{"default.replication.factor", "3"},
		{"min.insync.replicas", "2"},
		{"offsets.topic.replication.factor", "3"},
		{"offsets.topic.num.partitions", "6"},
		{"transaction.state.log.replication.factor", "3"},
		{"transaction.state.log.min.isr", "2"},
		{"transaction.state.log.num.partitions", "3"},
		{"share.coordinator.state.topic.replication.factor", "3"},
		{"share.coordinator.state.topic.min.isr", "2"},
		{"group.initial.rebalance.delay.ms", "0"},
		{"group.min.session.timeout.ms", "500"},
		{"auto.create.topics.enable", "false"},
		{"auto.leader.rebalance.enable", "false"}, // tests elect leaders when they want to
		{"broker.session.timeout.ms", strconv.FormatInt(cfg.BrokerSession.Milliseconds(), 10)},
	}
	if cfg.BrokerSession < 6*time.Second {
		settings = append(settings, [2]string{"broker.heartbeat.interval.ms",
			strconv.FormatInt(cfg.BrokerSession.Milliseconds()/6, 10)})
	}
	return settings
}
