package outboxtest_test

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
)

var modes = []outbox.Mode{outbox.SinglePhase, outbox.TwoPhase}

// A relay is killed at each step of a batch, and another one goes on.
func TestKilledAt(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, s := range steps[mode] {
			t.Run(string(mode)+"/"+string(s), func(t *testing.T) {
				t.Parallel()
				serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
					w := newWorld(t, b, mode)
					w.write(300)
					o := w.relay()
					o.Step = s
					start(t, o).AwaitKilled()
					w.write(100)
					next := start(t, w.relay())
					w.awaitClean()
					next.Stop()
					w.check()
				})
			})
		}
	}
}

// Two to five relays are killed, frozen and stopped at random moments, while events are written.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				c := &chaos{world: newWorld(t, b, mode), relays: make([]*process, 2+rand.IntN(4))}
				done := make(chan struct{})
				var writers sync.WaitGroup
				for range 2 {
					writers.Go(func() { c.feed(done) })
				}
				for i := range c.relays {
					c.relays[i] = start(t, c.relay())
				}
				for kills := randomKills(t); c.killed < kills && !t.Failed(); {
					c.deed(rand.IntN(len(c.relays)))
				}
				close(done)
				writers.Wait()
				c.awaitClean()
				for _, p := range c.relays {
					p.Stop()
				}
				repeated := c.check()
				events := 0
				for _, ids := range c.order {
					events += len(ids)
				}
				t.Logf("%d relays at once, %d kills, %d freezes, %d events, %d rolled back, %d sent again", len(c.relays), c.killed,
					c.frozen, events, len(c.rolled), repeated)
			})
		})
	}
}

type chaos struct {
	*world
	relays         []*process
	killed, frozen int
}

// feed writes as long as not too many wait.
func (c *chaos) feed(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		if c.rows() < 1000 {
			c.write(20)
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// deed does something to a relay at some moment. There is nothing to wait for: the moment is what is random.
func (c *chaos) deed(i int) {
	c.t.Helper()
	p := c.relays[i]
	time.Sleep(rand.N(400 * time.Millisecond))
	if p.Ended() {
		c.t.Errorf("%s ended by itself: %v", p.Name, p.Cmd.ProcessState)
		return
	}
	switch n := rand.IntN(10); {
	case n == 0:
		p.Stop()
	case n < 4: // one in three freezes outlasts the lease, and the transaction's time-out
		p.Await(childtest.Up)
		p.Signal(syscall.SIGSTOP)
		c.frozen++
		if rand.IntN(3) == 0 {
			time.AfterFunc(leaseTTL+2*time.Second, func() { p.Signal(syscall.SIGCONT) })
			c.killOthers(i)
		} else {
			time.Sleep(rand.N(time.Second))
			p.Signal(syscall.SIGCONT)
		}
		return
	default:
		p.Kill()
		c.killed++
	}
	c.relays[i] = start(c.t, c.relay())
}

// killOthers has the frozen relay be the only one that is old.
func (c *chaos) killOthers(frozen int) {
	for i := range c.relays {
		if i != frozen && rand.IntN(2) == 0 {
			c.relays[i].Kill()
			c.killed++
			c.relays[i] = start(c.t, c.relay())
		}
	}
}
