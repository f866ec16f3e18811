package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CloudEventID is a function for Topic.EventID that takes the id from a CloudEvent, of the Kafka protocol binding 1.0:
// in binary mode from the headers ce_source and ce_id, in structured mode, which the content type
// application/cloudevents+json announces, from the fields source and id of the value. Both are part of the id, joined
// as by CompositeID: CloudEvents promises only that they are unique together. The same event has the same id in both
// modes.
//
// An attribute that is missing or empty, a value that is not JSON, a batch, and a format other than JSON are errors
// that wrap ErrNoEventID.
func CloudEventID(msg *Message) (string, error) {
	var source, id string
	var err error
	if format := structured(msg); format == "" {
		source, id, err = binaryCloudEvent(msg)
	} else {
		source, id, err = structuredCloudEvent(msg.Value, format)
	}
	if err != nil {
		return "", err
	}
	return composite(source, id), nil
}

const cloudEvents = "application/cloudevents"

// structured returns the media type of a CloudEvent in structured mode, or "" for binary mode. The names of headers are
// case-sensitive, but for this one, which producers take over from HTTP.
func structured(msg *Message) string {
	for _, header := range slices.Backward(msg.Headers) {
		if !strings.EqualFold(header.Key, "content-type") {
			continue
		}
		mediaType, _, _ := strings.Cut(string(header.Value), ";")
		mediaType = strings.ToLower(strings.TrimSpace(mediaType))
		if strings.HasPrefix(mediaType, cloudEvents) {
			return mediaType
		}
		return ""
	}
	return ""
}

var (
	cloudEventSource = HeaderID("ce_source")
	cloudEventID     = HeaderID("ce_id")
)

func binaryCloudEvent(msg *Message) (source, id string, err error) {
	source, sourceErr := cloudEventSource(msg)
	id, idErr := cloudEventID(msg)
	return source, id, errors.Join(sourceErr, idErr)
}

func structuredCloudEvent(value []byte, format string) (source, id string, err error) {
	if format != cloudEvents+"+json" {
		return "", "", fmt.Errorf("%w: a CloudEvent in structured mode is read as %s+json only: let the producer use that, or binary mode, or set Topic.EventID to a function that reads the format", ErrNoEventID, cloudEvents)
	}
	fields, err := jsonFields(value, "source", "id")
	if err != nil {
		return "", "", fmt.Errorf("%w: source and id of a CloudEvent in structured mode: %w", ErrNoEventID, err)
	}
	source, sourceErr := jsonString(fields[0])
	id, idErr := jsonString(fields[1])
	if sourceErr != nil {
		return "", "", fmt.Errorf("%w: source of a CloudEvent in structured mode: %w", ErrNoEventID, sourceErr)
	}
	if idErr != nil {
		return "", "", fmt.Errorf("%w: id of a CloudEvent in structured mode: %w", ErrNoEventID, idErr)
	}
	return source, id, nil
}
