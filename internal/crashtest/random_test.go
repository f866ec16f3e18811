package crashtest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// Two processes of a group are killed at random moments: before they have joined, while they join, at work, while the
// other one is dead. In between one is frozen for a while, or drains. Each new process handles its messages in an order
// of its own choice. The producer sends some events twice.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		c := &chaos{world: newWorld(t, b, 4)}
		for i := range c.workers {
			c.start(i)
		}
		for kills := randomKills(t); c.killed < kills; {
			c.feed()
			c.deed(rand.IntN(len(c.workers)))
		}
		c.feed()
		c.awaitAll()
		for _, p := range c.workers {
			p.Stop()
		}
		c.wantOnce()
		t.Logf("%d kills of %d processes, %d events, %d repetitions recognised", c.killed, c.started, len(c.ids),
			query[int](c.world, `select sum(duplicates) from processed_event`))
	})
}

type chaos struct {
	*world
	workers [2]*process
	started int
	killed  int
}

func (c *chaos) start(i int) {
	c.t.Helper()
	c.started++
	o := c.member(fmt.Sprintf("worker-%d-%d", i, c.started))
	o.Work = time.Millisecond
	o.Share = groups[rand.IntN(len(groups))]
	o.Order = []consumer.Order{consumer.PartitionOrder, consumer.KeyOrder, consumer.Unordered}[rand.IntN(3)]
	c.workers[i] = start(c.t, o)
}

const (
	enough = 400 // messages that wait
	batch  = 20  // messages for each partition
)

// feed produces events as long as there is not enough to do. One in ten stands twice in a row, one in ten again at the
// end.
func (c *chaos) feed() {
	c.t.Helper()
	if len(c.ids)-query[int](c.world, `select count(*) from effect`) > enough {
		return
	}
	for p := range c.partitions {
		var ids, again []string
		for range batch {
			id := fmt.Sprintf("event-%d", len(c.ids)+len(ids))
			ids = append(ids, id)
			switch rand.IntN(10) {
			case 0:
				ids = append(ids, id)
			case 1:
				again = append(again, id)
			}
		}
		c.produce(p, append(ids, again...)...)
	}
}

// deed does something to a worker at some moment.
func (c *chaos) deed(i int) {
	c.t.Helper()
	p := c.workers[i]
	switch rand.IntN(10) {
	case 0:
		p.Stop()
	case 1:
		p.Await(sayUp)
		p.Signal(syscall.SIGSTOP)
		c.pass(time.Second)
		p.Signal(syscall.SIGCONT)
		return
	default:
		c.awaitMoment(p)
		if p.Ended() {
			c.t.Fatalf("%s ended by itself: %v", p.Name, p.Cmd.ProcessState)
		}
		p.Kill()
		c.killed++
	}
	c.check()
	c.start(i)
}

// awaitMoment waits for a moment early in the life of a process, while it joins, or at work.
func (c *chaos) awaitMoment(p *process) {
	c.t.Helper()
	switch rand.IntN(3) {
	case 0:
		c.pass(50 * time.Millisecond)
	case 1:
		p.Await(sayUp)
		c.pass(800 * time.Millisecond)
	default:
		before := query[int](c.world, `select count(*) from effect`)
		eventually(c.t, "some events take effect", func() bool {
			c.feed() // all that there was may have taken effect before it was counted
			return query[int](c.world, `select count(*) from effect`) > before+rand.IntN(20)
		})
		c.pass(30 * time.Millisecond)
	}
}

// pass lets some time pass, up to limit. There is nothing to wait for: the moment is what is random.
func (c *chaos) pass(limit time.Duration) { time.Sleep(rand.N(limit)) }
