package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// A cluster of child processes. internal/faulttest does all of this, at length, with one by Docker where there is an
// image.
func TestClusterFromJars(t *testing.T) {
	if os.Getenv(EnvKafkaJars) == "" {
		t.Skip(EnvKafkaJars + " is not set")
	}
	noVariables(t)
	breakCluster(t)
	if dirs := left("einmal-cluster-", pid()); len(dirs) > 0 {
		t.Errorf("left behind: %v", dirs)
	}
}

func breakCluster(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	began := time.Now()
	lap := func(what string) {
		t.Helper()
		t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	c, err := StartCluster(ctx, ClusterConfig{BrokerSession: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	lap(c.Origin)
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		lap("close")
	}()
	createTopic(t, c, "orders")
	lap("topic")
	leader := firstLeader(t, c)
	if controller, err := c.Controller(ctx); err != nil || controller < 1 || controller > clusterSize {
		t.Errorf("the active controller is %d, %v", controller, err)
	}
	lap("leader and controller")
	moved := func() error {
		return until(ctx, nil, nil, func(context.Context) error {
			next, err := c.Leader("orders", 0)
			if err == nil && next == leader {
				return errors.New("the node that does not answer leads")
			}
			return err
		})
	}
	back := func() error {
		return until(ctx, nil, nil, func(context.Context) error {
			next, err := c.Leader("orders", 0)
			if err == nil && next != leader {
				return fmt.Errorf("node %d leads, not %d", next, leader)
			}
			return err
		})
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"kill", func() error { return c.Kill(leader) }},
		{"another leads", moved},
		{"start", func() error { return c.Start(ctx, leader) }},
		{"settle", func() error { return c.Settle(ctx) }},
		{"the first one leads", back},
		{"freeze", func() error { return c.Freeze(leader) }},
		{"another leads again", moved},
		{"thaw", func() error { return c.Thaw(leader) }},
		{"it answers", func() error { return c.await(ctx, leader) }},
		{"terminate", func() error { return c.Terminate(leader) }},
		{"start again", func() error { return c.Start(ctx, leader) }},
		{"freeze, to be removed", func() error { return c.Freeze(leader) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		lap(s.name)
	}
}

// firstLeader waits for it: a topic is created by the controller, the other nodes hear of it later.
func firstLeader(t *testing.T, c *Cluster) (leader int) {
	t.Helper()
	err := until(t.Context(), nil, nil, func(context.Context) (err error) {
		leader, err = c.Leader("orders", 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

func createTopic(t *testing.T, c *Cluster, name string) {
	t.Helper()
	_, err := ask(c, func(client sarama.Client) (struct{}, error) {
		admin, err := sarama.NewClusterAdminFromClient(client)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 3}, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}
