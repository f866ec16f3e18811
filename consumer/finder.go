package consumer

import (
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

const (
	// lookupTimeout bounds the question for the coordinator, which is asked to all brokers at once: the one that is asked
	// first can be the one that is frozen.
	lookupTimeout = 2 * time.Second
	// finderIdle is how long the connections of the questions are kept, for the next one: without a coordinator there are
	// many.
	finderIdle = 30 * time.Second
)

// errNoCoordinator is why a broker does not tell the coordinator, where it gives no other reason.
var errNoCoordinator = errors.New("it knows no coordinator")

// finder asks the brokers for the coordinator of a group, over connections of its own. It is safe for concurrent use.
type finder struct {
	group  string
	conf   *sarama.Config
	dialer *kafkaconf.Dialer

	mu      sync.Mutex
	brokers map[string]*sarama.Broker // by address
	idle    *time.Timer
	closed  bool
}

func newFinder(group string, c *sarama.Config) *finder {
	conf := *c
	conf.Net.DialTimeout = min(conf.Net.DialTimeout, lookupTimeout)
	conf.Net.ReadTimeout, conf.Net.WriteTimeout = lookupTimeout, lookupTimeout
	return &finder{group: group, conf: &conf, dialer: kafkaconf.NewDialer(&conf), brokers: map[string]*sarama.Broker{}}
}

// answer is what a broker says about the coordinator: its address, or why it does not tell.
type answer struct {
	from, addr string
	err        error
}

// find asks all brokers at once and takes the first answer that has an address. Without one, the error is a NoAnswer.
func (f *finder) find(addrs []string) (string, error) {
	answers := make(chan answer, len(addrs))
	for _, addr := range addrs {
		go func() { answers <- f.ask(addr) }()
	}
	none := kafkaconf.NoAnswer{}
	timeout := time.NewTimer(lookupTimeout)
	defer timeout.Stop()
	for range addrs {
		select {
		case a := <-answers:
			if a.addr != "" {
				return a.addr, nil
			}
			none[a.from] = a.err
		case <-timeout.C:
			for _, addr := range addrs {
				if none[addr] == nil {
					none[addr] = errNoReply
				}
			}
			return "", none
		}
	}
	return "", none
}

var errNoReply = errors.New("it does not answer")

// ask asks one broker. Its connection is kept, unless the question fails.
func (f *finder) ask(addr string) answer {
	b := f.broker(addr)
	if b == nil {
		return answer{from: addr, err: sarama.ErrClosedClient}
	}
	req := &sarama.FindCoordinatorRequest{CoordinatorKey: f.group, CoordinatorType: sarama.CoordinatorGroup,
		Version: findVersion(f.conf.Version)}
	res, err := b.FindCoordinator(req)
	switch {
	case err != nil:
		if _, cause := b.Connected(); cause != nil {
			err = cause // why it is not connected
		}
		f.drop(addr, b)
	case !errors.Is(res.Err, sarama.ErrNoError):
		err = res.Err
	case res.Coordinator == nil:
		err = errNoCoordinator
	default:
		return answer{from: addr, addr: res.Coordinator.Addr()}
	}
	return answer{from: addr, err: err}
}

// findVersion is the version of the question that brokers of a Kafka version know.
func findVersion(v sarama.KafkaVersion) int16 {
	if v.IsAtLeast(sarama.V2_0_0_0) {
		return 2
	}
	return 1
}

// broker returns the connection to a broker, nil after close. It opens those that it makes: one that were opened after
// forget would stay open.
func (f *finder) broker(addr string) *sarama.Broker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	if f.idle == nil {
		f.idle = time.AfterFunc(finderIdle, f.forget)
	}
	f.idle.Reset(finderIdle)
	if f.brokers[addr] == nil {
		f.brokers[addr] = sarama.NewBroker(addr)
		_ = f.brokers[addr].Open(f.conf) // it does not wait for the connection
	}
	return f.brokers[addr]
}

// drop closes a connection and has the next question open another one.
func (f *finder) drop(addr string, b *sarama.Broker) {
	f.mu.Lock()
	if f.brokers[addr] == b {
		delete(f.brokers, addr)
	}
	f.mu.Unlock()
	_ = b.Close()
}

// forget closes the connections.
func (f *finder) forget() {
	f.mu.Lock()
	brokers := f.brokers
	f.brokers = map[string]*sarama.Broker{}
	f.mu.Unlock()
	for _, b := range brokers {
		go func() { _ = b.Close() }() // waits for the request that is under way
	}
}

// close ends it.
func (f *finder) close() {
	f.mu.Lock()
	f.closed = true
	if f.idle != nil {
		f.idle.Stop()
	}
	f.mu.Unlock()
	f.dialer.End()
	f.forget()
}
