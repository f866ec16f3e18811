package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// windowTimeout bounds how long the comparison delays the start.
const windowTimeout = 5 * time.Second

// The settings that are asked for.
var (
	topicSettings = []string{"cleanup.policy", "retention.ms", "segment.ms", "message.timestamp.type",
		"message.timestamp.after.max.ms"}
	brokerSettings = []string{
		"offsets.retention.minutes", "log.retention.check.interval.ms", "group.min.session.timeout.ms",
		"group.max.session.timeout.ms",
	}
)

// checkWindows compares the topics' windows with how old messages can be when they are delivered. That the brokers do
// not tell is a warning too: many clusters keep their configuration to themselves.
func (c *Consumer) checkWindows(ctx context.Context, client sarama.Client) {
	windows := map[string]time.Duration{}
	for name, t := range c.topics {
		if w := t.window(); w > 0 {
			windows[name] = w
		}
	}
	if len(windows) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(windows))
	ctx, cancel := context.WithTimeout(ctx, windowTimeout)
	defer cancel()
	found, err := bounded(ctx, 0, func() (*settings, error) { return askSettings(client, names) }, func(*settings) {})
	if err != nil {
		found = unknownSettings(names, err)
	}
	for _, name := range names {
		for _, problem := range found.compare(name, windows[name], c.topics[name].start) {
			c.cfg.Logger.Warn("einmal: "+problem, slog.String(attrGroup, c.cfg.Group), slog.String(attrTopic, name))
		}
	}
}

// compare returns what is to be said of a topic.
func (s *settings) compare(name string, window time.Duration, start Start) (problems []string) {
	if err := s.errs[name]; err != nil {
		return []string{fmt.Sprintf("the window was not compared with how long the topic keeps messages, because the brokers do not tell: %v: "+
			"allow the user DESCRIBE_CONFIGS on the topic and the cluster, or compare by hand", err)}
	}
	for _, problem := range []string{shortWindow(window, s.topics[name], s.broker, start), runsAhead(s.topics[name])} {
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// settings are those of topics, and of one broker, which stands for all.
type settings struct {
	topics map[string]retention
	broker retention        // nil if it does not tell
	errs   map[string]error // of topics that it does not tell about
}

func unknownSettings(topics []string, err error) *settings {
	s := &settings{errs: map[string]error{}}
	for _, name := range topics {
		s.errs[name] = err
	}
	return s
}

// askSettings asks one broker, for the topics and for itself.
func askSettings(client sarama.Client, topics []string) (*settings, error) {
	res, err := askAny(client, func(broker *sarama.Broker) (*sarama.DescribeConfigsResponse, error) {
		req := &sarama.DescribeConfigsRequest{Version: describeConfigsVersion(client.Config().Version)}
		for _, name := range topics {
			req.Resources = append(req.Resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: name,
				ConfigNames: topicSettings})
		}
		if broker.ID() >= 0 { // else it is an address of the configuration, whose id nobody has told
			req.Resources = append(req.Resources, &sarama.ConfigResource{
				Type: sarama.BrokerResource, Name: strconv.Itoa(int(broker.ID())), ConfigNames: brokerSettings,
			})
		}
		return broker.DescribeConfigs(req)
	})
	if err != nil {
		return nil, err
	}
	s := &settings{topics: map[string]retention{}, errs: map[string]error{}}
	for _, r := range res.Resources {
		values := retention{}
		for _, entry := range r.Configs {
			values[entry.Name] = entry.Value
		}
		switch {
		case r.Type == sarama.BrokerResource && r.ErrorCode == 0:
			s.broker = values
		case r.Type == sarama.TopicResource && r.ErrorCode == 0:
			s.topics[r.Name] = values
		case r.Type == sarama.TopicResource:
			s.errs[r.Name] = sarama.KError(r.ErrorCode)
		}
	}
	return s, nil
}

func describeConfigsVersion(v sarama.KafkaVersion) int16 {
	switch {
	case v.IsAtLeast(sarama.V2_8_0_0):
		return 4
	case v.IsAtLeast(sarama.V2_0_0_0):
		return 2
	default:
		return 0
	}
}
