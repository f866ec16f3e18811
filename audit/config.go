package audit

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/topicwindow"
	"github.com/einmal-go/einmal/schema"
)

// Kafka is how the cluster is reached.
type Kafka struct {
	Brokers []string // host:port. Required

	TLS       *tls.Config // nil for none
	Mechanism string      // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty for no SASL
	User      string
	Password  string

	// ReadUncommitted reads what producers have aborted, or not committed yet, too: as a service does whose isolation
	// level is that.
	ReadUncommitted bool
}

func (k *Kafka) security() topicwindow.Security {
	return topicwindow.Security{TLS: k.TLS, Mechanism: k.Mechanism, User: k.User, Password: k.Password,
		Uncommitted: k.ReadUncommitted}
}

// check says what is wrong.
func (k *Kafka) check() error {
	if len(k.Brokers) == 0 {
		return errors.New("audit: Kafka.Brokers is empty: give the addresses of brokers")
	}
	return nil
}

// Config says what is audited.
type Config struct {
	// Topic and Group are those of the service. Required.
	Topic, Group string

	// Consumer is the name in the records, as Topic.Consumer of the service. Defaults to "group/topic".
	Consumer string

	// EventID is the rule for ids, as Topic.EventID of the service. Defaults to the header event-id.
	EventID func(*consumer.Message) (string, error)

	// Foreign is the function that the service has given to middleware.Filter. Defaults to none: every message is for the
	// consumer. It is called by several goroutines.
	Foreign func(*consumer.Message) bool

	// From and To are a window of time: in each partition, from the first message of From or later up to, but without, the
	// first one of To or later. Zero is the start, or what is the end when Run begins.
	From, To time.Time

	// Offsets are windows of single partitions instead: those that are not named are not read. From and To must be zero
	// then.
	Offsets map[int32]consumer.OffsetRange

	// Keep is how long records are kept, as janitor.Table.Keep or DedupConfig.Window of the service: an older event that
	// is not recorded is TooOld and not Lost. Defaults to 0: records are kept for ever.
	Keep time.Duration

	// Effects is a query that returns one column, the id of an event for each effect, such as "select event_id from
	// charge". It is run in a transaction that can only read. Defaults to none: effects are not looked at.
	Effects string

	// Dialect is that of the database. Defaults to schema.Postgres.
	Dialect schema.Dialect

	// Tables says where the tables stand, as for the stores. Nil means the names of package schema, on the search_path.
	Tables *schema.Config

	// Examples is how many examples of each kind are kept. Defaults to 10; negative for all.
	Examples int

	// Values reads the messages of the examples again, and shows their keys and values. Without it the Report has none.
	Values bool

	// Rate is how many messages and rows are read in a second, together. Defaults to 0: no limit.
	Rate float64

	// TempDir is where the sorted files stand: about 80 bytes for each message, record and effect, and ids among them.
	// Defaults to os.TempDir().
	TempDir string

	// Progress is called now and then, by one goroutine at a time, and must return soon. Defaults to none.
	Progress func(Progress)
}

// Progress is how far an audit is.
type Progress struct {
	Step  string // what is read: "messages", "dead letters", "effects", "records", "what comes again"; or "comparing"
	Done  int64
	Total int64 // 0 if it is not known
}

const defaultExamples = 10

// withDefaults checks and completes.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("audit: Config."+format, args...)) }
	if c.Topic == "" {
		bad("Topic is empty: name the topic")
	}
	if c.Group == "" {
		bad("Group is empty: name the consumer group of the service")
	}
	c.checkWindow(bad)
	if c.Keep < 0 {
		bad("Keep is %v: make it as long as records are kept, or 0 if they are kept for ever", c.Keep)
	}
	if c.Rate < 0 {
		bad("Rate is %v: make it positive, or 0 for no limit", c.Rate)
	}
	c.Consumer = cmp.Or(c.Consumer, c.Group+"/"+c.Topic)
	c.Dialect = cmp.Or(c.Dialect, schema.Postgres)
	if c.Dialect != schema.Postgres && c.Dialect != schema.SQLite {
		bad("Dialect is %q: use schema.Postgres or schema.SQLite", string(c.Dialect))
	}
	c.Examples = cmp.Or(c.Examples, defaultExamples)
	c.Effects = strings.TrimRight(strings.TrimSpace(c.Effects), "; \n\t")
	if c.EventID == nil {
		c.EventID = consumer.HeaderID(consumer.DefaultEventIDHeader)
	}
	if c.Tables == nil {
		c.Tables = &schema.Config{}
	}
	return c, errors.Join(errs...)
}

// checkWindow tells bad what is wrong with the window.
func (c *Config) checkWindow(bad func(format string, args ...any)) {
	switch timed := !c.From.IsZero() || !c.To.IsZero(); {
	case timed && len(c.Offsets) > 0:
		bad("Offsets is set, and From or To too: use the one or the other")
	case !c.From.IsZero() && !c.To.IsZero() && !c.From.Before(c.To):
		bad("From is not before To: nothing lies between them")
	}
	for partition, o := range c.Offsets {
		if partition < 0 || o.From < 0 || o.To != 0 && o.To < o.From {
			bad("Offsets[%d] is %d to %d: give offsets in their order, of a partition that there is", partition, o.From, o.To)
		}
	}
}

func (c *Config) offsets() map[int32]topicwindow.Range {
	if len(c.Offsets) == 0 {
		return nil
	}
	m := map[int32]topicwindow.Range{}
	for p, o := range c.Offsets {
		m[p] = topicwindow.Range{Partition: p, From: o.From, To: o.To}
	}
	return m
}
