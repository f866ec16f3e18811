package topicwindow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// Reader reads one topic. It is safe for concurrent use.
type Reader struct {
	client sarama.Client
	topic  string
	id     [16]byte
}

// New asks for the topic. The client stays the caller's. Requests in flight end with ctx only when the client's
// connections do, so the caller cuts them at its end.
func New(client sarama.Client, topic string) (*Reader, error) {
	r := &Reader{client: client, topic: topic}
	if err := client.RefreshMetadata(topic); err != nil && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
		return nil, fmt.Errorf("topic %q: %w", topic, err)
	}
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return nil, sarama.ErrOutOfBrokers
	}
	res, err := broker.GetMetadata(sarama.NewMetadataRequest(client.Config().Version, []string{topic}))
	if err != nil {
		return nil, err
	}
	for _, t := range res.Topics {
		if t.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("topic %q: %w", topic, t.Err)
		}
		r.id = t.Uuid
	}
	return r, nil
}

// TopicID is the topic's id, zero if the broker does not tell.
func (r *Reader) TopicID() [16]byte { return r.id }

// Partitions are those of the topic.
func (r *Reader) Partitions() ([]int32, error) {
	ps, err := r.client.Partitions(r.topic)
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", r.topic, err)
	}
	slices.Sort(ps)
	return ps, nil
}

// Range is a part of a partition: the offsets from From up to, but without, To.
type Range struct {
	Partition int32
	From, To  int64
}

// Times returns the range of a partition that begins with the first record of from or later, and ends before the first
// one of to or later; where a time is zero, with the log. Records bear the times that their producers gave them, unless
// the topic says otherwise, so that some within the range may be of other times.
func (r *Reader) Times(ctx context.Context, partition int32, from, to time.Time) (Range, error) {
	at := func(t time.Time, otherwise int64) (int64, error) {
		query := otherwise
		if !t.IsZero() {
			query = max(0, t.UnixMilli()) // the first numbers below 0 are not times, but places in the log
		}
		return r.offset(ctx, partition, query)
	}
	begin, err := at(from, sarama.OffsetOldest)
	if err != nil {
		return Range{}, err
	}
	end, err := at(to, sarama.OffsetNewest)
	return Range{partition, begin, max(begin, end)}, err
}

// Within cuts a range to what the log has now.
func (r *Reader) Within(ctx context.Context, rg Range) (Range, error) {
	oldest, err := r.offset(ctx, rg.Partition, sarama.OffsetOldest)
	if err != nil {
		return Range{}, err
	}
	newest, err := r.offset(ctx, rg.Partition, sarama.OffsetNewest)
	from := min(max(rg.From, oldest), newest)
	return Range{rg.Partition, from, max(from, min(rg.To, newest))}, err
}

// offset looks one up. A time behind the last record is the end of the log.
func (r *Reader) offset(ctx context.Context, partition int32, query int64) (offset int64, err error) {
	err = retry(ctx, func() error {
		offset, err = r.client.GetOffset(r.topic, partition, query)
		if err == nil && offset < 0 {
			offset, err = r.client.GetOffset(r.topic, partition, sarama.OffsetNewest)
		}
		if err != nil {
			_ = r.client.RefreshMetadata(r.topic)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look up an offset of %s[%d]: %w", r.topic, partition, err)
	}
	return offset, nil
}

const (
	tries      = 20
	retryPause = 250 * time.Millisecond
)

// retry calls f again as long as what is wrong may pass: a leader moves, a broker restarts.
func retry(ctx context.Context, f func() error) (err error) {
	for range tries {
		if err = f(); err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryPause):
		}
	}
	return err
}

func final(err error) bool {
	for _, e := range []error{
		sarama.ErrUnknownTopicOrPartition, sarama.ErrOffsetOutOfRange, sarama.ErrTopicAuthorizationFailed,
		sarama.ErrInvalidTopic,
		sarama.ErrSASLAuthenticationFailed, sarama.ErrClosedClient, sarama.ErrDecompressedBatchTooLarge, errOldFormat,
		errTooLarge,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Windows returns what is to be read of each partition: the ranges of offsets that are given, cut to what the log has,
// where a To of 0 means its end; or else what lies between the times.
func (r *Reader) Windows(ctx context.Context, partitions []int32, from, to time.Time,
	offsets map[int32]Range) (ranges []Range, err error) {
	for p := range offsets {
		if !slices.Contains(partitions, p) {
			return nil, fmt.Errorf("topic %q has no partition %d: it has %d", r.topic, p, len(partitions))
		}
	}
	for _, p := range partitions {
		rg, given := offsets[p]
		switch {
		case given:
			rg.Partition = p
			if rg.To == 0 {
				rg.To = math.MaxInt64
			}
			rg, err = r.Within(ctx, rg)
		case offsets != nil:
			continue
		default:
			rg, err = r.Times(ctx, p, from, to)
		}
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, rg)
	}
	return ranges, nil
}
