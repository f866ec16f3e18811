package servers

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// The kinds of Kafka that there are.
const (
	InProcess = "in-process" // the protocol, within this process
	Apache    = "kafka"      // a real cluster
)

// Kafka is a cluster of brokers. It is safe for concurrent use.
type Kafka struct {
	// Addrs are the brokers, as host:port.
	Addrs []string
	// Kind is InProcess or Apache.
	Kind string
	// Origin tells a human what serves and where it is from.
	Origin string
	// Fake injects faults into an in-process Kafka; it is nil for a real one.
	Fake *kfake.Cluster

	close func() error
}

// Close ends the brokers if they were started here. A cluster that ran already stays.
func (k *Kafka) Close() error {
	if k.close == nil {
		return nil
	}
	return k.close()
}

// RealKafka finds or starts an Apache Kafka in the order of the package's documentation. ctx bounds the search and the
// start, not the brokers' life: that ends with Close, or with this process.
func RealKafka(ctx context.Context) (*Kafka, error) {
	if brokers := os.Getenv(EnvKafkaBrokers); brokers != "" {
		return runningKafka(ctx, brokers)
	}
	k, reasons, err := first(ctx, kafkaSources(ctx))
	if err != nil {
		return nil, fmt.Errorf("no Apache Kafka could be found or started: start Docker, or set %s to the brokers of a cluster, or %s to a "+
			"directory with Kafka's jars\n\t%s", EnvKafkaBrokers, EnvKafkaJars, strings.Join(reasons, "\n\t"))
	}
	k.Origin = describe("Apache Kafka", k.Origin, reasons)
	return k, nil
}

func kafkaSources(ctx context.Context) []source[*Kafka] {
	return []source[*Kafka]{
		{"Docker", EnvKafkaImage, func() (*Kafka, error) { return dockerKafka(ctx, testLifetime) }},
		{"local jars", EnvKafkaJars, func() (*Kafka, error) { return localKafka(ctx) }},
	}
}

// runningKafka uses a cluster that somebody else started.
func runningKafka(ctx context.Context, list string) (*Kafka, error) {
	k := &Kafka{Kind: Apache, Origin: "Apache Kafka from " + EnvKafkaBrokers}
	for addr := range strings.SplitSeq(list, ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			k.Addrs = append(k.Addrs, addr)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := until(ctx, nil, nil, k.ping); err != nil {
		return nil, fmt.Errorf("the cluster named by %s does not answer; correct or unset the variable: %w", EnvKafkaBrokers,
			err)
	}
	return k, nil
}

// ping tells whether a broker answers and knows a controller. That a TCP connection opens proves nothing: Docker's
// proxy accepts it before the broker listens.
func (k *Kafka) ping(context.Context) error {
	cfg := sarama.NewConfig()
	cfg.ClientID = "einmal-servers"
	cfg.Version = sarama.V3_6_0_0
	cfg.Metadata.Retry.Max = 0
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	client, err := sarama.NewClient(k.Addrs, cfg)
	if err != nil {
		return err
	}
	_, err = client.Controller()
	return joinClose(err, client.Close)
}
