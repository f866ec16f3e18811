package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/nils"
	"github.com/einmal-go/einmal/internal/topicname"
	"github.com/einmal-go/einmal/outbox"
)

// DeadLettersConfig is what can be chosen about DeadLetters. Nil means all defaults.
type DeadLettersConfig struct {
	// LeaveOut sends a message that is larger than the events' writer takes (outbox.WriterConfig.MaxBytes, 1,000,000 bytes
	// by default) without its value and headers, and its key if that is too large: where it stands is in the headers
	// below. By default it stays, is tried again, and holds up what is ordered behind it, until MaxBytes is raised.
	LeaveOut bool
}

// The headers that a dead letter has beside those of its message, behind them, so that they win. All are text; those
// that are not known are left out.
const (
	DeadConsumerHeader     = "einmal-dead-consumer"      // with DeadEventHeader, the key of the record in processed_event
	DeadEventHeader        = "einmal-dead-event"         // the event's id, or the place of a message without one
	DeadGroupHeader        = "einmal-dead-group"         // the consumer group
	DeadTopicHeader        = "einmal-dead-topic"         // where the message stands
	DeadTopicIDHeader      = "einmal-dead-topic-id"      // as Kafka's tools write it
	DeadPartitionHeader    = "einmal-dead-partition"     // decimal
	DeadOffsetHeader       = "einmal-dead-offset"        // decimal
	DeadTimestampHeader    = "einmal-dead-timestamp"     // of the message: RFC 3339, UTC
	DeadKindHeader         = "einmal-dead-kind"          // a deadletter.Kind
	DeadErrorTypeHeader    = "einmal-dead-error-type"    // one of few words
	DeadErrorHeader        = "einmal-dead-error"         // at most deadletter.MaxText bytes, without what looks like a secret: see deadletter.Text
	DeadAttemptsHeader     = "einmal-dead-attempts"      // decimal
	DeadFirstAttemptHeader = "einmal-dead-first-attempt" // RFC 3339, UTC
	DeadVersionHeader      = "einmal-dead-version"       // of einmal
	DeadTraceIDHeader      = "einmal-dead-trace-id"      // of the last attempt
	DeadSizeHeader         = "einmal-dead-size"          // bytes of key, value and headers, where they were left out

	// DeadEventIDHeader has the value of the message's header event-id: a dead letter is an event of its own, with its own
	// id.
	DeadEventIDHeader = "einmal-dead-event-id"

	deadPrefix = "einmal-dead-"

	// DeadHeadersHeader has all headers of a message, as deadletter.EncodeHeaders writes them, if they cannot stand in an
	// event as they are: there are too many, or one has no name, or a name that is no text.
	DeadHeadersHeader = "einmal-dead-headers"
)

// DeadLetters returns a writer for middleware.DeadLetter that writes dead letters as events of the outbox, for topic,
// in the transaction of the record: when it is committed a relay sends the dead letter, at least once, always with the
// same id in the header event-id. The id is a new one: an event that dies a second time, after it was repaired, is
// another dead letter.
//
// Key, value and headers are the message's, byte by byte, except for its header event-id, which becomes
// DeadEventIDHeader; the Dead… headers say why it is there. Headers of the message that begin with einmal-dead-, from
// an earlier death perhaps, are left out, and so are those that begin with einmal-retry-, unless it comes from a retry
// topic of RetryTopics. There must be no consumer on topic that writes its dead letters to topic; where that is seen,
// the message stays, and the error says so.
//
// events must belong to the store that DeadLetter has. The tables are the component schema.Outbox; that they are
// missing is reported by Run at its start, if the store is a dedupstore.Transactor. Where it is noticed later, the
// message stays where it is. In a deadletter.WriterFunc that calls it the writer is not asked at the start.
func DeadLetters[Tx any](events Events[Tx], topic string, cfg *DeadLettersConfig) deadletter.Writer[Tx] {
	d := &deadLetters[Tx]{events: events, topic: topic}
	if cfg != nil {
		d.cfg = *cfg
	}
	var errs []error
	if nils.Is(events) {
		errs = append(errs, errors.New("forward.DeadLetters: the writer of events is nil: pass pgxoutbox.NewWriter(nil), for example"))
	}
	if err := topicname.Check(topic); err != nil {
		errs = append(errs, fmt.Errorf("forward.DeadLetters: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		d.invalid = dedupstore.WithClass(dedupstore.Misconfigured, err)
	}
	return d
}

type deadLetters[Tx any] struct {
	events  Events[Tx]
	topic   string
	cfg     DeadLettersConfig
	invalid error // what is wrong with the arguments
}

var errOwnTopic = dedupstore.WithClass(dedupstore.Misconfigured,
	errors.New("forward: the dead letter comes from the topic of the dead letters, where it would come again and again: name another topic"))

// Check implements dedupstore.Checker: it reports arguments that are wrong.
func (d *deadLetters[Tx]) Check(context.Context) error { return d.invalid }

// CheckTx implements deadletter.TxChecker: it writes an event, which its caller rolls back.
func (d *deadLetters[Tx]) CheckTx(ctx context.Context, tx Tx) error {
	if d.invalid != nil {
		return d.invalid
	}
	return write(ctx, d.events, tx, outbox.Event{Topic: d.topic})
}

// Write implements deadletter.Writer.
func (d *deadLetters[Tx]) Write(ctx context.Context, tx Tx, rec *deadletter.Record) error {
	switch {
	case d.invalid != nil:
		return d.invalid
	case rec.Topic == d.topic:
		return errOwnTopic
	}
	err := write(ctx, d.events, tx, deadEvent(rec, d.topic))
	if !errors.Is(err, outbox.ErrInvalidEvent) {
		return err
	}
	if !d.cfg.LeaveOut {
		return fmt.Errorf("forward: %w: raise outbox.WriterConfig.MaxBytes together with the topic's max.message.bytes, or set DeadLettersConfig.LeaveOut: %w", deadletter.ErrTooLarge, err)
	}
	without := *rec
	without.Value, without.Headers, without.LeftOut = nil, nil, true
	err = write(ctx, d.events, tx, deadEvent(&without, d.topic))
	if errors.Is(err, outbox.ErrInvalidEvent) && rec.Key != nil {
		without.Key = nil // the order of its key is lost
		err = write(ctx, d.events, tx, deadEvent(&without, d.topic))
	}
	return err
}

// deadEvent has an id of its own. Headers with our names that are not ours are left out: those of an earlier death of a
// message that was put back with them, which would pile up, and those that a producer has invented.
func deadEvent(rec *deadletter.Record, topic string) outbox.Event {
	e := outbox.Event{ID: outbox.NewID(), Topic: topic, Key: rec.Key, Value: rec.Value}
	headers := slices.DeleteFunc(slices.Clone(rec.Headers), func(h consumer.Header) bool {
		return strings.HasPrefix(h.Key, deadPrefix) || strings.HasPrefix(h.Key, retryPrefix) && !rec.Earlier
	})
	if sendable(headers) {
		for _, h := range headers {
			if h.Key == outbox.IDHeader {
				h.Key = DeadEventIDHeader
			}
			e.Headers = append(e.Headers, outbox.Header(h))
		}
	} else {
		add(&e, DeadHeadersHeader, deadletter.EncodeHeaders(headers))
	}
	describe(&e, rec)
	return e
}

// moreHeaders is how many an event may get beside those of its message, from here and from the writer.
const moreHeaders = 32

// sendable reports whether the headers can stand in an event.
func sendable(headers []consumer.Header) bool {
	for _, h := range headers {
		if h.Key == "" || !utf8.ValidString(h.Key) {
			return false
		}
	}
	return len(headers) <= outbox.MaxHeaders-moreHeaders
}

func describe(e *outbox.Event, rec *deadletter.Record) {
	add(e, DeadConsumerHeader, rec.Consumer)
	add(e, DeadEventHeader, rec.Event)
	add(e, DeadGroupHeader, rec.Group)
	add(e, DeadTopicHeader, rec.Topic)
	add(e, DeadTopicIDHeader, rec.TopicID)
	add(e, DeadPartitionHeader, strconv.Itoa(int(rec.Partition)))
	add(e, DeadOffsetHeader, strconv.FormatInt(rec.Offset, 10))
	add(e, DeadTimestampHeader, timeText(rec.Timestamp))
	add(e, DeadKindHeader, string(rec.Kind))
	add(e, DeadErrorTypeHeader, rec.ErrorType)
	add(e, DeadErrorHeader, strings.ToValidUTF8(rec.Error[:min(len(rec.Error), deadletter.MaxText)], "?"))
	add(e, DeadAttemptsHeader, strconv.Itoa(rec.Attempts))
	add(e, DeadFirstAttemptHeader, timeText(rec.FirstAttempt))
	add(e, DeadVersionHeader, rec.Version)
	add(e, DeadTraceIDHeader, rec.TraceID)
	if rec.LeftOut {
		add(e, DeadSizeHeader, strconv.FormatInt(rec.Size, 10))
	}
}

func add(e *outbox.Event, name, value string) {
	if value != "" {
		e.Headers = append(e.Headers, outbox.Header{Key: name, Value: []byte(value)})
	}
}

// timeText is empty for no time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
