package consumer

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// ConfigError is one of the errors that New joins.
type ConfigError struct {
	Field   string // as it is written in Go, "Config.Group" or `Config.Topics["orders"]`
	Problem string // what is wrong, and what to do
}

func (e *ConfigError) Error() string { return "einmal: " + e.Field + ": " + e.Problem }

// problems collects the errors of a configuration.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// validate checks what can be checked without I/O, all of it, and returns the topics composed and the client's
// configuration.
func validate(cfg Config, st *strategy) (map[string]*topic, *sarama.Config, error) {
	var p problems
	validateBrokers(&p, cfg.Brokers)
	if cfg.Group == "" {
		p.add("Config.Group", "is empty: name the consumer group, the same in every process of the service")
	} else if what := oddName(cfg.Group); what != "" {
		p.add("Config.Group", "is %q, which %s: correct it", cfg.Group, what)
	}
	notNegative(&p, "Config.DrainTimeout", cfg.DrainTimeout)
	notNegative(&p, "Config.StartTimeout", cfg.StartTimeout)
	notNegative(&p, "Config.StallTimeout", cfg.StallTimeout)
	cfg.Limits.validate(&p)
	topics := validateTopics(&p, cfg)
	validateEffectNames(&p, topics)
	validateGroup(&p, cfg)
	sc := saramaConfig(&p, cfg, st)
	return topics, sc, errors.Join(p...)
}

func validateBrokers(p *problems, brokers []string) {
	if len(brokers) == 0 {
		p.add("Config.Brokers", `is empty: give at least one address, "localhost:9092" for example`)
	}
	for i, b := range brokers {
		if strings.Contains(b, "@") { // the text must not repeat what stands before it
			p.add(fmt.Sprintf("Config.Brokers[%d]", i),
				`holds a user or a password: write "host:port" alone, and set Net.SASL in Config.Sarama`)
			continue
		}
		if !kafkaconf.IsAddress(b) {
			p.add(fmt.Sprintf("Config.Brokers[%d]", i), `%q is not an address: write "host:port", without a scheme`, b)
		}
	}
}

// validateGroup checks what belongs to the membership.
func validateGroup(p *problems, cfg Config) {
	if cfg.Rebalance < Eager || cfg.Rebalance > Cooperative {
		p.add("Config.Rebalance", "is %d: use Eager, ToCooperative or Cooperative", int(cfg.Rebalance))
	}
	if cfg.LeaveOnStop && cfg.InstanceID == "" {
		p.add("Config.LeaveOnStop", "is set, but Config.InstanceID is not: a dynamic member always leaves; remove it")
	}
	if cfg.Rebalance == Eager {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Topics)) {
		if t := cfg.Topics[name]; !t.Start.oldest() || t.OutOfRange != ToOldest {
			p.add(fmt.Sprintf("Config.Topics[%q]", name), "Start or OutOfRange is set, but Config.Rebalance is %v: "+
				"partitions that come by a cooperative rebalance start where they are committed, or at the oldest message; use Eager, or leave them out", cfg.Rebalance)
		}
	}
}

func notNegative(p *problems, field string, d time.Duration) {
	if d < 0 {
		p.add(field, "is %v: give a positive duration, or 0 for the default", d)
	}
}

func validateTopics(p *problems, cfg Config) map[string]*topic {
	if len(cfg.Topics) == 0 {
		p.add("Config.Topics", "is empty: name at least one topic and its Handler")
	}
	topics := make(map[string]*topic, len(cfg.Topics))
	for _, name := range slices.Sorted(maps.Keys(cfg.Topics)) {
		t, err := newTopic(cfg, name)
		if err != nil {
			for _, err := range flatten(err) {
				p.add(fmt.Sprintf("Config.Topics[%q]", name), "%v", err)
			}
			continue
		}
		topics[name] = t
	}
	return topics
}

// flatten returns the errors that errors.Join put together.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}

// oddName says what is in a name that nobody means to have in it, and that tools do not show. It is empty if nothing
// is.
func oddName(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has control characters, a line break for example"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a blank"
	default:
		return ""
	}
}

// topicName is what Kafka takes for the name of a topic.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// maxConsumer is the longest Topic.Consumer that stores take, dedupstore.MaxConsumerLen.
const maxConsumer = 512

// validateTopic checks the fields of a topic, but for its chain.
func validateTopic(name string, t Topic) (errs []error) {
	if name == "" {
		errs = append(errs, errors.New("the name is empty: give the topic's name"))
	} else if !topicName.MatchString(name) || name == "." || name == ".." {
		errs = append(errs, errors.New("no topic of Kafka has such a name: up to 249 letters of ASCII, digits, and . _ - are allowed; correct it"))
	}
	if what := oddName(t.Consumer); what != "" {
		errs = append(errs, fmt.Errorf("Consumer is %q, which %s: correct it", t.Consumer, what))
	}
	if len(t.Consumer) > maxConsumer {
		errs = append(errs, fmt.Errorf("Consumer is %d bytes long: give it a name of at most %d", len(t.Consumer),
			maxConsumer))
	}
	if t.EventID != nil {
		for _, mistake := range eventIDMistakes(t.EventID) {
			errs = append(errs, fmt.Errorf("EventID: %w", mistake))
		}
	}
	if t.Workers < 0 {
		errs = append(errs, fmt.Errorf("Workers is %d: give a positive number, or 0 for the default", t.Workers))
	}
	among := func(field string, value, last int, names string) {
		if value < 0 || value > last {
			errs = append(errs, fmt.Errorf("%s is %d: use %s", field, value, names))
		}
	}
	among("OnFailure", int(t.OnFailure), int(Stop), "KeepTrying or Stop")
	among("Order", int(t.Order), int(Unordered), "PartitionOrder, KeyOrder or Unordered")
	among("OutOfRange", int(t.OutOfRange), int(Fail), "ToOldest, ToNewest or Fail")
	among("OnStuck", int(t.OnStuck), int(LeaveGroup), "StopConsumer or LeaveGroup")
	return errs
}
