package topicwindow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/IBM/sarama"
)

var (
	errOldFormat = errors.New("the topic has records in the format of before Kafka 0.11, which cannot be read outside of a group")
	errTooLarge  = errors.New("a batch is larger than a fetch can be")
)

const (
	fetchBytes    = 1 << 20 // of a partition at a time; a batch that is larger comes whole
	fetchWaitMS   = 250
	abortedMarker = 0
)

// Record is a record of a topic.
type Record = sarama.ConsumerMessage

// Read calls each for the records of a range in their order, and returns its error as it is. at is the offset up to
// which the range has been read: with an error, that at which reading could go on. The records of transactions that
// were aborted are left out if the client reads committed ones only.
//
// A range that was deleted meanwhile is an error that wraps sarama.ErrOffsetOutOfRange.
func (r *Reader) Read(ctx context.Context, rg Range, each func(*Record) error) (at int64, err error) {
	p := &position{reader: r, partition: rg.Partition, at: rg.From, end: rg.To, bytes: fetchBytes, each: each}
	for p.at < p.end {
		if ctx.Err() != nil {
			return p.at, ctx.Err()
		}
		var block *sarama.FetchResponseBlock
		err = retry(ctx, func() (err error) {
			block, err = p.fetch()
			return err
		})
		if ctx.Err() != nil {
			return p.at, ctx.Err()
		}
		if err != nil {
			return p.at, fmt.Errorf("read %s[%d] at %d: %w", r.topic, rg.Partition, p.at, err)
		}
		if err := p.take(ctx, block); err != nil {
			return p.at, err
		}
	}
	return p.at, nil
}

// position is a place in a partition that moves.
type position struct {
	reader    *Reader
	partition int32
	at, end   int64
	bytes     int32
	empty     int // answers without a record at this place
	each      func(*Record) error
}

// fetch asks the leader. An error makes the next try look for the leader again.
func (p *position) fetch() (*sarama.FetchResponseBlock, error) {
	r, conf := p.reader, p.reader.client.Config()
	leader, epoch, err := r.client.LeaderAndEpoch(r.topic, p.partition)
	if err == nil {
		req := &sarama.FetchRequest{Version: 4, MaxWaitTime: fetchWaitMS, MinBytes: 1, MaxBytes: p.bytes,
			Isolation: conf.Consumer.IsolationLevel}
		if conf.Version.IsAtLeast(sarama.V2_1_0_0) {
			req.Version, req.SessionEpoch = 10, -1
		}
		req.AddBlock(r.topic, p.partition, p.at, p.bytes, epoch)
		var block *sarama.FetchResponseBlock
		if block, err = p.ask(leader, req); err == nil {
			return block, nil
		}
	}
	_ = r.client.RefreshMetadata(r.topic)
	return nil, err
}

func (p *position) ask(leader *sarama.Broker, req *sarama.FetchRequest) (*sarama.FetchResponseBlock, error) {
	res, err := leader.Fetch(req)
	if err != nil {
		_ = leader.Close() // the next Leader opens it again
		return nil, err
	}
	block := res.GetBlock(p.reader.topic, p.partition)
	switch {
	case block == nil:
		return nil, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return nil, block.Err
	}
	return block, nil
}

// take hands over what a fetch has brought, and moves on.
func (p *position) take(ctx context.Context, block *sarama.FetchResponseBlock) error {
	if len(block.RecordsSet) == 0 || isPartial(block.RecordsSet[0]) {
		return p.nothing(block)
	}
	p.bytes, p.empty = fetchBytes, 0
	aborted := newAborted(block)
	for _, set := range block.RecordsSet {
		if set.RecordBatch == nil {
			return fmt.Errorf("read %s[%d]: %w", p.reader.topic, p.partition, errOldFormat)
		}
		if isPartial(set) {
			return nil
		}
		if err := p.batch(ctx, set.RecordBatch, aborted); err != nil || p.at >= p.end {
			return err
		}
	}
	return nil
}

func isPartial(set *sarama.Records) bool {
	return set.RecordBatch != nil && set.RecordBatch.PartialTrailingRecord
}

// emptyAnswers is how often there must be nothing at an offset below the end of what can be read, to be believed:
// sarama leaves out batches that compaction has emptied, and does not tell where they end.
const emptyAnswers = 3

// nothing makes the next fetch larger where a batch did not fit. The end of what can be read is the end of the range,
// wherever that is: with open transactions it can stand still for long.
func (p *position) nothing(block *sarama.FetchResponseBlock) error {
	partial := block.Partial || len(block.RecordsSet) > 0
	switch readable := p.readable(block); {
	case partial && p.bytes > math.MaxInt32/2:
		return fmt.Errorf("read %s[%d] at %d: %w", p.reader.topic, p.partition, p.at, errTooLarge)
	case partial:
		p.bytes *= 2
	case p.at >= readable:
		p.end = p.at
	default:
		if p.empty++; p.empty >= emptyAnswers {
			p.at, p.empty = p.at+1, 0
		}
	}
	return nil
}

func (p *position) readable(block *sarama.FetchResponseBlock) int64 {
	if p.reader.client.Config().Consumer.IsolationLevel == sarama.ReadCommitted {
		return block.LastStableOffset
	}
	return block.HighWaterMarkOffset
}

// batch hands over the records of a batch. A batch of a compacted topic can have none at all at its end, so its own end
// counts.
func (p *position) batch(ctx context.Context, b *sarama.RecordBatch, aborted *aborted) error {
	after := b.FirstOffset + int64(b.LastOffsetDelta) + 1
	if !aborted.skips(b) {
		for _, rec := range b.Records {
			offset := b.FirstOffset + rec.OffsetDelta
			if offset < p.at {
				continue
			}
			if offset >= p.end {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := p.each(p.message(b, rec, offset)); err != nil {
				return err
			}
			p.at = offset + 1
		}
	}
	p.at = max(p.at, min(after, p.end))
	return nil
}

func (p *position) message(b *sarama.RecordBatch, rec *sarama.Record, offset int64) *Record {
	at := b.FirstTimestamp.Add(rec.TimestampDelta)
	if b.LogAppendTime {
		at = b.MaxTimestamp
	}
	return &Record{
		Topic: p.reader.topic, Partition: p.partition, Offset: offset, Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
		Timestamp: at,
	}
}

// aborted knows the aborted transactions of a fetch. Where all records are read, there are none.
type aborted struct {
	from map[int64][]int64 // the first offsets of a producer's, in their order
}

func newAborted(block *sarama.FetchResponseBlock) *aborted {
	a := &aborted{from: map[int64][]int64{}}
	for _, t := range block.AbortedTransactions {
		a.from[t.ProducerID] = append(a.from[t.ProducerID], t.FirstOffset)
	}
	return a
}

// skips reports whether a batch is a marker, or belongs to an aborted transaction.
func (a *aborted) skips(b *sarama.RecordBatch) bool {
	first := a.from[b.ProducerID]
	if b.Control {
		if len(first) > 0 && first[0] <= b.FirstOffset && isAbort(b) {
			a.from[b.ProducerID] = first[1:]
		}
		return true
	}
	return b.IsTransactional && len(first) > 0 && first[0] <= b.FirstOffset
}

// isAbort reads the key of a marker: a version and a type, of two bytes each.
func isAbort(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 &&
		binary.BigEndian.Uint16(b.Records[0].Key[2:]) == abortedMarker
}
