package consumer_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// A group's name that something else has, Kafka Connect for example, is named at the start, beside what else is wrong.
func TestGroupOfAnotherKind(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		joinAs(t, b, group, "connect")
		cfg := config(b, group, topic, nop)
		cfg.Topics["missing"] = consumer.Topic{Handler: nop}
		says(t, startError(t, cfg, late), `topics that do not exist: "missing"`, `use the protocol "connect"`, "Config.Group")
	})
}

// joinAs makes a bare member of a group of the given kind.
func joinAs(t *testing.T, b *serverstest.Broker, group, kind string) {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_4_0_0
	client, err := sarama.NewClient(b.Addrs, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	eventually(t, "the group has a member", func() bool {
		coordinator, err := client.Coordinator(group)
		if err != nil {
			return false
		}
		req := &sarama.JoinGroupRequest{Version: 2, GroupId: group, SessionTimeout: 30_000, RebalanceTimeout: 30_000,
			ProtocolType: kind}
		req.AddGroupProtocol("default", []byte{0})
		res, err := coordinator.JoinGroup(req)
		return err == nil && res.Err == sarama.ErrNoError
	})
}

// Members with another strategy are told of before joining is refused.
func TestGroupWithAnotherStrategy(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		eager := start(t, config(b, group, topic, nop))
		eventually(t, "it runs", func() bool { return shared([]*member{eager}, 2) })
		log := &bytes.Buffer{} // read when Run has returned
		cfg := config(b, group, topic, nop)
		cfg.Rebalance, cfg.Logger = consumer.Cooperative, slog.New(slog.NewTextHandler(log, nil))
		m := start(t, cfg)
		receive(t, m.done)
		text := log.String()
		told, refused := strings.Index(text, "theirs=range offered=cooperative-sticky"), strings.Index(text, "draining")
		if told < 0 || refused >= 0 && refused < told {
			t.Errorf("the log does not tell of it first: %s", text)
		}
	})
}
