package relay

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/internal/topicname"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
)

// ConfigError is one of the errors that New joins.
type ConfigError struct {
	Field   string // as it is written in Go, "Config.Brokers"
	Problem string // what is wrong, and what to do
}

func (e *ConfigError) Error() string { return "outbox: " + e.Field + ": " + e.Problem }

// problems collects the errors of a configuration.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (c *Config) validate() (*sarama.Config, error) {
	var p problems
	if c.Database == nil {
		p.add("Config.Database", "is nil: use pgxoutbox.NewDatabase or sqloutbox.NewDatabase")
	}
	if len(c.Brokers) == 0 {
		p.add("Config.Brokers", `is empty: give at least one address, "localhost:9092" for example`)
	}
	for i, b := range c.Brokers {
		switch {
		case strings.Contains(b, "@"): // the text must not repeat what stands before it
			p.add(fmt.Sprintf("Config.Brokers[%d]", i),
				`holds a user or a password: write "host:port" alone, and set Net.SASL in Config.Sarama`)
		case !kafkaconf.IsAddress(b):
			p.add(fmt.Sprintf("Config.Brokers[%d]", i), `%q is not an address: write "host:port", without a scheme`, b)
		}
	}
	if c.Mode != outbox.SinglePhase && c.Mode != outbox.TwoPhase {
		p.add("Config.Mode", "is %q: use outbox.SinglePhase or outbox.TwoPhase", c.Mode)
	}
	c.validatePartitioners(&p)
	c.validateNumbers(&p)
	sc := saramaConfig(&p, c)
	return sc, errors.Join(p...)
}

func (c *Config) validatePartitioners(p *problems) {
	const remedy = "use HashPartitioner, Murmur2Partitioner or CRC32Partitioner"
	if partitioners[c.Partitioner] == nil {
		p.add("Config.Partitioner", "is %q: "+remedy, c.Partitioner)
	}
	for topic, of := range c.Partitioners {
		if err := topicname.Check(topic); err != nil {
			p.add("Config.Partitioners", "%v", err)
		}
		if partitioners[of] == nil {
			p.add(fmt.Sprintf("Config.Partitioners[%q]", topic), "is %q: "+remedy, of)
		}
	}
}

func (c *Config) validateNumbers(p *problems) {
	for field, n := range map[string]int{
		"Config.Workers": c.Workers, "Config.BatchRows": c.BatchRows, "Config.BatchBytes": c.BatchBytes,
		"Config.MaxClaims": c.MaxClaims,
	} {
		if n < 0 {
			p.add(field, "is %d: leave it out, or make it positive", n)
		}
	}
	for field, d := range map[string]time.Duration{
		"Config.PublishTimeout": c.PublishTimeout, "Config.OutcomeTimeout": c.OutcomeTimeout, "Config.LeaseTTL": c.LeaseTTL,
		"Config.PollInterval": c.PollInterval, "Config.IdleInterval": c.IdleInterval,
	} {
		if d < 0 {
			p.add(field, "is %v: leave it out, or make it positive", d)
		}
	}
	if c.Workers > outboxsql.Buckets {
		p.add("Config.Workers", "is %d: there are %d buckets, more workers have nothing to do", c.Workers, outboxsql.Buckets)
	}
	if c.IdleInterval < c.PollInterval {
		p.add("Config.IdleInterval", "is %v and Config.PollInterval is %v: make the first larger",
			c.IdleInterval, c.PollInterval)
	}
	if c.OutcomeTimeout < c.PublishTimeout {
		p.add("Config.OutcomeTimeout", "is %v and Config.PublishTimeout is %v: make the first at least as long",
			c.OutcomeTimeout, c.PublishTimeout)
	}
	if least := 2*c.PublishTimeout + sqlTimeout; c.Mode == outbox.TwoPhase && c.LeaseTTL < least {
		p.add("Config.LeaseTTL", "is %v, but a batch may take PublishTimeout (%v) and the database: make it at least %v",
			c.LeaseTTL, c.PublishTimeout, least)
	}
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "relay"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}
