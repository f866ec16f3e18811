package topicwindow

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnseen is wrapped by the error of Record about an offset of the log at which there is nothing to be seen.
var ErrUnseen = errors.New("compaction has removed it, it is a marker of a transaction, or its transaction was aborted or is open")

// Record reads one record, or says why there is none.
func (r *Reader) Record(ctx context.Context, partition int32, offset int64) (rec *Record, err error) {
	at := fmt.Sprintf("%s/%d@%d", r.topic, partition, offset)
	partitions, err := r.Partitions()
	if err != nil {
		return nil, err
	}
	if int(partition) >= len(partitions) {
		return nil, fmt.Errorf("topic %q has no partition %d: it has %d", r.topic, partition, len(partitions))
	}
	log, err := r.Log(ctx, partition)
	switch {
	case err != nil:
		return nil, err
	case offset >= log.To:
		return nil, fmt.Errorf("there is no record %s yet: the log is %d to %d", at, log.From, log.To)
	case offset < log.From:
		return nil, fmt.Errorf("the record %s is not in the log any more, which begins at %d: retention or somebody has deleted it", at, log.From)
	}
	_, err = r.Read(ctx, Range{Partition: partition, From: offset, To: offset + 1}, func(found *Record) error {
		rec = found
		return nil
	})
	if err == nil && rec == nil {
		err = fmt.Errorf("there is no record at %s: %w", at, ErrUnseen)
	}
	return rec, err
}
