package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// dockerCluster runs the nodes as containers, on a network of their own.
func dockerCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	e, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	e.sweepNetworks()
	c, err := e.cluster(ctx, kafkaImage(), cfg)
	if err != nil {
		e.release()
		return nil, err
	}
	return c, nil
}

func (e *engine) cluster(ctx context.Context, image string, cfg ClusterConfig) (*Cluster, error) {
	if err := e.need(ctx, image); err != nil {
		return nil, err
	}
	return retryPorts(func() (*Cluster, error) {
		name := "einmal-cluster-" + strings.ToLower(rand.Text()[:8])
		network, err := e.pool.CreateNetwork(name, func(o *docker.CreateNetworkOptions) { o.Labels = labels() })
		if err != nil {
			return nil, err
		}
		c := &Cluster{Origin: "by Docker, image " + image, BrokerSession: cfg.BrokerSession, end: func() error {
			defer e.release()
			return e.pool.Client.RemoveNetwork(network.Network.ID)
		}}
		if err = c.prepareDocker(ctx, e, network, name, image, cfg); err == nil {
			err = c.startNodes(ctx)
		}
		if err != nil {
			return nil, joinClose(err, c.Close)
		}
		return c, nil
	})
}

// prepareDocker chooses the nodes' names and ports. Docker's name service knows a container by its name.
func (c *Cluster) prepareDocker(ctx context.Context, e *engine, network *dockertest.Network, name, image string,
	cfg ClusterConfig) error {
	var voters []string
	for id := 1; id <= clusterSize; id++ {
		voters = append(voters, fmt.Sprintf("%d@%s-%d:9093", id, name, id))
	}
	cluster := clusterID()
	for id := 1; id <= clusterSize; id++ {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		host := fmt.Sprintf("%s-%d", name, id)
		settings := append(clusterSettings(id, cfg), [][2]string{
			{"controller.quorum.voters", strings.Join(voters, ",")},
			{"listeners", "PLAINTEXT://:9092,INTERNAL://:19092,CONTROLLER://:9093"},
			{"advertised.listeners", "PLAINTEXT://127.0.0.1:" + port + ",INTERNAL://" + host + ":19092"},
		}...)
		repository, tag := splitImage(image)
		own := *network // dockertest writes to it when a node starts, and nodes start side by side
		c.Addrs = append(c.Addrs, "127.0.0.1:"+port)
		c.nodes = append(c.nodes, &dockerNode{engine: e, lifetime: cfg.Lifetime, options: dockertest.RunOptions{
			Name: host, Hostname: host, Repository: repository, Tag: tag, Env: nodeEnv(cluster, settings), Labels: labels(),
			Networks: []*dockertest.Network{&own},
			PortBindings: map[docker.Port][]docker.PortBinding{
				"9092/tcp": {{HostIP: "127.0.0.1", HostPort: port}},
			},
		}})
	}
	return nil
}

// nodeEnv writes properties as the image reads them.
func nodeEnv(cluster string, settings [][2]string) []string {
	env := []string{
		"CLUSTER_ID=" + cluster,
		"KAFKA_HEAP_OPTS=-Xms64m -Xmx256m",
		"KAFKA_JVM_PERFORMANCE_OPTS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
		"KAFKA_OPTS=-Dsun.net.inetaddr.ttl=1", // a container that is started again can have another address
	}
	for _, s := range settings {
		env = append(env, "KAFKA_"+strings.ToUpper(strings.ReplaceAll(s[0], ".", "_"))+"="+s[1])
	}
	return env
}

// dockerNode is a node as a container.
type dockerNode struct {
	engine   *engine
	options  dockertest.RunOptions
	lifetime time.Duration

	mu        sync.Mutex
	resource  *dockertest.Resource // nil before the first start
	container *container
}

func (n *dockerNode) run() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.start(); err != nil {
		return err
	}
	_ = n.resource.Expire(uint(n.lifetime.Seconds())) // one that ends with each start; it answers at once, and always nil
	n.container = n.engine.follow(n.resource.Container.ID)
	return nil
}

func (n *dockerNode) start() error {
	if n.resource != nil {
		n.container.quiet()
		return n.engine.pool.Client.StartContainer(n.resource.Container.ID, nil)
	}
	resource, err := n.engine.pool.RunWithOptions(&n.options, func(h *docker.HostConfig) {
		h.PublishAllPorts = false                        // dockertest would publish every exposed port at every address
		h.NetworkMode = n.options.Networks[0].Network.ID // and join the default network as well
		h.RestartPolicy = docker.NeverRestart()          // a test starts it again, with what it has stored
	})
	if err != nil {
		_ = n.engine.pool.RemoveContainerByName(n.options.Name) // it can be there, created and not started
		return err
	}
	n.resource = resource
	return nil
}

// current is the container as it was started last, nil before the first start.
func (n *dockerNode) current() *container {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.container
}

// ended is closed when its output has ended: the container has, or somebody is about to start it again.
func (n *dockerNode) ended() <-chan struct{} { return n.current().done }

func (n *dockerNode) output() string { return n.current().output.String() }

func (n *dockerNode) signal(s nodeSignal) error {
	client, id := n.engine.pool.Client, n.current().id
	switch s {
	case freeze:
		return pause(client, id)
	case thaw:
		return client.UnpauseContainer(id)
	case terminate:
		return client.KillContainer(docker.KillContainerOptions{ID: id, Signal: docker.SIGTERM})
	default:
		return client.KillContainer(docker.KillContainerOptions{ID: id, Signal: docker.SIGKILL})
	}
}

// pause pauses a container. On a busy machine runc gives up while processes of it are on their way into the freezer,
// and thaws them: "unable to freeze".
func pause(client *docker.Client, id string) (err error) {
	for range pauseTries {
		if err = client.PauseContainer(id); err == nil || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
		time.Sleep(pauseRest)
	}
	return err
}

const (
	pauseTries = 20
	pauseRest  = 250 * time.Millisecond
)

func (n *dockerNode) remove() error {
	c := n.current()
	if c == nil {
		return nil
	}
	_ = n.engine.pool.Client.UnpauseContainer(c.id) // a frozen one cannot be killed
	c.quiet()
	<-c.done
	return n.engine.remove(c.id)
}

// sweepNetworks removes the networks of processes of this host that are gone. Their containers have been swept before.
func (e *engine) sweepNetworks() {
	found, _ := e.pool.Client.FilteredListNetworks(docker.NetworkFilterOpts{"label": {labelOwner: true}})
	host := labels()[labelHost]
	for _, n := range found {
		if cmp.Or(n.Labels[labelHost], host) == host && gone(n.Labels[labelPID]) {
			_ = e.pool.Client.RemoveNetwork(n.ID)
		}
	}
}
