package relay

import (
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/einmal-go/einmal/internal/safelog"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/schema"
)

// Partitioner chooses the partition of a key. It must be that of other producers of the topic, if there are any: else
// a key's events are in two partitions, and in any order.
type Partitioner string

// The partitioners, each with the producers whose default it is.
const (
	// HashPartitioner is that of sarama, FNV-1a.
	HashPartitioner Partitioner = "hash"
	// Murmur2Partitioner is that of Kafka's Java client, of franz-go and kafkajs, and librdkafka's murmur2_random.
	Murmur2Partitioner Partitioner = "murmur2"
	// CRC32Partitioner is that of librdkafka, consistent_random, and so of its clients for Python, .NET and Go.
	CRC32Partitioner Partitioner = "crc32"
)

// The defaults of Config that a service computes with: its pool's size, and how long a shutdown takes.
const (
	// DefaultWorkers overlaps the work in the database with that in Kafka.
	DefaultWorkers = 2
	// DefaultPublishTimeout is that of SinglePhase. It is short, because a transaction waits.
	DefaultPublishTimeout = 5 * time.Second
)

// The other defaults of Config.
const (
	// defaultBatchRows makes the round trips small beside the rows, and is repeated when a relay dies.
	defaultBatchRows = 2000
	// defaultBatchBytes bounds the memory of a worker.
	defaultBatchBytes = 8 << 20
	// defaultTwoPhasePublishTimeout outlasts what Kafka needs for another leader, 9 s and more.
	defaultTwoPhasePublishTimeout = 15 * time.Second
	// defaultOutcomeTimeout outlasts what a broker's death takes: 9 s until the others know of it, and 30 s at most
	// for replicas that are behind (replica.lag.time.max.ms).
	defaultOutcomeTimeout = 30 * time.Second
	// defaultLeaseTTL is how long the rows of a relay that died wait.
	defaultLeaseTTL = 45 * time.Second
	// defaultKeep is long enough to look at what was sent.
	defaultKeep = time.Hour
	// defaultPollInterval and defaultIdleInterval: a poll is 64 look-ups in an index.
	defaultPollInterval = 50 * time.Millisecond
	defaultIdleInterval = 500 * time.Millisecond
	// defaultMaxClaims is how many relays may die while they hold a row.
	defaultMaxClaims = 20
)

// Config is the configuration of a Relay. The zero value of every optional field is its documented default. It must
// not be changed once New has been called.
type Config struct {
	// Database is where the tables are. Required.
	Database outbox.Database

	// Brokers are addresses, "host:port", from which the cluster is discovered. Required.
	Brokers []string

	// Mode is how rows are sent. Default: outbox.SinglePhase.
	Mode outbox.Mode

	// Tables says where the tables are, as for schema.Postgres.Apply. By default the search_path finds them,
	// when Run begins: from then on they stay the same.
	Tables *schema.Config

	// Workers is how many batches this relay has in work at once, each with a connection to the database and to each
	// broker. Default: DefaultWorkers, 2.
	Workers int

	// BatchRows and BatchBytes bound a batch; a row that is larger than BatchBytes is a batch of its own. Default:
	// 2000 rows, 8 MiB.
	BatchRows  int
	BatchBytes int

	// PublishTimeout is how long Kafka may take for a batch. What Kafka does not have by then is sent again later. A
	// batch that has begun when Run's ctx ends still has this time, and a few seconds for the database: keep it below
	// the time that your platform leaves between SIGTERM and SIGKILL. Default: DefaultPublishTimeout, 5 s, in
	// TwoPhase 15 s.
	PublishTimeout time.Duration

	// OutcomeTimeout is how long, from the begin of a batch, the outcome of record batches is waited for that Kafka
	// may have: they are sent again in a way by which Kafka knows them. What is still not known then is sent anew,
	// and may be there twice. Meanwhile the rows of the batch's buckets wait, those for other partitions too, and in
	// SinglePhase a transaction is open. In TwoPhase it ends with the lease. It must not be shorter than
	// PublishTimeout. Default: 30 s, or PublishTimeout if that is longer.
	OutcomeTimeout time.Duration

	// LeaseTTL is how long a claim of a two-phase relay is valid: at least twice PublishTimeout and 10 s more.
	// Default: 45 s.
	LeaseTTL time.Duration

	// Keep is how long rows stay that were sent, marked PUBLISHED; negative deletes them at once. Default: in
	// SinglePhase at once, in TwoPhase an hour.
	Keep time.Duration

	// PollInterval is how long after a poll that found something, and IdleInterval how long after many that found
	// nothing, the next one comes, less up to a half. After a full batch it comes at once. Default: 50 ms, 500 ms.
	PollInterval, IdleInterval time.Duration

	// Listener wakes the relay, beside polling: pgxoutbox.Listener for example. Default: none.
	Listener outbox.Listener

	// Partitioner chooses the partitions of events that name none. Default: HashPartitioner.
	Partitioner Partitioner

	// Partitioners are those of topics that have another one, by topic. Default: none.
	Partitioners map[string]Partitioner

	// MaxClaims is how often the relay that held a row may die (TwoPhase), before the row is BLOCKED. After a quarter
	// of it the row is claimed alone. Default: 20.
	MaxClaims int

	// Name tells relays apart in the table outbox_lease and in logs. It must be unique. Default: the host's name and
	// random letters.
	Name string

	// Logger receives what the relay has to say. It receives no keys, values or headers, and of errors
	// at most 1,024 bytes of their text, without what looks like a secret. Default: slog.Default().
	Logger *slog.Logger

	// TracerProvider makes a span of each batch and topic, with links to the stored trace contexts. Default:
	// otel.GetTracerProvider().
	TracerProvider trace.TracerProvider

	// Sarama edits the configuration of the Kafka client, for TLS, SASL, compression, the client's id or time-outs.
	// New calls it once. Fields on which the relay's correctness rests are refused with an error that says what to do
	// instead.
	Sarama func(*sarama.Config)
}

func (c Config) withDefaults() Config {
	set(&c.Mode, outbox.SinglePhase)
	set(&c.Workers, DefaultWorkers)
	set(&c.BatchRows, defaultBatchRows)
	set(&c.BatchBytes, defaultBatchBytes)
	if c.Mode == outbox.TwoPhase {
		set(&c.PublishTimeout, defaultTwoPhasePublishTimeout)
		set(&c.Keep, defaultKeep)
	}
	set(&c.PublishTimeout, DefaultPublishTimeout)
	set(&c.OutcomeTimeout, max(defaultOutcomeTimeout, c.PublishTimeout))
	set(&c.LeaseTTL, defaultLeaseTTL)
	set(&c.PollInterval, defaultPollInterval)
	set(&c.IdleInterval, max(defaultIdleInterval, c.PollInterval))
	set(&c.Partitioner, HashPartitioner)
	set(&c.MaxClaims, defaultMaxClaims)
	if c.Name == "" {
		c.Name = defaultName()
	}
	c.Logger = safelog.Logger(c.Logger)
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
