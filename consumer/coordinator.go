package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/kafkaconf"
)

// groupClient is a client whose group coordinator has a connection of its own. sarama's Broker does one request at a
// time: on a shared connection heartbeats, commits and joins would wait behind fetches that wait for messages.
//
// Where the coordinator does not answer, sarama tries the same broker a few times without a pause and ends the session:
// all partitions stop, and what was finished is delivered again. Kafka itself moves the group to another broker within
// its broker session time-out, and keeps its members. So the client waits for a coordinator that is connected, but no
// longer than a member may go without one: later another member could own its partitions.
//
//	        asked for the coordinator
//	┌──────────────┐  connection is open   ┌─────────┐
//	│ seeking: ask │ ────────────────────▶ │ at hand │
//	│ all brokers  │ ◀──────────────────── │         │
//	└──────┬───────┘  connection was lost  └─────────┘
//	       │ nothing within patience since it was last at hand, or grace since stop
//	       ▼
//	     lost: requests fail at once, the session ends
type groupClient struct {
	sarama.Client
	group    string
	stop     <-chan struct{} // the Consumer stops
	patience time.Duration
	finder   *finder
	errors   *brokerErrors
	conf     *sarama.Config // the group's own, see fetchFor

	mu       sync.Mutex
	own      *coordinator     // nil while there is none
	deadline time.Time        // until when to seek
	stopBy   time.Time        // the same, from the stop on
	seeking  chan struct{}    // closed when the search under way is over; nil if there is none
	refused  error            // by the brokers, at the last search; waiting does not cure it
	cause    error            // why the last search has failed; nil when there is a coordinator
	askAgain func(error) bool // what to do when no broker tells an offset; waits, and reports whether to ask again
	closed   bool
}

const (
	// patience is how long a member may be without a coordinator: longer than a broker's death is noticed and repaired
	// (Kafka's broker.session.timeout.ms, 9 s, and a look-up), shorter than the group's session time-out, after which
	// others own its partitions.
	patience = 16 * time.Second
	// stopGrace is how long a stopping Consumer waits for a coordinator, to commit and to leave.
	stopGrace = 3 * time.Second
	// seekPause lies between two tries of a search, and grows to seekPauseMax: all members of all groups search at once
	// when a coordinator is away.
	seekPause, seekPauseMax = 250 * time.Millisecond, 2 * time.Second
	// seekQuiet is how long a search may take before the log says why: coordinators move.
	seekQuiet = time.Second
)

// coordinator is a connection to the group's coordinator.
type coordinator struct {
	*sarama.Broker
	dialer *kafkaconf.Dialer // of this connection alone
}

// end closes the connection. It first cuts it, so that a request that is under way does not keep it from closing.
func (c *coordinator) end() {
	c.dialer.End()
	go func() { _ = c.Close() }() // waits for that request to fail; it may be closed already
}

// alive reports whether the connection is open, without waiting for the request that may be under way on it.
func (c *coordinator) alive() bool { return c != nil && c.dialer.Open() }

func newGroupClient(client sarama.Client, group string, stop <-chan struct{}, log *slog.Logger) *groupClient {
	conf := *client.Config()
	g := &groupClient{
		conf: &conf, Client: client, group: group, stop: stop, patience: patience,
		finder: newFinder(group, client.Config()), errors: newBrokerErrors(log),
	}
	g.arm()
	return g
}

// arm allows a new search, before a join.
func (g *groupClient) arm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline = time.Now().Add(g.patience)
}

// lost reports whether the member has been without a coordinator for too long.
func (g *groupClient) lost() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.own.alive() && time.Now().After(g.deadline)
}

// Coordinator returns the coordinator of the group on its own connection. It waits for one; when it has waited long
// enough, it returns a broker that fails every request.
func (g *groupClient) Coordinator(string) (*sarama.Broker, error) {
	for {
		own, found, wait, err := g.atHand()
		if err != nil || own != nil {
			return own, err
		}
		if !g.await(found, wait) {
			return sarama.NewBroker("localhost:0"), nil // never opened
		}
	}
}

// atHand returns the coordinator, or else a search to wait for, and how long.
func (g *groupClient) atHand() (own *sarama.Broker, found <-chan struct{}, wait time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, 0, sarama.ErrClosedClient
	}
	now := time.Now()
	if g.own.alive() {
		g.deadline = now.Add(g.patience)
		return g.own.Broker, nil, 0, nil
	}
	if err := g.refused; err != nil {
		g.refused = nil // told once, then asked again
		return nil, nil, 0, err
	}
	deadline := g.until(now)
	if g.seeking == nil && now.Before(deadline) {
		g.seeking = make(chan struct{})
		go g.seek(deadline)
	}
	return nil, g.seeking, deadline.Sub(now), nil
}

// connected returns the coordinator if there is a connection to it. It does not look for one.
func (g *groupClient) connected() *sarama.Broker {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || !g.own.alive() {
		return nil
	}
	return g.own.Broker
}

// until returns the deadline, which comes near when the Consumer stops.
func (g *groupClient) until(now time.Time) time.Time {
	select {
	case <-g.stop:
		if g.stopBy.IsZero() {
			g.stopBy = now.Add(stopGrace)
		}
		if g.stopBy.Before(g.deadline) {
			return g.stopBy
		}
	default:
	}
	return g.deadline
}

// await waits for a search, and reports whether to look again.
func (g *groupClient) await(found <-chan struct{}, wait time.Duration) bool {
	if found == nil || wait <= 0 {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	stop := g.stop
	if wait <= stopGrace {
		stop = nil // it may be the stop that made it so short
	}
	select {
	case <-found:
		return true
	case <-timer.C:
		return false
	case <-stop:
		return true // there is less time now
	}
}

// seek looks for the coordinator until it is connected, or the deadline has passed.
func (g *groupClient) seek(deadline time.Time) {
	var own *coordinator
	var err error
	began, rest := time.Now(), seekPause
	for time.Now().Before(deadline) && !g.isClosed() {
		if own, err = g.find(); err == nil || notAllowed(err) {
			break
		}
		if time.Since(began) > seekQuiet {
			g.errors.warn(fmt.Errorf("the coordinator of the group is not reached: %w", err))
		}
		rest = g.rest(rest)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused, g.cause = nil, err
	if notAllowed(err) {
		g.refused = sarama.ErrGroupAuthorizationFailed
	}
	if g.closed && own != nil {
		own.end()
	} else {
		g.own = own
	}
	close(g.seeking)
	g.seeking = nil
}

// rest waits before the next try, and returns how long to wait the next time. The stop of the Consumer, which leaves
// little time, ends it.
func (g *groupClient) rest(d time.Duration) time.Duration {
	stop := g.stop
	select {
	case <-stop:
		stop, d = nil, seekPause
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
	return min(2*d, seekPauseMax)
}

// notAllowed reports whether the brokers do not tell the coordinator to this user. Waiting does not cure it.
func notAllowed(err error) bool { return errors.Is(err, sarama.ErrGroupAuthorizationFailed) }

// why returns why there is no coordinator, nil if there is one or nobody has searched.
func (g *groupClient) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// find asks for the coordinator and connects to it.
func (g *groupClient) find() (*coordinator, error) {
	addr, err := g.finder.find(g.addresses())
	if err != nil {
		return nil, err
	}
	return g.connect(addr, g.Client.Config().Net.DialTimeout+lookupTimeout)
}

// connect opens a connection, with all that belongs to it: TLS, SASL, the versions. A frozen broker accepts it and says
// nothing.
func (g *groupClient) connect(addr string, timeout time.Duration) (*coordinator, error) {
	conf := *g.Client.Config()
	c := &coordinator{Broker: sarama.NewBroker(addr), dialer: kafkaconf.NewDialer(&conf)}
	if err := c.Open(&conf); err != nil {
		return nil, err
	}
	opened := make(chan error, 1)
	go func() {
		_, err := c.Connected() // waits until it is open, or has failed
		opened <- err
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	err := errNoReply
	select {
	case err = <-opened:
		if err == nil && c.alive() {
			return c, nil
		}
		if err == nil {
			err = sarama.ErrNotConnected
		}
	case <-timer.C:
	}
	c.end()
	return nil, kafkaconf.NoAnswer{addr: err}
}

// addresses are those of the brokers that the client knows, or the ones it began with.
func (g *groupClient) addresses() []string {
	var addrs []string
	for _, b := range g.Brokers() {
		addrs = append(addrs, b.Addr())
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// RefreshCoordinator is called when the coordinator says that it is none any more. The next call of Coordinator looks
// for the new one; the old connection is kept if it still is the one.
func (g *groupClient) RefreshCoordinator(string) error {
	g.mu.Lock()
	own, closed := g.own, g.closed
	g.mu.Unlock()
	if closed {
		return sarama.ErrClosedClient
	}
	if !own.alive() {
		return nil
	}
	found := make(chan string, 1)
	go func() {
		addr, _ := g.finder.find(g.addresses())
		found <- addr
	}()
	var addr string
	select {
	case addr = <-found:
	case <-time.After(lookupTimeout):
	}
	if addr == own.Addr() {
		return nil
	}
	g.mu.Lock()
	if g.own == own {
		g.own = nil
	}
	g.mu.Unlock()
	own.end()
	return nil
}

func (g *groupClient) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Close closes the connections.
func (g *groupClient) Close() error {
	g.mu.Lock()
	g.closed = true
	if g.own != nil {
		g.own.end()
		g.own = nil
	}
	g.mu.Unlock()
	g.finder.close()
	return g.Client.Close()
}
