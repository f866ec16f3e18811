package names

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// SchemaURL is the version of the conventions.
const SchemaURL = semconv.SchemaURL

// Attributes of the conventions.
const (
	System        = semconv.MessagingSystemKey
	OperationType = semconv.MessagingOperationTypeKey
	OperationName = semconv.MessagingOperationNameKey
	Topic         = semconv.MessagingDestinationNameKey
	Partition     = semconv.MessagingDestinationPartitionIDKey // a string
	Group         = semconv.MessagingConsumerGroupNameKey
	Offset        = semconv.MessagingKafkaOffsetKey
	Tombstone     = semconv.MessagingKafkaMessageTombstoneKey
	BodySize      = semconv.MessagingMessageBodySizeKey
	BatchSize     = semconv.MessagingBatchMessageCountKey
	MessageID     = semconv.MessagingMessageIDKey
	ErrorType     = semconv.ErrorTypeKey
	Stack         = semconv.ExceptionStacktraceKey
	Table         = semconv.DBCollectionNameKey
	HTTPMethod    = semconv.HTTPRequestMethodKey
	HTTPRoute     = semconv.HTTPRouteKey
)

// Attributes of einmal.
const (
	Consumer   = attribute.Key("einmal.consumer")         // names the effect
	Outcome    = attribute.Key("einmal.outcome")          // what became of an attempt
	Attempt    = attribute.Key("einmal.attempt")          // from 1
	Duplicate  = attribute.Key("einmal.duplicate")        // the event was recorded before
	Delay      = attribute.Key("einmal.delay_seconds")    // until the next attempt may start
	Duration   = attribute.Key("einmal.duration_seconds") // that the attempt took
	Suppressed = attribute.Key("einmal.suppressed")       // lines of the kind that were left out since the last one

	TxOutcome    = attribute.Key("einmal.transaction.outcome") // how a transaction ended
	DeadKind     = attribute.Key("einmal.dead_letter.kind")    // why a message was given up
	GroupFailure = attribute.Key("einmal.group.failure")       // why a group was rolled back
	OutboxMode   = attribute.Key("einmal.outbox.mode")         // of a relay
	SweepOutcome = attribute.Key("einmal.sweep.outcome")       // how a janitor's sweep ended

	IdempotencyOutcome = attribute.Key("einmal.idempotency.outcome") // what became of a request with an Idempotency-Key
)

// Process is the operation of a consumer's handler, Send that of the outbox's relay.
const (
	Process = "process"
	Send    = "send"
)

// Attributes with their values.
var (
	Kafka       = semconv.MessagingSystemKafka
	TypeProcess = semconv.MessagingOperationTypeProcess
	TypeSend    = semconv.MessagingOperationTypeSend

	HTTPMethodOther = semconv.HTTPRequestMethodOther // of a method that is none of the conventions'
)

// Attributes are the names of all.
func Attributes() []string {
	all := []attribute.Key{
		System, OperationType, OperationName, Topic, Partition, Group, Offset, Tombstone, BodySize, BatchSize, MessageID,
		ErrorType, Stack, Table,
		HTTPMethod, HTTPRoute,
		Consumer, Outcome, Attempt, Duplicate, Delay, Duration, Suppressed, TxOutcome, DeadKind, OutboxMode, SweepOutcome,
		IdempotencyOutcome,
	}
	names := make([]string, len(all))
	for i, key := range all {
		names[i] = string(key)
	}
	return names
}
