package topicwindow

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

// errFound ends the reading at the first record.
var errFound = errors.New("found")

// NextRecord looks for a record in a range whose end is one of the log. It returns the offset up to which there is none: that of the first
// record, or the end of what can be read. Markers of transactions, aborted records and what compaction left empty are none. With
// an error the offset is as far as it came.
func NextRecord(ctx context.Context, client sarama.Client, topic string, rg Range) (at int64, err error) {
	r := &Reader{client: client, topic: topic}
	at, err = r.Read(ctx, rg, func(*Record) error { return errFound })
	if errors.Is(err, errFound) {
		err = nil
	}
	return at, err
}
