package relay_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
)

// Codes of Kafka's answers.
const (
	codeNotLeader          = 6
	codeCoordinatorLoading = 14
	codeTopicForbidden     = 29
	codeNotEnoughReplicas  = 19
	codeOutOfOrder         = 45

	codeInvalidProducerEpoch = 47
	codeUnknownProducer      = 59

	codeInvalidRecord    = 87
	codeInvalidTimestamp = 32
)

// contains reports whether a request has a record with that text.
func contains(req *kmsg.ProduceRequest, text string) bool {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if bytes.Contains(p.Records, []byte(text)) {
				return true
			}
		}
	}
	return false
}

// Kafka takes or refuses a record batch as a whole. The one row for which it was refused is found; it blocks its key,
// and the others are sent, each key in order.
func TestRefusedRecordBatch(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.b.Fake.ControlKey(0, refusing(b.b, func(req *kmsg.ProduceRequest) (int16, bool) {
				return codeInvalidRecord,
					contains(req, "bad value")
			}))
			var events []outbox.Event
			for i := range 40 {
				e := outbox.Event{ID: fmt.Sprint(i), Topic: b.topic, Key: []byte(fmt.Sprint("key ", i%4)),
					Value: []byte("good value")}
				if i == 17 {
					e.Value = []byte("bad value")
				}
				events = append(events, e)
			}
			must(t, b.write(t.Context(), tabletest.Commit, events...))
			start(t, b.config(mode))
			eventually(t, "one is blocked, and all but its key are sent",
				func() bool { return b.rows("status = 'BLOCKED' and event_id = '17'") == 1 && b.rows("true") == 6 })
			if n := b.rows("status = 'PENDING' and attempts = 0 and claims = 0 and partition_key = 'key 1' and event_id in ('21', '25', '29', '33', '37')"); n != 5 {
				t.Errorf("%d rows wait behind it, want 5", n)
			}
			list, err := outboxtest.Records(b.b.Addrs, b.topic)
			must(t, err)
			got, repeated := outboxtest.FirstCopies(list)
			if s := fmt.Sprint(got["key 1"], got["key 2"]); s != "[1 5 9 13] [2 6 10 14 18 22 26 30 34 38]" || repeated > 0 {
				t.Errorf("%s, %d sent twice", s, repeated)
			}
		})
	}
}

// As long as a record batch is not acknowledged, nothing that comes after it in its partition is sent: whatever the
// answers are, whatever else is sent meanwhile.
func TestNothingOvertakes(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int16{"not leader": codeNotLeader, "not enough replicas": codeNotEnoughReplicas,
		"out of order": codeOutOfOrder, "invalid timestamp": codeInvalidTimestamp} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			var refusals atomic.Int64
			b.b.Fake.ControlKey(0, refusing(b.b, func(req *kmsg.ProduceRequest) (int16, bool) {
				return code, contains(req, "the first") && refusals.Add(1) <= 9
			}))
			var events []outbox.Event
			for i := range 50 {
				e := outbox.Event{ID: fmt.Sprint(i), Topic: b.topic, Key: []byte("k"), Value: []byte(strings.Repeat("x", 100))}
				if i == 3 {
					e.Value = []byte("the first")
				}
				events = append(events, e)
			}
			must(t, b.write(t.Context(), tabletest.Commit, events...))
			cfg := b.config(outbox.SinglePhase)
			cfg.Sarama = func(c *sarama.Config) { c.Producer.MaxMessageBytes = 600 }
			start(t, cfg)
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			var want []string
			for i := range 50 {
				want = append(want, fmt.Sprint(i))
			}
			if got := b.topicHas(); got != strings.Join(want, " ") {
				t.Errorf("order %s", got)
			}
			if refusals.Load() < 9 {
				t.Errorf("%d refusals", refusals.Load())
			}
		})
	}
}

// A partition that takes nothing holds up its own rows, not those of others, and blames none.
func TestPartitionThatTakesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4)
	var stuck atomic.Bool
	stuck.Store(true)
	b.b.Fake.ControlKey(0, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.b.Fake.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		if !stuck.Load() || !contains(req, "held") {
			return nil, nil, false //nolint:nilnil // so says kfake
		}
		return refusing(b.b, func(*kmsg.ProduceRequest) (int16, bool) { return codeNotEnoughReplicas, true })(kreq)
	})
	cfg := b.config(outbox.SinglePhase)
	cfg.BatchRows = 10 // fewer than are held
	r := start(t, cfg)
	var events []outbox.Event
	for i := range 300 { // one key, one partition
		events = append(events, outbox.Event{ID: fmt.Sprint("held ", i), Topic: b.topic, Key: []byte("held")})
	}
	must(t, b.write(t.Context(), tabletest.Commit, events...))
	eventually(t, "it has been tried", func() bool { return r.Status().Error != nil })
	other := b.b.Topic(t, 1)
	for i := range 64 {
		must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{ID: fmt.Sprint(i), Topic: other,
			Key: []byte(fmt.Sprint(i))}))
	}
	eventually(t, "the others are sent", func() bool { return b.rows("event_id not like 'held%'") == 0 })
	if n := b.rows("status = 'PENDING' and attempts = 0"); n != 300 {
		t.Errorf("%d rows wait without blame, want 300", n)
	}
	stuck.Store(false)
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	for i, id := range strings.Split(b.topicHas(), " held ") {
		if strings.TrimPrefix(id, "held ") != fmt.Sprint(i) {
			t.Fatalf("place %d has %s", i, id)
		}
	}
}

func TestTopicThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.b.Fake.ControlKey(0, refusing(b.b, func(*kmsg.ProduceRequest) (int16, bool) { return codeTopicForbidden, true }))
	b.insert("1", "2")
	must(t, b.write(t.Context(), tabletest.Commit, outbox.Event{ID: "3", Topic: b.topic, Key: []byte("other")},
		outbox.Event{ID: "4", Topic: b.topic}))
	start(t, b.config(outbox.TwoPhase))
	eventually(t, "the heads of the keys are blocked",
		func() bool { return b.rows("status = 'BLOCKED' and attempts = 1 and event_id in ('1', '3', '4')") == 3 })
	if b.rows("status = 'PENDING' and event_id = '2'") != 1 {
		t.Error("what is behind does not wait")
	}
}

// A record batch whose answer is lost is sent again with its old sequence number: Kafka knows it.
func TestLostAnswerIsNotSentTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	n := &lossy{}
	b.insert("1", "2", "3")
	cfg := b.config(outbox.SinglePhase)
	cfg.Sarama = func(c *sarama.Config) { c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, n }
	start(t, cfg)
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2 3" || !n.lost.Load() {
		t.Errorf("%s; an answer was lost: %v", got, n.lost.Load())
	}
}

// B34: the publish time-out does not end what Kafka needs to know a record batch again: whose answer does not come is
// sent until it does, and is there once.
func TestPublishTimeoutKeepsTheProducer(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.insert("1", "2", "3")
			n := &lossy{hold: true}
			cfg := b.config(mode)
			cfg.PublishTimeout = 100 * time.Millisecond
			cfg.Sarama = func(c *sarama.Config) {
				c.Producer.Timeout, c.Net.ReadTimeout = time.Second, 2*time.Second
				c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, n
			}
			start(t, cfg)
			eventually(t, "an answer is held", n.lost.Load)
			b.insert("4") // a batch with it would be another one
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			if got := b.topicHas(); got != "1 2 3 4" {
				t.Error(got)
			}
		})
	}
}

// While the outcome of a batch is not known, Status says why, and the claim lasts: the transaction is not idle. A relay
// that is to stop waits no longer than the publish time-out, and gives its rows back.
func TestStopWhileAnOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			var kafka line
			cfg := b.config(mode)
			cfg.PublishTimeout, cfg.OutcomeTimeout = time.Second, time.Minute
			cfg.Sarama = func(c *sarama.Config) {
				c.Producer.Timeout, c.Net.ReadTimeout = time.Second, 2*time.Second
				c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, &kafka
			}
			r, stop := run(t, cfg)
			stop = sync.OnceFunc(stop)
			t.Cleanup(stop)
			b.insert("1")
			eventually(t, "it does its work", func() bool { return b.rows("true") == 0 })
			kafka.frozen.Store(true)
			b.insert("2")
			eventually(t, "Status says that Kafka does not answer", func() bool { return r.Status().Paused })
			time.Sleep(14 * time.Second) // longer than what the server allows a transaction that is idle
			held := "select count(*) from pg_locks where locktype = 'advisory' and granted and classid::bigint = (hashoid('outbox_event'::regclass)::bigint & 4294967295) and database = (select oid from pg_database where datname = current_database())"
			if mode == outbox.TwoPhase {
				held = "select count(*) from outbox_lease where leased_until > clock_timestamp()"
			}
			if n := tabletest.Value[int](b.Fixture, held); n == 0 {
				t.Error("the claim is gone")
			}
			began := time.Now()
			stop()
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it stopped after %v", took)
			}
			if n := b.rows("status = 'PENDING' and claims = 0 and event_id = '2'"); n != 1 {
				t.Error("the row was not given back")
			}
		})
	}
}

// Batches have a producer id, without which Kafka could not know them again: none is sent before a broker has given
// one, however long that takes.
func TestProducerIDIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*serverstest.Broker, *kmsg.InitProducerIDRequest) (kmsg.Response, error,
		bool){
		"it is refused": func(_ *serverstest.Broker, req *kmsg.InitProducerIDRequest) (kmsg.Response, error, bool) {
			res := req.ResponseKind().(*kmsg.InitProducerIDResponse)
			res.ErrorCode, res.ProducerID = codeCoordinatorLoading, -1
			return res, nil, true
		},
		"it is not answered": func(b *serverstest.Broker, _ *kmsg.InitProducerIDRequest) (kmsg.Response, error, bool) {
			b.Fake.SleepControl(func() { time.Sleep(12 * time.Second) })
			return nil, nil, false //nolint:nilnil // so says kfake
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			var asked, without atomic.Int64
			b.b.Fake.ControlKey(22, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				b.b.Fake.KeepControl()
				if asked.Add(1) > 2 {
					return nil, nil, false //nolint:nilnil // so says kfake
				}
				return answer(b.b, kreq.(*kmsg.InitProducerIDRequest))
			})
			b.b.Fake.ControlKey(0, refusing(b.b, func(req *kmsg.ProduceRequest) (int16, bool) {
				if id := int64(binary.BigEndian.Uint64(req.Topics[0].Partitions[0].Records[43:51])); id < 0 {
					without.Add(1)
				}
				return 0, false
			}))
			b.insert("1", "2")
			cfg := b.config(outbox.SinglePhase)
			cfg.Workers = 1
			start(t, cfg)
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			if asked.Load() < 3 || without.Load() > 0 {
				t.Errorf("it asked %d times, and sent %d batches without an id", asked.Load(), without.Load())
			}
		})
	}
}

// B26: a producer that has given up on a batch whose fate is not known is cut off before its rows are sent again.
func TestProducerIsRetired(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.insert("1", "2", "3")
			n := &lossy{hold: true}
			cfg := b.config(mode)
			cfg.PublishTimeout, cfg.OutcomeTimeout = time.Second, time.Second
			cfg.Sarama = func(c *sarama.Config) {
				c.Producer.Timeout, c.Net.Proxy.Enable, c.Net.Proxy.Dialer = time.Second, true, n
			}
			start(t, cfg)
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
			if !n.lost.Load() || !n.cut.Load() {
				t.Errorf("a request was held: %v, its connection was cut: %v", n.lost.Load(), n.cut.Load())
			}
			list, err := outboxtest.Records(b.b.Addrs, b.topic)
			must(t, err)
			if got, _ := outboxtest.FirstCopies(list); fmt.Sprint(got["k"]) != "[1 2 3]" {
				t.Errorf("%v", got)
			}
		})
	}
}

// Compression is the user's to choose.
func TestCompression(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	cfg := b.config(outbox.SinglePhase)
	cfg.Sarama = func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionZSTD }
	b.insert("1", "2")
	start(t, cfg)
	eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
	if got := b.topicHas(); got != "1 2" {
		t.Error(got)
	}
}

// A producer that Kafka does not know any more, or whose numbers it does not follow, is replaced, and the rows are sent
// by the next one.
func TestProducerThatKafkaRefuses(t *testing.T) {
	t.Parallel()
	for _, code := range []int16{codeOutOfOrder, codeInvalidProducerEpoch, codeUnknownProducer} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%d, %s", code, mode), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 1)
				var refused sync.Map // the first producer
				b.b.Fake.ControlKey(0, refusing(b.b, func(req *kmsg.ProduceRequest) (int16, bool) {
					id := producerOf(req)
					first, _ := refused.LoadOrStore("first", id)
					return code, first == id
				}))
				b.insert("1", "2")
				start(t, b.config(mode))
				eventually(t, "another producer sends them", func() bool { return b.rows("true") == 0 })
				if got := b.topicHas(); got != "1 2" {
					t.Errorf("the topic has %s", got)
				}
			})
		}
	}
}

// producerOf is the producer id in the first record batch of a request.
func producerOf(req *kmsg.ProduceRequest) int64 {
	return int64(binary.BigEndian.Uint64(req.Topics[0].Partitions[0].Records[43:51]))
}
