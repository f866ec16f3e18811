package consumer_test

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// What the client reports is logged, once in a while, and the other partitions go on.
func TestClientErrorsAreLogged(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 2, 3)
	f := forever(kmsg.Fetch, kerr.TopicAuthorizationFailed)
	f.Topic, f.Partitions = topic, []int32{0}
	refused := b.Fake.Fault(f)
	var log lines
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Logger = log.logger()
	began := time.Now()
	m := start(t, cfg)
	eventually(t, "the other partition is handled", func() bool { return s.len() == 3 && s.all()[0].Partition == 1 })
	eventually(t, "five fetches are refused", func() bool { return refused.Hits() >= 5 })
	n := strings.Count(log.String(), "the Kafka client reports an error")
	if most := 1 + int(time.Since(began)/(10*time.Second)); n < 1 || n > most {
		t.Errorf("%d lines about %d errors, want at most %d:\n%s", n, refused.Hits(), most, log.String())
	}
	refused.Remove()
	eventually(t, "all are handled", func() bool { return s.len() == 6 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "joined the group"); n != 1 {
		t.Errorf("it took %d sessions: one partition cost the others theirs", n)
	}
}

// fetched answers fetches by hand as long as batch returns one for the offset that is asked for. The topic has one
// partition.
func fetched(b *serverstest.Broker, batch func(offset int64) []byte) {
	b.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		req := r.(*kmsg.FetchRequest)
		if len(req.Topics) == 0 {
			return nil, nil, false //nolint:nilnil // not handled
		}
		records := batch(req.Topics[0].Partitions[0].FetchOffset)
		if records == nil {
			return nil, nil, false //nolint:nilnil // not handled
		}
		res := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.LastStableOffset, rp.RecordBatches = 100, 100, records
		rt.Partitions = append(rt.Partitions, rp)
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
}

// emptyBatch is what compaction leaves of a batch of 50: no records.
func emptyBatch() []byte {
	batch := kmsg.RecordBatch{Length: 49, Magic: 2, LastOffsetDelta: 49, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1}
	raw := batch.AppendTo(nil)
	sum := crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(raw[17:], sum)
	return raw
}

// A batch that cannot be read stops its partition and is told; nothing is skipped, and reading goes on when it can.
func TestBatchThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 10)
	var healed atomic.Bool
	var tries atomic.Int32
	fetched(b, func(int64) []byte {
		if healed.Load() {
			return nil
		}
		tries.Add(1)
		batch := emptyBatch()
		batch[17]++ // the checksum
		return batch
	})
	var log lines
	var s seen
	cfg := config(b, group, topic, &s)
	cfg.Logger = log.logger()
	m := start(t, cfg)
	eventually(t, "it is tried again and told",
		func() bool { return tries.Load() > 2 && strings.Contains(log.String(), "CRC") })
	healed.Store(true)
	eventually(t, "all are handled", func() bool { return s.len() == 10 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "joined the group"); n != 1 || s.all()[0].Offset != 0 {
		t.Errorf("%d sessions, the first message is %d", n, s.all()[0].Offset)
	}
}

// A batch without records is no end: what follows it is handled and committed.
func TestBatchWithoutRecords(t *testing.T) {
	t.Parallel()
	b, topic, group := backlog(t, 1, 60)
	fetched(b, func(offset int64) []byte {
		if offset >= 50 {
			return nil
		}
		return emptyBatch()
	})
	var s seen
	m := start(t, config(b, group, topic, &s))
	eventually(t, "what follows is handled", func() bool { return s.len() == 10 && s.all()[0].Offset == 50 })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if c := b.Committed(t, group, topic); c[0] != 60 {
		t.Errorf("committed %v, want 60", c)
	}
}
