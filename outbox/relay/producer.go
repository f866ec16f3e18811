package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// producer sends batches for one worker. It is no sarama.SyncProducer, because order rests on what that does not
// tell: when one record batch of a partition is refused, the next ones may have been sent. Here a partition has one
// record batch on its way, which Kafka takes or refuses as a whole, and the next one is sent when that is known. So
// whatever is sent twice, by whomever, whenever, comes after all that stands before it in its key: the first copies
// are in order.
//
// It is idempotent: what is sent again because a connection broke, or because a broker did not wait for its replicas
// any longer, has its old sequence number, by which Kafka knows it. The publish time-out does not end that. A
// producer that has had to give up is retired: its connections are cut, so that what it has sent cannot come much
// later, and the next batch has a new producer id.
type producer struct {
	cluster *cluster
	failing func(error)    // is told why the outcome of a batch is not known yet
	conf    *sarama.Config // its own
	dialer  *kafkaconf.Dialer
	links   map[string]*sarama.Broker // by address
	id      *sarama.InitProducerIDResponse
	next    map[topicPartition]int32 // sequence numbers
}

func newProducer(c *cluster, failing func(error)) *producer {
	p := &producer{cluster: c, failing: failing}
	p.renew()
	return p
}

// renew begins with new connections and a new producer id.
func (p *producer) renew() {
	conf := *p.cluster.conf
	p.dialer = kafkaconf.NewDialer(&conf)
	p.conf, p.links, p.id, p.next = &conf, map[string]*sarama.Broker{}, nil, map[topicPartition]int32{}
}

// retire cuts the connections.
func (p *producer) retire() {
	p.dialer.End()
	for _, l := range p.links {
		_ = l.Close()
	}
	p.renew()
}

// close is retire for good.
func (p *producer) close() {
	p.dialer.End()
	for _, l := range p.links {
		_ = l.Close()
	}
}

// send sends the rows, which are in the order of their ids, and writes down what became of each. It begins no record
// batch after until, and returns when all is known, when it gives up on what is not, or when ctx is done. The error
// is the last one that was not a row's own.
func (p *producer) send(ctx context.Context, rows []*row, until time.Time) error {
	if len(rows) == 0 {
		return nil
	}
	stop := context.AfterFunc(ctx, p.dialer.End)
	queues := newQueues(rows, p.next)
	for open := openQueues(queues, until); len(open) > 0 && pause(ctx, open); open = openQueues(queues, until) {
		p.round(open)
		p.tell(queues)
	}
	unclear := false
	var err error
	for _, q := range queues {
		p.next[q.to] = q.sequence
		unclear = unclear || q.unclear
		err = cmp.Or(q.end(), err)
	}
	if !stop() || unclear {
		p.retire()
	}
	return err
}

// tell tells why the outcome of a batch is not known although it was sent again and again, or has waited for long.
func (p *producer) tell(queues []*partitionQueue) {
	for _, q := range queues {
		if q.unclear && q.err == nil && q.failure != nil && (q.retries >= maxRetries || time.Since(q.begun) > tellAfter) {
			p.failing(fmt.Errorf("%s[%d]: %w", q.to.topic, q.to.partition, q.failure))
			return
		}
	}
}

// tellAfter is how long an answer is waited for silently.
const tellAfter = 3 * time.Second

// identify asks for a producer id, if there is none. Batches are begun after it.
func (p *producer) identify(ctx context.Context) (err error) {
	if p.id != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, p.dialer.End)
	err = sarama.ErrOutOfBrokers
	for _, addr := range p.cluster.addresses() {
		if err = p.identifyBy(addr); err == nil {
			break
		}
	}
	if !stop() {
		p.retire()
		err = fmt.Errorf("no broker has answered within %v", identifyTimeout)
	}
	if err != nil {
		return fmt.Errorf("ask for a producer id: %w", err)
	}
	return nil
}

const identifyTimeout = 10 * time.Second

func (p *producer) identifyBy(addr string) error {
	broker, err := p.connect(addr)
	if err != nil {
		return err
	}
	res, err := broker.InitProducerID(&sarama.InitProducerIDRequest{Version: 1})
	switch {
	case err != nil:
		_ = broker.Close()
		return err
	case !errors.Is(res.Err, sarama.ErrNoError):
		return res.Err
	}
	p.id = res
	return nil
}

// round sends one record batch of each queue: one request to each broker, all at once.
func (p *producer) round(queues []*partitionQueue) {
	byBroker := map[*sarama.Broker][]*partitionQueue{}
	var stale []string
	for _, q := range queues {
		broker, err := p.link(q.to)
		if err != nil {
			q.retry(err)
			stale = append(stale, q.to.topic)
			continue
		}
		q.cut(p.cluster.conf.Producer.MaxMessageBytes)
		byBroker[broker] = append(byBroker[broker], q)
	}
	var requests sync.WaitGroup
	for broker, queues := range byBroker {
		requests.Go(func() { p.request(broker, queues) })
	}
	requests.Wait()
	for _, q := range queues {
		if q.retries > 0 {
			stale = append(stale, q.to.topic)
		}
	}
	if len(stale) > 0 {
		p.cluster.refresh(stale...)
	}
}

// link returns a connection to the leader.
func (p *producer) link(at topicPartition) (*sarama.Broker, error) {
	addr, err := p.cluster.leader(at)
	if err != nil {
		return nil, err
	}
	return p.connect(addr)
}

// connect returns the connection to a broker, and opens it if need be.
func (p *producer) connect(addr string) (*sarama.Broker, error) {
	if broker := p.links[addr]; broker != nil {
		if open, _ := broker.Connected(); open {
			return broker, nil
		}
		_ = broker.Close()
		delete(p.links, addr)
	}
	broker := sarama.NewBroker(addr)
	if err := broker.Open(p.conf); err != nil {
		return nil, err
	}
	if _, err := broker.Connected(); err != nil { // waits until it is open, or has failed
		return nil, err
	}
	p.links[addr] = broker
	return broker, nil
}

// request sends the record batches of the queues and reads the answers.
func (p *producer) request(broker *sarama.Broker, queues []*partitionQueue) {
	req := &sarama.ProduceRequest{
		RequiredAcks: p.conf.Producer.RequiredAcks,
		Timeout:      int32(p.conf.Producer.Timeout / time.Millisecond), //nolint:gosec // seconds
		Version:      p.version(),
	}
	for _, q := range queues {
		req.AddBatch(q.to.topic, q.to.partition, p.recordBatch(q))
	}
	res, err := broker.Produce(req)
	if err != nil {
		_ = broker.Close() // the next attempt opens another
	}
	for _, q := range queues {
		if err != nil {
			q.unanswered(err)
		} else if block := res.GetBlock(q.to.topic, q.to.partition); block == nil {
			q.unanswered(sarama.ErrIncompleteResponse)
		} else {
			q.answer(block)
		}
	}
}

func (p *producer) version() int16 {
	switch v := p.conf.Version; {
	case v.IsAtLeast(sarama.V2_8_0_0):
		return 9
	case v.IsAtLeast(sarama.V2_4_0_0):
		return 8
	default:
		return 7
	}
}

func (p *producer) recordBatch(q *partitionQueue) *sarama.RecordBatch {
	now := time.Now().Truncate(time.Millisecond)
	b := &sarama.RecordBatch{
		Version: 2, FirstTimestamp: now, MaxTimestamp: now,
		Codec: p.conf.Producer.Compression, CompressionLevel: p.conf.Producer.CompressionLevel,
		ProducerID: p.id.ProducerID, ProducerEpoch: p.id.ProducerEpoch, FirstSequence: q.sequence,
		LastOffsetDelta: int32(len(q.inFlight) - 1), //nolint:gosec // Config.BatchRows
	}
	for i, r := range q.inFlight {
		rec := r.record()
		rec.OffsetDelta = int64(i)
		b.Records = append(b.Records, rec)
	}
	return b
}
