package middleware

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The names of attributes, in spans and in log lines. OpenTelemetry's conventions for messaging are still in development: all
// that depends on their version stands in this file. What they have no name for starts with "einmal.".
const (
	schemaURL = semconv.SchemaURL

	keySystem        = semconv.MessagingSystemKey
	keyOperationType = semconv.MessagingOperationTypeKey
	keyOperationName = semconv.MessagingOperationNameKey
	keyTopic         = semconv.MessagingDestinationNameKey
	keyPartition     = semconv.MessagingDestinationPartitionIDKey
	keyGroup         = semconv.MessagingConsumerGroupNameKey
	keyOffset        = semconv.MessagingKafkaOffsetKey
	keyTombstone     = semconv.MessagingKafkaMessageTombstoneKey
	keyBodySize      = semconv.MessagingMessageBodySizeKey
	keyMessageID     = semconv.MessagingMessageIDKey
	keyErrorType     = semconv.ErrorTypeKey
	keyStack         = semconv.ExceptionStacktraceKey

	keyConsumer   = attribute.Key("einmal.consumer")   // names the effect
	keyOutcome    = attribute.Key("einmal.outcome")    // see outcome
	keyAttempt    = attribute.Key("einmal.attempt")    // from 1
	keyDuplicate  = attribute.Key("einmal.duplicate")  // the event was recorded before
	keyDelay      = attribute.Key("einmal.delay")      // seconds until the next attempt may start
	keyDuration   = attribute.Key("einmal.duration")   // seconds that the attempt took
	keySuppressed = attribute.Key("einmal.suppressed") // lines of the kind that were left out since the last one
)

const operation = "process"

var (
	systemKafka      = semconv.MessagingSystemKafka
	operationProcess = semconv.MessagingOperationTypeProcess
)

// typeOfError is the conventions' own rule for error.type: a method ErrorType, or the Go type.
func typeOfError(err error) string { return semconv.ErrorType(err).Value.AsString() }
