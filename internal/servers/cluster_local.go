package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// localCluster runs the nodes from the jars that EINMAL_KAFKA_JARS names.
func localCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	jars := os.Getenv(EnvKafkaJars)
	if jars == "" {
		return nil, fmt.Errorf("%s is not set", EnvKafkaJars)
	}
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	return retryPorts(func() (*Cluster, error) {
		dir, err := ownDir("einmal-cluster-")
		if err != nil {
			return nil, err
		}
		c := &Cluster{Origin: "from the jars in " + jars, BrokerSession: cfg.BrokerSession,
			end: func() error { return os.RemoveAll(dir) }}
		err = c.prepareLocal(ctx, node{java: java, jars: jars, dir: dir}, cfg)
		if err == nil {
			err = c.startNodes(ctx)
		}
		if err != nil {
			return nil, joinClose(err, c.Close)
		}
		return c, nil
	})
}

// retryPorts starts again, with other ports, when somebody else took one that was free.
func retryPorts(start func() (*Cluster, error)) (c *Cluster, err error) {
	for range 5 {
		if c, err = start(); err == nil || !portTaken(err) {
			return c, err
		}
	}
	return c, err
}

// prepareLocal writes the nodes' configurations and formats their storage.
func (c *Cluster) prepareLocal(ctx context.Context, program node, cfg ClusterConfig) error {
	var controllers, voters []string
	for id := 1; id <= clusterSize; id++ {
		controller, err := freePort(ctx)
		if err != nil {
			return err
		}
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		controllers = append(controllers, controller)
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%s", id, controller))
		c.Addrs = append(c.Addrs, "127.0.0.1:"+port)
		c.nodes = append(c.nodes, &localNode{program: program, id: id})
	}
	cluster := clusterID()
	return c.each(func(i int) error {
		internal, err := freePort(ctx)
		if err != nil {
			return err
		}
		settings := append(clusterSettings(i+1, cfg), [][2]string{
			{"controller.quorum.voters", strings.Join(voters, ",")},
			{"listeners", "PLAINTEXT://" + c.Addrs[i] + ",INTERNAL://127.0.0.1:" + internal + ",CONTROLLER://127.0.0.1:" +
				controllers[i]},
			{"advertised.listeners", "PLAINTEXT://" + c.Addrs[i] + ",INTERNAL://127.0.0.1:" + internal},
			{"log.dirs", filepath.Join(program.dir, fmt.Sprintf("data-%d", i+1))},
		}...)
		return c.nodes[i].(*localNode).format(ctx, cluster, settings) //nolint:forcetypeassert // it was put there above
	})
}

// localNode is a node as a child process.
type localNode struct {
	program node
	id      int

	mu      sync.Mutex
	process *process
}

func (n *localNode) file() string {
	return filepath.Join(n.program.dir, fmt.Sprintf("node-%d.properties", n.id))
}

func (n *localNode) format(ctx context.Context, cluster string, settings [][2]string) error {
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s=%s\n", s[0], s[1])
	}
	if err := os.WriteFile(n.file(), []byte(b.String()), 0o600); err != nil {
		return err
	}
	out, err := n.program.run(ctx, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", n.file()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format the storage of node %d: %w\n%s", n.id, err, out)
	}
	return nil
}

func (n *localNode) run() error {
	p, err := start(n.program.run(context.Background(), "-Xmx256m", "kafka.Kafka", n.file()), syscall.SIGKILL)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.process = p
	return nil
}

// current is the process that was started last, nil before the first.
func (n *localNode) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

func (n *localNode) ended() <-chan struct{} { return n.current().done }

func (n *localNode) output() string { return n.current().output.String() }

var localSignals = map[nodeSignal]syscall.Signal{
	kill: syscall.SIGKILL, terminate: syscall.SIGTERM, freeze: syscall.SIGSTOP, thaw: syscall.SIGCONT,
}

func (n *localNode) signal(s nodeSignal) error {
	p := n.current()
	if p == nil {
		return errors.New("it was not started")
	}
	return p.cmd.Process.Signal(localSignals[s])
}

// remove leaves the files to the cluster, which has them in one directory.
func (n *localNode) remove() error {
	if p := n.current(); p != nil {
		p.stop(syscall.SIGKILL)
	}
	return nil
}
