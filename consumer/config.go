package consumer

import (
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/safelog"
)

// Defaults of Config.
const (
	// DefaultDrainTimeout is what a rebalance leaves a member for finishing what it has begun: Kafka's rebalance time-out,
	// 10 s here, less two heartbeats, within which a member learns of the rebalance.
	DefaultDrainTimeout = 8 * time.Second
	// DefaultStartTimeout is long enough for a broker or a database that starts beside the service.
	DefaultStartTimeout = 30 * time.Second
)

// Config is the configuration of a Consumer. The zero value of every optional field is its documented default. It must
// not be changed once New has been called.
type Config struct {
	// Brokers are addresses, "host:port", from which the cluster is discovered. Required.
	Brokers []string

	// Group is the consumer group. It is also the first half of the default of Topic.Consumer. Required.
	Group string

	// Topics says how each topic is consumed, by the topic's name. Required.
	Topics map[string]Topic

	// Middleware stands around the Topic.Middleware of every topic. The first is the outermost.
	Middleware []Middleware

	// DrainTimeout is how long messages in work may take to finish when Run's ctx ends or partitions are revoked; then
	// their contexts are cancelled, so that they roll back. Default: DefaultDrainTimeout.
	//
	// On shutdown the whole of it is used; keep it below the time that your platform leaves between SIGTERM and SIGKILL.
	// On a rebalance it is cut to the group's rebalance time-out less two heartbeats: beyond that, the partition has a new
	// owner, and finishing would be in vain. A rebalance that comes during a longer drain at shutdown does the same: what
	// is finished after it is delivered again to the new owner, whose dedup store skips it.
	DrainTimeout time.Duration

	// StartTimeout is how long Run tries to reach the brokers and the databases at its start. Errors that waiting does not
	// cure, a wrong password or a missing table, are returned at once, together with what the other servers have to say.
	// Default: DefaultStartTimeout.
	StartTimeout time.Duration

	// Rebalance is how partitions move between members. It must be the same in all members, see ToCooperative. Default:
	// Eager.
	Rebalance Rebalance

	// InstanceID makes this a static member (KIP-345): it keeps its partitions through a restart that is shorter than the
	// session time-out, 20 s, and does not leave the group when it stops. It must be unique in the group, a stateful set's
	// pod name for example. Default: a dynamic member.
	InstanceID string

	// LeaveOnStop makes a static member leave when it stops, for a scale-down.
	LeaveOnStop bool

	// StallTimeout is how long a partition may hold messages of which none finishes, before Ready is false, unless they
	// wait for a database that is away. Default: DefaultStallTimeout.
	StallTimeout time.Duration

	// Limits bound memory, and what a crash repeats.
	Limits Limits

	// Hooks are called when something happens to a partition or to the membership.
	Hooks Hooks

	// Logger receives what the runner itself has to say: rebalances, retries, broker errors. It receives no keys, values
	// or headers of messages, and of errors at most 1,024 bytes of their text: handlers' errors as ErrorText makes it,
	// others without what looks like a secret. Its handler must not call the Consumer. Default: slog.Default().
	Logger *slog.Logger

	// ErrorText makes the text of a handler's error for all that shows it: the Logger's lines, Run's StopError, and by
	// default the links of package middleware (Logging, DeadLetter, HandOn). It must be safe for concurrent use; what it
	// returns is cut. Defaults to what Message.ErrorText describes, which masks secrets and what the text repeats of the
	// message. Where no text may be shown, return "", or the type of the error.
	ErrorText func(err error, msg *Message) string

	// Sarama edits the configuration of the Kafka client, for TLS, SASL, the client's id or its time-outs. New calls it
	// once. Fields on which the runner's correctness rests are refused with an error that says where to set what instead.
	//
	// Consumer.IsolationLevel is sarama.ReadCommitted, so that what producers have aborted takes no effect; it may be
	// changed. What a batch may come to when it is decompressed is sarama's variable MaxDecompressedBatchSize, for the
	// whole process: 100 MiB here, as much as a response may have (sarama.MaxResponseSize), unless main sets another value
	// before New.
	Sarama func(*sarama.Config)
}

// Topic is how one topic is consumed.
type Topic struct {
	// Handler is the innermost link of the chain. Required.
	Handler Handler

	// Consumer names the effect in the dedup store. Two topics of a group do not share ids by accident, because the
	// default is "group/topic". Changing it, or the group's or the topic's name while it is unset, applies redelivered
	// events again.
	Consumer string

	// SameEventsAs names another topic whose events come in this one too, under the same ids: this one is a copy of it,
	// its successor, or a retry topic. Then both have the same Consumer, and an event takes effect once, wherever it comes
	// from. New refuses two topics with one Consumer otherwise: two different events with equal ids would be taken for
	// one. Default: the topic has events of its own.
	SameEventsAs string

	// EventID tells what identifies the event, however often it is produced or delivered: HeaderID, CloudEventID, JSONID,
	// UniqueKeyID, OffsetID, a CompositeID of several, or a function of your own, which must be safe for concurrent use,
	// must give one message the same id in every process and at any time, and must not write to the message. Default:
	// HeaderID("event-id").
	EventID func(*Message) (string, error)

	// Middleware stands around Handler, inside Config.Middleware. The first is the outermost.
	Middleware []Middleware

	// Start says where a group begins that has no committed offset for a partition. Default: at the oldest message, so
	// that none is skipped. It needs Config.Rebalance Eager.
	Start Start

	// OutOfRange says what happens where the committed offset is not in the log any more. Default: ToOldest. The others
	// need Config.Rebalance Eager.
	OutOfRange OutOfRange

	// Order says which messages may be handled side by side. Default: PartitionOrder.
	Order Order

	// Workers is how many messages of the topic this process handles at once, over all its partitions. Default:
	// DefaultWorkers, or twice the largest Group of a link (see Grouper). In PartitionOrder each partition has one worker:
	// Workers only bounds how many partitions are worked on at once, and by default nothing does. Where links make groups, as many messages more may be in work that wait for one of their own partition
	// or key.
	Workers int

	// ProcessingLimit is how long one attempt at a message may take. Then its context is cancelled, and the attempt counts
	// as failed; what happens if the handler still does not return is OnStuck's to say. Default: DefaultProcessingLimit;
	// negative means no limit. It is a last resort, seen every second or quarter of the limit; middleware.Timeout is the
	// precise one, and must not be longer. The limit is for an attempt as a whole, while a store's IdleTimeout is for a
	// pause in its transaction.
	ProcessingLimit time.Duration

	// OnStuck says what happens when a handler ignores that its context was cancelled. Default: StopConsumer.
	OnStuck OnStuck

	// OnFailure says what happens to a message whose chain returned an error that asks for no delay. Default: KeepTrying.
	OnFailure OnFailure
}

// OnFailure is what the runner does with a message that has failed. Skipping is not among the choices: to move a
// message out of the way is what a dead-letter middleware does, together with a record of it.
type OnFailure int

const (
	// KeepTrying runs the message again, 1 s after its first attempt, then twice as long each time up to 1 min, for ever.
	// Attempts that links have asked for count too: after five of Retry's the pause is 16 s. Status and the log
	// show it. What is ordered behind it waits.
	KeepTrying OnFailure = iota
	// Stop ends the Consumer: other messages in work are drained, and Run returns the error.
	Stop
)

func (c Config) withDefaults() Config {
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	c.Limits = c.Limits.withDefaults()
	c.Logger = safelog.Logger(c.Logger)
	return c
}
