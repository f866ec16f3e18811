package deadsql

import (
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/deadletter"
)

// written are the columns that Write fills, in the order of args.
var written = []string{
	"consumer_id", "event_id", "group_id", "topic", "topic_id", "partition", "kafka_offset", "message_time",
	"key", "value", "headers", "size", "left_out", "kind", "error_type", "error", "attempts", "first_attempt",
	"einmal_version", "trace_id",
}

func (d *dialect) args(r *deadletter.Record) []any {
	return []any{
		r.Consumer, r.Event, r.Group, r.Topic, r.TopicID, r.Partition, r.Offset, d.timeArg(r.Timestamp),
		bytesArg(r.Key), bytesArg(r.Value), deadletter.EncodeHeaders(r.Headers), r.Size, r.LeftOut,
		string(r.Kind), r.ErrorType, r.Error, r.Attempts, d.timeArg(r.FirstAttempt), r.Version, r.TraceID,
	}
}

func (d *dialect) writeSQL(table string) string {
	params := make([]string, len(written))
	for i, column := range written {
		params[i] = d.param(i + 1)
		if column == "headers" {
			params[i] += d.json
		}
	}
	return fmt.Sprintf("insert into %s (%s)\nvalues (%s)", table, strings.Join(written, ", "), strings.Join(params, ", "))
}

// described are the columns that a list shows, contents those with the message itself, in the orders of scan.
var (
	described = "id, consumer_id, event_id, group_id, topic, topic_id, partition, kafka_offset, %s, size, left_out, " +
		"kind, error_type, error, attempts, %s, %s, einmal_version, trace_id, redrives, redrive_error"
	contents = "key, value, key is not null, value is not null, headers"
)

func (d *dialect) columns(full bool) string {
	columns := fmt.Sprintf(described, d.moment("message_time"), d.moment("first_attempt"), d.moment("died_at"))
	if !full {
		return columns
	}
	return columns + ", " + contents + d.text
}

// scan reads one row of columns(full), and what follows in it into more.
func scan(rows Rows, full bool, more ...any) (*deadletter.Record, error) {
	r := &deadletter.Record{}
	var stamp, first, died any
	var headers string
	var hasKey, hasValue bool
	dest := []any{
		&r.ID, &r.Consumer, &r.Event, &r.Group, &r.Topic, &r.TopicID, &r.Partition, &r.Offset, &stamp, &r.Size, &r.LeftOut,
		&r.Kind, &r.ErrorType, &r.Error, &r.Attempts, &first, &died, &r.Version, &r.TraceID, &r.Redrives, &r.RedriveError,
	}
	if full {
		dest = append(dest, &r.Key, &r.Value, &hasKey, &hasValue, &headers)
	}
	if err := rows.Scan(append(dest, more...)...); err != nil {
		return nil, err
	}
	r.Timestamp, r.FirstAttempt, r.Died = readTime(stamp), readTime(first), readTime(died)
	if !full {
		return r, nil
	}
	r.Key, r.Value = present(r.Key, hasKey), present(r.Value, hasValue)
	var err error
	r.Headers, err = deadletter.DecodeHeaders(headers)
	return r, err
}

// present keeps what is empty apart from what is not there, which drivers do not.
func present(b []byte, there bool) []byte {
	if there && b == nil {
		return []byte{}
	}
	return b
}
