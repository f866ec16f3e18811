package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// Five members of a group come and go: by SIGTERM, by SIGKILL, by SIGSTOP, and by SIGCONT when they have lost their
// partitions or before that; several at once, and in the drain too. Meanwhile messages are produced, some of them
// repetitions, and some handlers fail.
//
// Each event takes effect once. And in KeyOrder the events of a key, in PartitionOrder those of a partition, take
// effect in the order of the log: when a handler begins, the transaction of the event before its own is committed, so
// that it sees all that came before and nothing that comes later. That is more than an order of commits, or of numbers
// that the transactions draw. It holds through redeliveries, and where a partition has two owners that are both alive,
// although only the records keep these apart:
//
//   - An owner takes the next message of a key when it knows the record of the one before to be committed, by itself or by another
//     owner. For the other one's COMMIT it has waited then.
//   - An owner begins at the committed offset, and whatever stands before that has taken effect.
//   - So whoever runs a handler, the event before is done. A frozen owner that comes to itself at an earlier message either still has the
//     transaction with its record, for which everybody waits who wants to pass it, or has lost it with all that it wrote.
//
// Attempts that are rolled back and repetitions that are skipped have no order: they come at any time.
func TestChurn(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		for _, order := range []consumer.Order{consumer.PartitionOrder, consumer.KeyOrder, consumer.Unordered} {
			t.Run(order.String(), func(t *testing.T) {
				t.Parallel()
				c := newCrowd(t, b, order)
				c.churn(churnTime(t, b))
				c.settle()
				c.wantOnce()
				c.wantTurns()
				if c.audits == 0 {
					t.Error("no audit beside it had an answer")
				}
				t.Log(c.story())
			})
		}
	})
}

// crowd is members that come and go.
type crowd struct {
	*world
	order    consumer.Order
	protocol consumer.Rebalance
	members  [5]visitor
	produced int
	again    int // of them, repetitions
	effects  int
	grown    time.Time // when there were more effects than before
	deeds    map[string]int
	audit    time.Time // when the last one was
	audits   int       // that had an answer
}

// visitor is a member, or the place of one that is gone.
type visitor struct {
	*process
	frozen bool
	ending bool
}

func newCrowd(t *testing.T, b *serverstest.Broker, order consumer.Order) *crowd {
	t.Helper()
	c := &crowd{world: newWorld(t, b, 8), order: order, grown: time.Now(), deeds: map[string]int{}}
	c.protocol = []consumer.Rebalance{consumer.Eager, consumer.Cooperative}[rand.IntN(2)]
	c.exec(turns)
	return c
}

// pace is what lies between two deeds, on average. There are calm spells, in which work goes on, and deeds at once, so
// that one comes into the rebalance after another. A member is frozen for five paces: some come to themselves in their
// session, some after it.
const pace = 600 * time.Millisecond

// churn goes on for at least that long, and until all is produced.
func (c *crowd) churn(length time.Duration) {
	c.t.Helper()
	const perMinute = 20_000
	messages := int(length * perMinute / time.Minute)
	for began := time.Now(); time.Since(began) < length || c.produced < messages; {
		c.feed(min(messages, int(time.Since(began)*perMinute/time.Minute)))
		for i := range c.members {
			if m := &c.members[i]; m.process == nil && rand.IntN(2) == 0 {
				c.start(m)
			}
		}
		c.deed(&c.members[rand.IntN(len(c.members))])
		c.auditBeside()
		time.Sleep(time.Duration(rand.ExpFloat64() * float64(pace))) // there is nothing to wait for: the moment is what is random
	}
}

// auditBeside audits now and then, whatever state the members are in: what moves is never lost.
func (c *crowd) auditBeside() {
	c.t.Helper()
	const every = 3 * time.Second
	if time.Since(c.audit) < every {
		return
	}
	c.audit = time.Now()
	if _, err := c.audited(); err == nil {
		c.audits++
	}
}

// feed produces until so many are produced, as long as not too many wait.
func (c *crowd) feed(due int) {
	c.t.Helper()
	const tooMany = 1000
	if n := query[int](c.world, `select count(*) from effect`); n > c.effects {
		c.effects, c.grown = n, time.Now()
	}
	if time.Since(c.grown) > patience {
		c.t.Fatalf("nothing has taken effect for %v, after %d of %d events", patience, c.effects, len(c.ids))
	}
	due = min(due, c.produced+tooMany-(len(c.ids)-c.effects))
	if c.produced >= due {
		return
	}
	partitions := map[int32][]string{}
	for ; c.produced < due; c.produced++ {
		p := rand.Int32N(c.partitions)
		partitions[p] = append(partitions[p], c.event(c.events[p]))
	}
	c.produceTo(partitions)
}

// event is the id of the next message: one in ten repeats an event of its partition.
func (c *crowd) event(before []string) string {
	if len(before) > 0 && rand.IntN(10) == 0 {
		c.again++
		return before[rand.IntN(len(before))]
	}
	return fmt.Sprintf("event-%d", c.produced)
}

func (c *crowd) start(m *visitor) {
	c.deeds["started"]++
	o := c.member(fmt.Sprintf("member-%d", c.deeds["started"]))
	o.Order, o.InTurn, o.Work, o.Idle = c.order, true, 2*time.Millisecond, 1500*time.Millisecond
	o.Protocol = c.protocol
	o.Share = groups[rand.IntN(len(groups))]
	o.Commits = []time.Duration{50 * time.Millisecond, time.Second}[rand.IntN(2)] // early, to be seen from outside, or late, to be repeated
	*m = visitor{process: start(c.t, o)}
}

// groups are how many messages share a transaction of a member: members with groups and without are owners of a
// partition in turn.
var groups = []int{0, 30}

// deed does something to a member.
func (c *crowd) deed(m *visitor) {
	c.t.Helper()
	switch dice := rand.IntN(6); {
	case m.process == nil:
	case m.frozen && dice < 5:
		c.thaw(m)
	case m.frozen:
		c.kill(m, "killed while frozen")
	case m.Ended():
		c.bury(m)
	case m.ending && dice == 0:
		c.kill(m, "killed in the drain")
	case m.ending && dice == 1:
		c.freeze(m, "frozen in the drain")
	case m.ending:
	case dice < 2:
		c.terminate(m)
	case dice < 4:
		c.kill(m, "killed")
	default:
		c.freeze(m, "frozen")
	}
}

func (c *crowd) terminate(m *visitor) {
	c.t.Helper()
	m.Await(sayUp)
	m.Signal(syscall.SIGTERM)
	m.ending = true
	c.deeds["terminated"]++
}

func (c *crowd) kill(m *visitor, how string) {
	m.process.Kill()
	c.wantNoRace(m)
	m.process = nil
	c.deeds[how]++
}

// wantNoRace looks for what the race detector says, which the exit status of a killed process does not tell.
func (c *crowd) wantNoRace(m *visitor) {
	if strings.Contains(m.Log.String(), "DATA RACE") {
		c.t.Errorf("%s: a data race", m.Name)
	}
}

func (c *crowd) freeze(m *visitor, how string) {
	m.Signal(syscall.SIGSTOP)
	m.frozen = true
	c.deeds[how]++
}

func (c *crowd) thaw(m *visitor) {
	m.Signal(syscall.SIGCONT)
	m.frozen = false
}

// bury looks at how a member has ended that was not killed. One whose handlers had not rolled back a second after they
// were cancelled, as on a machine that has much to do, says so.
func (c *crowd) bury(m *visitor) {
	c.t.Helper()
	stuck := strings.Contains(m.Log.String(), consumer.ErrHandlersStuck.Error()+": ")
	if !m.ending || !m.Cmd.ProcessState.Success() && !stuck {
		c.t.Fatalf("%s ended with %v; it was told to end: %v", m.Name, m.Cmd.ProcessState, m.ending)
	}
	m.process = nil
}

// settle has all members stay until everything is done, and then end.
func (c *crowd) settle() {
	c.t.Helper()
	for i := range c.members {
		m := &c.members[i]
		if m.process != nil && m.frozen {
			c.thaw(m)
		}
		if m.process != nil && m.ending {
			m.AwaitEnd()
			c.bury(m)
		}
		if m.process == nil {
			c.start(m)
		}
	}
	c.awaitAll()
	for i := range c.members {
		c.members[i].Stop()
	}
}

// story is what has happened.
func (c *crowd) story() string {
	repeated := query[int](c.world, `select sum(duplicates) from processed_event`)
	return fmt.Sprintf("%v: %d messages, %d of them repetitions; %d redeliveries recognised; %d audits beside it; members: %v",
		c.protocol, c.produced, c.again, repeated-c.again, c.audits, c.deeds)
}

// turns makes the table of effects say of each one which of its lane was the last that it saw.
const turns = `
alter table effect add lane text, add after bigint;
create index on effect (lane, "offset")`

// takeTurn takes effect, and looks at what had taken effect before. It locks nothing: if another transaction were at
// work on the same lane, it would not wait for it. One attempt in a hundred fails.
func (c *child) takeTurn(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := tx.Exec(ctx, `insert into effect (event, partition, "offset", by, lane, after)
		select $1, $2, $3, $4, $5, coalesce((select max("offset") from effect where lane = $5), -1)`,
		eventOf(msg), msg.Partition, msg.Offset, c.Name, lane(c.Order, msg.Partition, string(msg.Key)))
	time.Sleep(rand.N(2 * c.Work)) // in the transaction, where many a signal is to come
	if err == nil && rand.IntN(100) == 0 {
		return consumer.RetryAfter(10*time.Millisecond, errByChance)
	}
	return err
}

var errByChance = errors.New("by chance")

// lane names what has an order.
func lane(order consumer.Order, partition int32, key string) string {
	if order == consumer.PartitionOrder {
		key = "all"
	}
	return fmt.Sprintf("%d %s", partition, key)
}

// turn is one message in its turn: on its lane, after the last one before it.
type turn struct {
	Lane          string
	Offset, After int64
}

// wantTurns checks that each event took effect by its first message in the log, when those before it on its lane had.
func (c *crowd) wantTurns() {
	c.t.Helper()
	if c.order == consumer.Unordered {
		return
	}
	rows, err := c.pool.Query(c.t.Context(), `select lane, "offset", after from effect`)
	must(c.t, err)
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[turn])
	must(c.t, err)
	want := c.wantedTurns()
	var wrong []string
	for _, got := range taken {
		if !want[got] {
			wrong = append(wrong, fmt.Sprintf("%+v", got))
		}
		delete(want, got)
	}
	if len(wrong) > 0 || len(want) > 0 {
		c.t.Errorf("out of order: %d effects of %d: %s; %d turns not taken", len(wrong), len(taken),
			strings.Join(wrong[:min(10, len(wrong))], ", "), len(want))
	}
}

// wantedTurns are those of all events: each comes after the event before it.
func (c *crowd) wantedTurns() map[turn]bool {
	all, seen, last := map[turn]bool{}, map[string]bool{}, map[string]int64{}
	for p, ids := range c.events {
		for offset, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			l, after := lane(c.order, int32(p), keyOf(id)), int64(-1)
			if before, ok := last[l]; ok {
				after = before
			}
			last[l] = int64(offset)
			all[turn{l, int64(offset), after}] = true
		}
	}
	return all
}
