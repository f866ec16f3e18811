package servers

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// InProcessKafka starts brokers within this process that speak the real protocol: three nodes at 127.0.0.1, no topics,
// none created by asking for it, and group sessions of 100 ms and more allowed (a real broker's least is 6 s, or what
// it is configured to), so that tests of lost members need not wait. opts come after these and can change them. Other
// processes can use the brokers for as long as this one lives.
func InProcessKafka(opts ...kfake.Opt) (*Kafka, error) {
	defaults := []kfake.Opt{
		kfake.NumBrokers(3),
		kfake.ClusterID("einmal-in-process"),
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
	}
	cluster, err := kfake.NewCluster(append(defaults, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("start the in-process Kafka: %w", err)
	}
	return &Kafka{
		Addrs:  cluster.ListenAddrs(),
		Kind:   InProcess,
		Origin: "in-process Kafka (kfake)",
		Fake:   cluster,
		close:  func() error { cluster.Close(); return nil },
	}, nil
}
