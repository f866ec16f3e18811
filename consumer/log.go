package consumer

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Names of log attributes: OpenTelemetry's for messaging.
const (
	attrGroup     = "messaging.consumer.group.name"
	attrTopic     = "messaging.destination.name"
	attrPartition = "messaging.destination.partition.id" // a string
	attrOffset    = "messaging.kafka.offset"
	attrAttempt   = "einmal.attempt"
	attrDelay     = "einmal.delay_seconds"
	attrStack     = "exception.stacktrace"

	attrErrorType  = "error.type"
	attrSuppressed = "einmal.suppressed" // lines that were left out
)

// noContext is for lines that belong to no call.
var noContext = context.Background() //nolint:gochecknoglobals // the empty one

// seconds is a duration, with its unit in its name: slog writes one as nanoseconds or as text, by the handler.
func seconds(name string, d time.Duration) slog.Attr {
	return slog.Float64(name+"_seconds", d.Seconds())
}

func partitionAttr(partition int32) slog.Attr {
	return slog.String(attrPartition, strconv.Itoa(int(partition)))
}

// brokerErrors logs the errors of the Kafka client. A broker that is away makes several per partition and second, all
// alike, so what says the same is logged once in a while, with the number of times that it was left out.
type brokerErrors struct {
	log   *slog.Logger
	every time.Duration
	away  func(error) // told of those that say that a broker is away, if it is not nil

	mu   sync.Mutex
	last map[string]*repeated
}

type repeated struct {
	at   time.Time
	more int
}

const maxTexts = 100 // beyond it all counts start again

func newBrokerErrors(log *slog.Logger) *brokerErrors {
	return &brokerErrors{log: log, every: outageReminder, last: map[string]*repeated{}}
}

func (b *brokerErrors) warn(err error) {
	if b.away != nil && brokersAway(err) {
		b.away(err)
	}
	text := gist(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	r, now := b.last[text], time.Now()
	if r != nil && now.Sub(r.at) < b.every {
		r.more++
		return
	}
	attrs := []any{slog.Any("error", err)}
	if r != nil && r.more > 0 {
		attrs = append(attrs, slog.Int("repeated", r.more))
	}
	if r == nil && len(b.last) >= maxTexts {
		clear(b.last)
	}
	b.last[text] = &repeated{at: now}
	b.log.Warn("einmal: the Kafka client reports an error, it goes on by itself", attrs...)
}

// gist is what errors that say the same have in common: not the port of this end of the connection, nor the partition
// of the topic.
func gist(err error) string {
	prefix := ""
	if ce, ok := errors.AsType[*sarama.ConsumerError](err); ok && ce.Err != nil {
		prefix, err = ce.Topic+": ", ce.Err
	}
	return prefix + localEnd.ReplaceAllString(err.Error(), "$1->")
}

// localEnd is the first half of "read tcp 10.0.0.7:49832->10.0.0.1:9092", in which the port is another one for each
// connection.
var localEnd = regexp.MustCompile(`(\S+):\d+->`)
