package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf16"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

const (
	// offsetsTopic is where brokers keep committed offsets. No request asks when one was committed: only the topic knows.
	offsetsTopic = "__consumer_offsets"

	// commitTimesBudget bounds the look into it.
	commitTimesBudget = time.Second

	// firstLook is how many records are looked at first, from the end of the topic's partition backwards; then so many
	// times more.
	firstLook, lookFactor = 5_000, 4
)

// errCommitTimesBudget says that the oldest commits are older than what was looked at.
var errCommitTimesBudget = errors.New("older commits were not looked for, because that takes more than a second")

// commitTimesLater looks into the topic while the leaders are asked.
func (v *groupView) commitTimesLater(ctx context.Context) <-chan commitTimes {
	found := make(chan commitTimes, 1)
	wanted := map[TopicPartition]bool{}
	for key, p := range v.partitions {
		if p.Committed >= 0 {
			wanted[key] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimesBudget)
	go func() {
		defer cancel()
		found <- findCommitTimes(ctx, v.client, v.Name, wanted)
	}()
	return found
}

// findCommitTimes reads backwards from the end, in larger and larger pieces: a partition whose offset moves has its
// commit near the end.
func findCommitTimes(ctx context.Context, client sarama.Client, group string,
	wanted map[TopicPartition]bool) commitTimes {
	f := &commitFinder{commitTimes: commitTimes{at: map[TopicPartition]time.Time{}}, group: group, wanted: wanted}
	reader, err := topicwindow.New(client, offsetsTopic)
	if err != nil {
		f.err = fmt.Errorf("when an offset was committed is known to who may read %s: %w", offsetsTopic, err)
		return f.commitTimes
	}
	partitions, err := reader.Partitions()
	if err == nil && len(partitions) == 0 {
		err = sarama.ErrUnknownTopicOrPartition
	}
	var log topicwindow.Range
	if err == nil {
		log, err = reader.Log(ctx, offsetsPartition(group, len(partitions)))
	}
	if err == nil {
		err = f.backwards(ctx, reader, log)
	}
	switch {
	case err == nil: // all of it was read
	case ctx.Err() != nil:
		f.err = errCommitTimesBudget
	default:
		f.err = fmt.Errorf("read %s: %w", offsetsTopic, err)
	}
	return f.commitTimes
}

// commitFinder looks at the records of the topic's partition.
type commitFinder struct {
	commitTimes
	group  string
	wanted map[TopicPartition]bool // whose time is not known yet
}

func (f *commitFinder) backwards(ctx context.Context, reader *topicwindow.Reader, log topicwindow.Range) error {
	for end, piece := log.To, int64(firstLook); end > log.From && len(f.wanted) > 0; piece *= lookFactor {
		begin := max(log.From, end-piece)
		first, at := time.Time{}, map[TopicPartition]time.Time{} // the last record of a piece counts
		_, err := reader.Read(ctx, topicwindow.Range{Partition: log.Partition, From: begin, To: end},
			func(rec *topicwindow.Record) error {
				if first.IsZero() {
					first = rec.Timestamp
				}
				if key, ok := commitKey(rec.Key, f.group); ok && f.wanted[key] && rec.Value != nil {
					at[key] = rec.Timestamp
				}
				return nil
			})
		if err != nil {
			return err
		}
		for key, t := range at {
			f.at[key] = t
			delete(f.wanted, key)
		}
		if !first.IsZero() {
			f.since = first
		}
		end = begin
	}
	return nil
}

// commitKey reads the key of a committed offset: a version, 0 or 1, the group, the topic, the partition. Other records,
// those of members for example, have other versions.
func commitKey(key []byte, group string) (p TopicPartition, ok bool) {
	if len(key) < 2 || binary.BigEndian.Uint16(key) > 1 {
		return p, false
	}
	of, rest, ok := cutString(key[2:])
	if !ok || of != group {
		return p, false
	}
	p.Topic, rest, ok = cutString(rest)
	if !ok || len(rest) != 4 {
		return p, false
	}
	p.Partition = int32(binary.BigEndian.Uint32(rest)) //nolint:gosec // that is how it was written
	return p, true
}

// cutString reads a string that has its length before it.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 2 {
		return "", nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < n {
		return "", nil, false
	}
	return string(b[:n]), b[n:], true
}

// offsetsPartition is where brokers keep a group: Java's hash of its name, without the sign.
func offsetsPartition(group string, partitions int) int32 {
	var hash int32
	for _, unit := range utf16.Encode([]rune(group)) {
		hash = 31*hash + int32(unit)
	}
	n := int64(hash)
	if n < 0 {
		n = -n
	}
	if n > 1<<31-1 {
		n = 0 // as Java has it for the smallest number
	}
	return int32(n % int64(partitions)) //nolint:gosec // below 2^31
}
