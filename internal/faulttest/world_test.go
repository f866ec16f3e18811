package faulttest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/servers"
)

const (
	partitions = 6
	// perSecond is how many messages of each partition are produced and, while the pace is kept, handled.
	perSecond = 50
	// backlog is how many messages of each partition are there before the members begin. With acks=all no new message
	// becomes visible, on any partition, until a dead replica is given up; so what a client is to be blamed for shows on
	// old ones.
	backlog = 40 * perSecond
	// commitInterval is how often the members commit, einmal's and sarama's default.
	commitInterval = time.Second
	// commitMargin is for a commit to be answered, and for a handler's last message.
	commitMargin = time.Second
)

// world is a topic, and all that a test knows of it.
type world struct {
	t       *testing.T
	cluster *servers.Cluster
	id      string
	topic   string
	client  sarama.Client
	admin   sarama.ClusterAdmin
	*producer
	pace atomic.Int64 // how long a handler takes
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := need(t)
	w := &world{t: t, cluster: c, id: strings.ToLower(rand.Text()[:8])}
	w.topic = "orders-" + w.id
	w.pace.Store(int64(time.Second / perSecond))
	var err error
	w.client, err = sarama.NewClient(c.Addrs, toolConfig())
	must(t, err)
	w.admin, err = sarama.NewClusterAdminFromClient(w.client)
	must(t, err)
	t.Cleanup(func() { _ = w.admin.Close() })
	must(t, w.admin.CreateTopic(w.topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3}, false))
	t.Cleanup(func() { _ = w.admin.DeleteTopic(w.topic) })
	eventually(t, time.Minute, "the topic has leaders", func() bool { return len(w.leaders()) == partitions })
	w.producer = startProducer(t, w.cluster.Addrs, w.topic, w.id)
	return w
}

// toolConfig is that of the clients which act for the test.
func toolConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "einmal-faulttest"
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 2*time.Second, 5*time.Second, 5*time.Second
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 3, 100*time.Millisecond
	return c
}

// leaders are the nodes that lead the partitions, those that are led at all.
func (w *world) leaders() map[int32]int {
	found, err := w.admin.DescribeTopics([]string{w.topic})
	if err != nil {
		return nil
	}
	leaders := map[int32]int{}
	for _, p := range found[0].Partitions {
		if p.Err == sarama.ErrNoError && p.Leader > 0 {
			leaders[p.ID] = int(p.Leader)
		}
	}
	return leaders
}

// ledBy are the partitions that a node leads.
func (w *world) ledBy(node int) []int32 {
	w.t.Helper()
	var led []int32
	for p, leader := range w.leaders() {
		if leader == node {
			led = append(led, p)
		}
	}
	if len(led) == 0 {
		w.t.Fatalf("node %d leads no partition", node)
	}
	slices.Sort(led)
	return led
}

// group finds a name for a group that the node coordinates.
func (w *world) group(prefix string, node int) string {
	w.t.Helper()
	var err error
	for i := range 300 {
		name := fmt.Sprintf("%s-%s-%d", prefix, w.id, i)
		var coordinator int
		if coordinator, err = w.cluster.Coordinator(name); coordinator == node {
			return name
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // the topic of the offsets is being created
		}
	}
	w.t.Fatalf("no group is coordinated by node %d: %v", node, err)
	return ""
}

// controller is the node with the active controller.
func (w *world) controller() int {
	w.t.Helper()
	node, err := w.cluster.Controller(w.t.Context())
	must(w.t, err)
	return node
}

// other is a node that is none of these.
func other(nodes ...int) int {
	for node := 1; ; node++ {
		if !slices.Contains(nodes, node) {
			return node
		}
	}
}

// ends are the ends of the partitions' logs.
func (w *world) ends() (map[int32]int64, error) {
	ends := map[int32]int64{}
	for p := range int32(partitions) {
		end, err := w.client.GetOffset(w.topic, p, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		ends[p] = end
	}
	return ends, nil
}

// committed are the committed offsets of a group.
func (w *world) committed(group string) (map[int32]int64, error) {
	answer, err := w.admin.ListConsumerGroupOffsets(group, map[string][]int32{w.topic: {0, 1, 2, 3, 4, 5}})
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for p := range int32(partitions) {
		if block := answer.GetBlock(w.topic, p); block != nil && block.Err == sarama.ErrNoError {
			offsets[p] = block.Offset
		}
	}
	return offsets, nil
}

// finish ends the producer, lets the handlers hurry, and waits until the groups have committed the ends of the log.
func (w *world) finish(groups ...*group) {
	w.t.Helper()
	w.produced()
	w.pace.Store(0)
	for _, g := range groups {
		var committed, ends map[int32]int64
		deadline := time.Now().Add(90 * time.Second)
		for {
			var err error
			if ends, err = w.ends(); err == nil {
				committed, err = w.committed(g.name)
			}
			if err == nil && len(committed) == partitions && mapsEqual(committed, ends) {
				break
			}
			if time.Now().After(deadline) {
				w.t.Errorf("%s: committed are %v, the ends of the log are %v, %v", g.client, committed, ends, err)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func mapsEqual(a, b map[int32]int64) bool {
	for p := range int32(partitions) {
		if a[p] != b[p] {
			return false
		}
	}
	return true
}
