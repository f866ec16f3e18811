package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
)

var nop = consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })

func valid() consumer.Config {
	return consumer.Config{
		Brokers: []string{"localhost:9092"},
		Group:   "billing",
		Topics:  map[string]consumer.Topic{"orders": {Handler: nop}},
	}
}

// configErrors takes the error of New apart. All of it must be ConfigErrors, and each must say what to do.
func configErrors(t *testing.T, err error) []*consumer.ConfigError {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("New returned a %T: %v", err, err)
	}
	var all []*consumer.ConfigError
	for _, e := range joined.Unwrap() {
		ce, ok := e.(*consumer.ConfigError) //nolint:errorlint // each is one itself, not around one
		if !ok {
			t.Fatalf("a %T is among the errors: %v", e, e)
		}
		if ce.Field == "" || ce.Problem == "" || ce.Error() != "einmal: "+ce.Field+": "+ce.Problem {
			t.Errorf("%#v says %q", ce, ce)
		}
		all = append(all, ce)
	}
	return all
}

func withTopic(tp consumer.Topic) func(*consumer.Config) {
	return func(c *consumer.Config) { c.Topics = map[string]consumer.Topic{"orders": tp} }
}

func withBrokers(addrs ...string) func(*consumer.Config) {
	return func(c *consumer.Config) { c.Brokers = addrs }
}

func withClient(edit func(*sarama.Config)) func(*consumer.Config) {
	return func(c *consumer.Config) { c.Sarama = edit }
}

// returnsNil is a middleware as it is written by somebody who forgot the return value.
func returnsNil(consumer.Handler) consumer.Handler { return nil }

func returnsNilPointer(consumer.Handler) consumer.Handler { return (*linked)(nil) }

func through(next consumer.Handler) consumer.Handler { return consumer.HandlerFunc(next.Handle) }

func TestNewNamesFieldAndRemedy(t *testing.T) {
	t.Parallel()
	const orders = `Config.Topics["orders"]`
	for _, test := range []struct {
		name  string
		wrong func(*consumer.Config)
		field string
		says  []string
	}{
		{"no brokers", withBrokers(), "Config.Brokers", []string{"is empty", "localhost:9092"}},
		{"scheme", withBrokers("kafka://localhost:9092"), "Config.Brokers[0]",
			[]string{`"kafka://localhost:9092"`, "host:port", "without a scheme"}},
		{"no port", withBrokers("a:1", "localhost"), "Config.Brokers[1]", []string{`"localhost"`, "host:port"}},
		{"empty port", withBrokers("localhost:"), "Config.Brokers[0]", []string{"host:port"}},
		{"port 0", withBrokers("localhost:0"), "Config.Brokers[0]", []string{"host:port"}},
		{"port too large", withBrokers("localhost:65536"), "Config.Brokers[0]", []string{"host:port"}},
		{"port is a name", withBrokers("localhost:kafka"), "Config.Brokers[0]", []string{"host:port"}},
		{"no host", withBrokers(":9092"), "Config.Brokers[0]", []string{"host:port"}},
		{"empty address", withBrokers(""), "Config.Brokers[0]", []string{"host:port"}},
		{"one string for several", withBrokers("a:9092,b:9092"), "Config.Brokers[0]", []string{"host:port"}},
		{"path", withBrokers("localhost:9092/"), "Config.Brokers[0]", []string{"host:port"}},
		{"password", withBrokers("billing:hunter2@localhost:9092"), "Config.Brokers[0]",
			[]string{"holds a user or a password", "Net.SASL in Config.Sarama"}},
		{"password behind a scheme", withBrokers("sasl://billing:hunter2@localhost:9092"), "Config.Brokers[0]",
			[]string{"holds a user or a password"}},
		{"user", withBrokers("billing@localhost:9092"), "Config.Brokers[0]", []string{"holds a user or a password"}},
		{"bare IPv6", withBrokers("::1"), "Config.Brokers[0]", []string{"host:port"}},

		{"no group", func(c *consumer.Config) { c.Group = "" }, "Config.Group",
			[]string{"is empty", "name the consumer group"}},
		{"drain", func(c *consumer.Config) { c.DrainTimeout = -time.Second }, "Config.DrainTimeout",
			[]string{"-1s", "positive", "0 for the default"}},
		{"start", func(c *consumer.Config) { c.StartTimeout = -1 }, "Config.StartTimeout",
			[]string{"-1ns", "positive", "0 for the default"}},

		{"stall", func(c *consumer.Config) { c.StallTimeout = -time.Minute }, "Config.StallTimeout",
			[]string{"-1m0s", "positive", "0 for the default"}},
		{"messages per partition", func(c *consumer.Config) { c.Limits.PartitionMessages = -1 },
			"Config.Limits.PartitionMessages", []string{"-1", "positive", "0 for the default"}},
		{"bytes per partition", func(c *consumer.Config) { c.Limits.PartitionBytes = -2 }, "Config.Limits.PartitionBytes",
			[]string{"-2", "positive"}},
		{"messages", func(c *consumer.Config) { c.Limits.Messages = -3 }, "Config.Limits.Messages",
			[]string{"-3", "positive"}},
		{"bytes", func(c *consumer.Config) { c.Limits.Bytes = -4 }, "Config.Limits.Bytes", []string{"-4", "positive"}},
		{"ahead", func(c *consumer.Config) { c.Limits.Ahead = -5 }, "Config.Limits.Ahead", []string{"-5", "positive"}},

		{"rebalance above", func(c *consumer.Config) { c.Rebalance = 3 }, "Config.Rebalance",
			[]string{"is 3", "Eager, ToCooperative or Cooperative"}},
		{"rebalance below", func(c *consumer.Config) { c.Rebalance = -1 }, "Config.Rebalance",
			[]string{"is -1", "Eager, ToCooperative or Cooperative"}},
		{"a dynamic member that leaves", func(c *consumer.Config) { c.LeaveOnStop = true }, "Config.LeaveOnStop",
			[]string{"Config.InstanceID is not", "remove it"}},

		{"no topics", func(c *consumer.Config) { c.Topics = nil }, "Config.Topics",
			[]string{"is empty", "at least one topic"}},
		{"empty topics", func(c *consumer.Config) { c.Topics = map[string]consumer.Topic{} }, "Config.Topics",
			[]string{"is empty"}},
		{"topic without name", func(c *consumer.Config) { c.Topics = map[string]consumer.Topic{"": {Handler: nop}} },
			`Config.Topics[""]`, []string{"name is empty", "give the topic's name"}},
		{"no handler", withTopic(consumer.Topic{}), orders, []string{"Handler is missing", "set Topic.Handler"}},
		{"nil func", withTopic(consumer.Topic{Handler: consumer.HandlerFunc(nil)}), orders,
			[]string{"nil HandlerFunc", "set Topic.Handler"}},
		{"nil pointer", withTopic(consumer.Topic{Handler: (*linked)(nil)}), orders,
			[]string{"Handler is a nil *consumer_test.linked", "set Topic.Handler"}},
		{"middleware returns a nil pointer",
			withTopic(consumer.Topic{Handler: nop, Middleware: []consumer.Middleware{returnsNilPointer}}), orders,
			[]string{"middleware 0", "returned a nil Handler"}},
		{"JSON(nil)", withTopic(consumer.Topic{Handler: consumer.JSON[int](nil)}), orders,
			[]string{"Handler is missing", "set Topic.Handler"}},
		{"consumer", withTopic(consumer.Topic{Handler: nop, Consumer: strings.Repeat("x", 513)}), orders,
			[]string{"513 bytes", "at most 512"}},
		{"OnFailure above", withTopic(consumer.Topic{Handler: nop, OnFailure: 2}), orders,
			[]string{"OnFailure is 2", "KeepTrying or Stop"}},
		{"OnFailure below", withTopic(consumer.Topic{Handler: nop, OnFailure: -1}), orders,
			[]string{"OnFailure is -1", "KeepTrying or Stop"}},
		{"Order above", withTopic(consumer.Topic{Handler: nop, Order: 3}), orders,
			[]string{"Order is 3", "PartitionOrder, KeyOrder or Unordered"}},
		{"Order below", withTopic(consumer.Topic{Handler: nop, Order: -1}), orders,
			[]string{"Order is -1", "PartitionOrder, KeyOrder or Unordered"}},
		{"workers", withTopic(consumer.Topic{Handler: nop, Workers: -1}), orders,
			[]string{"Workers is -1", "positive", "0 for the default"}},
		{"OnStuck above", withTopic(consumer.Topic{Handler: nop, OnStuck: 2}), orders,
			[]string{"OnStuck is 2", "StopConsumer or LeaveGroup"}},
		{"OnStuck below", withTopic(consumer.Topic{Handler: nop, OnStuck: -1}), orders,
			[]string{"OnStuck is -1", "StopConsumer or LeaveGroup"}},
		{"nil middleware", withTopic(consumer.Topic{Handler: nop, Middleware: []consumer.Middleware{through, nil}}), orders,
			[]string{"middleware 1", "is nil", "remove it"}},
		{"middleware returns nil", withTopic(consumer.Topic{Handler: nop, Middleware: []consumer.Middleware{returnsNil,
			through}}), orders, []string{"middleware 0", "returned a nil Handler", "must return a handler"}},
		{"nil in Config.Middleware", func(c *consumer.Config) { c.Middleware = []consumer.Middleware{nil} }, orders,
			[]string{"middleware 0", "Config.Middleware comes first"}},

		{"sarama's own check", withClient(func(c *sarama.Config) { c.Net.MaxOpenRequests = 0 }), "Config.Sarama",
			[]string{"Net.MaxOpenRequests must be > 0"}},
		{"SASL without user", withClient(func(c *sarama.Config) { c.Net.SASL.Enable = true }), "Config.Sarama",
			[]string{"Net.SASL.User must not be empty"}},
		{"nil strategy", withClient(func(c *sarama.Config) {
			c.Consumer.Group.Rebalance.GroupStrategies = append(c.Consumer.Group.Rebalance.GroupStrategies, nil)
		}), "Config.Sarama", []string{"Strategies must not be empty"}},
		{"version without headers", withClient(func(c *sarama.Config) { c.Version = sarama.V0_10_2_0 }), "Config.Sarama",
			[]string{"Version to 0.10.2.0", "at least 0.11.0.0", "headers"}},
		{"owned field", withClient(func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest }),
			"Config.Sarama", []string{"Consumer.Offsets.Initial", "leave it out", "Topic.Start"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			test.wrong(&cfg)
			c, err := consumer.New(cfg)
			all := configErrors(t, err)
			if c != nil || len(all) != 1 {
				t.Fatalf("New returned %v and %d errors, want one: %v", c, len(all), err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password is told: %v", err)
			}
			if all[0].Field != test.field {
				t.Errorf("field %q, want %q", all[0].Field, test.field)
			}
			for _, text := range test.says {
				if !strings.Contains(all[0].Problem, text) {
					t.Errorf("%q does not say %q", all[0].Problem, text)
				}
			}
		})
	}
}

func TestNewAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*consumer.Config){
		"least":           func(*consumer.Config) {},
		"IPv6":            withBrokers("[::1]:9092", "kafka-1.example.com:65535", "127.0.0.1:1"),
		"a static member": func(c *consumer.Config) { c.LeaveOnStop, c.InstanceID = true, "this" },
		"cooperative":     func(c *consumer.Config) { c.Rebalance = consumer.Cooperative },
		"time-outs":       func(c *consumer.Config) { c.DrainTimeout, c.StartTimeout = time.Hour, 1 },
		"longest name":    withTopic(consumer.Topic{Handler: nop, Consumer: strings.Repeat("x", 512)}),
		"no limit": withTopic(consumer.Topic{Handler: nop, ProcessingLimit: -1, Workers: 1000,
			Order: consumer.Unordered, OnStuck: consumer.LeaveGroup}),
		"limits": func(c *consumer.Config) {
			c.Limits = consumer.Limits{PartitionMessages: 1, PartitionBytes: 1, Messages: 1, Bytes: 1, Ahead: 1}
		},
		"empty lists": func(c *consumer.Config) { c.Middleware = []consumer.Middleware{} },
		"client": withClient(func(c *sarama.Config) {
			c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true,
				"u", "p"
		}),
		"many topics": func(c *consumer.Config) {
			c.Topics["b"], c.Topics["c"] = consumer.Topic{Handler: nop}, consumer.Topic{Handler: nop, OnFailure: consumer.Stop}
		},
		"no edit":      withClient(func(*sarama.Config) {}),
		"group's name": func(c *consumer.Config) { c.Group = "größe, (1) / x" },
	} {
		cfg := valid()
		edit(&cfg)
		if _, err := consumer.New(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One call tells all that is wrong, in an order that does not change from call to call.
func TestNewReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	cfg := consumer.Config{
		Brokers:      []string{"good:9092", "bad", "kafka://bad:9092"},
		DrainTimeout: -1,
		StartTimeout: -1,
		Topics: map[string]consumer.Topic{
			"b": {OnFailure: 9},
			"a": {Handler: consumer.HandlerFunc(nil)},
			"d": {Handler: nop},
			"c": {Handler: nop, Middleware: []consumer.Middleware{nil}},
			"":  {Handler: nop, OnFailure: 9, Middleware: []consumer.Middleware{returnsNil}},
		},
		Sarama: func(c *sarama.Config) {
			c.Consumer.Return.Errors = false
			c.Consumer.Fetch.Max = 1
			c.Net.MaxOpenRequests = 0
			c.Net.ReadTimeout = time.Second
		},
	}
	want := []string{
		"Config.Brokers[1]", "Config.Brokers[2]", "Config.Group", "Config.DrainTimeout", "Config.StartTimeout",
		`Config.Topics[""]`, `Config.Topics[""]`, `Config.Topics[""]`, // name, OnFailure, middleware
		`Config.Topics["a"]`,
		`Config.Topics["b"]`, `Config.Topics["b"]`, // OnFailure, Handler
		`Config.Topics["c"]`,
		"Config.Sarama", "Config.Sarama", "Config.Sarama", "Config.Sarama", // two owned fields, sarama's own check, time-outs
	}
	var first string
	for range 20 { // the topics are a map
		_, err := consumer.New(cfg)
		var got []string
		for _, e := range configErrors(t, err) {
			got = append(got, e.Field)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("fields\n%q, want\n%q", got, want)
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Fatalf("two calls, two texts:\n%v\n%v", first, err)
		}
	}
}

// The errors are found by errors.As, as any part of a joined error.
func TestConfigErrorIsFound(t *testing.T) {
	t.Parallel()
	_, err := consumer.New(consumer.Config{})
	var ce *consumer.ConfigError
	if !errors.As(fmt.Errorf("billing: %w", err), &ce) || ce.Field != "Config.Brokers" {
		t.Errorf("found %v in %v", ce, err)
	}
}

// A password is in the configuration when New complains about something else in it.
func TestNewDoesNotTellThePassword(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Group = ""
	cfg.Sarama = func(c *sarama.Config) {
		c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "user", "hunter2"
		c.Net.SASL.Mechanism = "no such mechanism"
		c.Consumer.MaxProcessingTime = time.Hour
	}
	_, err := consumer.New(cfg)
	if len(configErrors(t, err)) != 3 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("New returned %v", err)
	}
}
