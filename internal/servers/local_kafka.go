package servers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// node is an Apache Kafka of a single node that runs from jars, and where its files are.
type node struct {
	java, jars, dir string
	second          *listener // nil for none
}

// localKafka starts Kafka from the jars that EINMAL_KAFKA_JARS names.
func localKafka(ctx context.Context) (*Kafka, error) { return localKafkaWith(ctx, nil) }

// localKafkaWith starts it with a second listener, if that is not nil.
func localKafkaWith(ctx context.Context, second *listener) (*Kafka, error) {
	jars := os.Getenv(EnvKafkaJars)
	if jars == "" {
		return nil, fmt.Errorf("%s is not set", EnvKafkaJars)
	}
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	dir, err := ownDir("einmal-kafka-")
	if err != nil {
		return nil, err
	}
	n := &node{java: java, jars: jars, dir: dir, second: second}
	k, err := onFreePort(ctx, func(port string) (*Kafka, error) { return n.listen(ctx, port) })
	if err != nil {
		return nil, joinClose(err, n.remove)
	}
	return k, nil
}

// findJava prefers the one of JAVA_HOME to that on PATH.
func findJava() (string, error) {
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(java)
	if err != nil {
		return "", fmt.Errorf("Kafka needs a Java runtime, 17 or newer: %w", err)
	}
	return path, nil
}

func (n *node) remove() error { return os.RemoveAll(n.dir) }

// run makes a command of one of Kafka's programs.
func (n *node) run(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{"-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
		filepath.Join(n.jars, "*")}
	cmd := exec.CommandContext(ctx, n.java, slices.Concat(flags, args)...)
	cmd.Dir = n.dir
	return cmd
}

// listen formats the storage and starts the broker at the port.
func (n *node) listen(ctx context.Context, port string) (*Kafka, error) {
	conf, err := n.configure(ctx, port)
	if err != nil {
		return nil, err
	}
	if out, err := n.run(ctx, "kafka.tools.StorageTool", "format", "-t", clusterID(), "-c",
		conf).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format Kafka's storage: %w\n%s", err, out)
	}
	p, err := start(n.run(context.WithoutCancel(ctx), "kafka.Kafka", conf), syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	k := &Kafka{
		Addrs:  []string{"127.0.0.1:" + port},
		Kind:   Apache,
		Origin: "from the jars in " + n.jars,
		close: func() error {
			p.stop(syscall.SIGKILL)
			return n.remove()
		},
	}
	if err := until(ctx, p.done, p.ended, k.ping); err != nil {
		p.stop(syscall.SIGKILL)
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return k, nil
}

// configure writes the properties of a node at the port.
func (n *node) configure(ctx context.Context, port string) (file string, err error) {
	controller, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	also := listener{}
	if n.second != nil {
		also = *n.second
	}
	properties := strings.Join(slices.Concat([]string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@127.0.0.1:" + controller,
		"listeners=PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller + also.address(),
		"advertised.listeners=PLAINTEXT://127.0.0.1:" + port + also.address(),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT" + also.protocol(),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"log.dirs=" + filepath.Join(n.dir, "data-"+port),
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=4",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=500",
		"auto.create.topics.enable=false",
	}, also.properties, []string{""}), "\n")
	file = filepath.Join(n.dir, "server.properties")
	return file, os.WriteFile(file, []byte(properties), 0o600)
}

// clusterID is a random id as Kafka writes them. Its first bit is 0: a leading "-" would be taken for an option.
func clusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id[:])
}
