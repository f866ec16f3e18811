package servers

import (
	"cmp"
	"context"
	"os"
	"time"
)

func kafkaImage() string { return cmp.Or(os.Getenv(EnvKafkaImage), "apache/kafka:4.3.1") }

// DockerKafka starts a cluster of one node by Docker and nothing else, from the image that EINMAL_KAFKA_IMAGE names or
// from apache/kafka:4.3.1. Docker ends it after lifetime, also when this process was killed.
func DockerKafka(ctx context.Context, lifetime time.Duration) (*Kafka, error) {
	k, err := dockerKafka(ctx, lifetime)
	if err != nil {
		return nil, err
	}
	k.Origin = describe("Apache Kafka", k.Origin, nil)
	return k, nil
}

func dockerKafka(ctx context.Context, lifetime time.Duration) (*Kafka, error) {
	image := kafkaImage()
	e, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	k, err := e.kafka(ctx, image, lifetime)
	if err != nil {
		e.release()
		return nil, err
	}
	return k, nil
}

func (e *engine) kafka(ctx context.Context, image string, lifetime time.Duration) (*Kafka, error) {
	if err := e.need(ctx, image); err != nil {
		return nil, err
	}
	k := &Kafka{Kind: Apache, Origin: "by Docker, image " + image}
	c, err := e.serve(ctx, func(port string) (spec, func(context.Context) error) {
		k.Addrs = []string{"127.0.0.1:" + port}
		return spec{name: "einmal-kafka", image: image, port: "9092", env: kafkaEnv(port), lifetime: lifetime}, k.ping
	})
	if err != nil {
		return nil, err
	}
	k.close = c.close
	return k, nil
}

// kafkaEnv configures a single node. A listener advertises one address, and what is right on the host is wrong inside
// the container, where the broker connects to itself for transactions: so there are two. PLAINTEXT, at the port that
// the image exposes, is advertised as the one at 127.0.0.1; INTERNAL is the broker's own.
//
// As soon as one such variable is set, the image's own configuration is gone: all that is needed is here.
func kafkaEnv(port string) []string {
	return []string{
		"CLUSTER_ID=" + clusterID(),
		"KAFKA_NODE_ID=1",
		"KAFKA_PROCESS_ROLES=broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093",
		"KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
		"KAFKA_LISTENERS=PLAINTEXT://:9092,INTERNAL://:19092,CONTROLLER://:9093",
		"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:" + port + ",INTERNAL://localhost:19092",
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"KAFKA_INTER_BROKER_LISTENER_NAME=INTERNAL",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
		"KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=4",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1",
		"KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS=4",
		"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR=1",
		"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR=1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0",
		"KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS=500", // tests of lost members need not wait for 6 s
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE=false",
		"KAFKA_HEAP_OPTS=-Xms64m -Xmx384m",
		"KAFKA_JVM_PERFORMANCE_OPTS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
	}
}
