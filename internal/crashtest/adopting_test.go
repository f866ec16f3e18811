package crashtest

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// These tests show what docs/adopting.md says: what doubles when a group is moved to einmal, or a name or the source of
// ids changes, and how nothing does. Their SQL is that of the document.

// sqlOf returns the statement of the document in which part stands.
func sqlOf(t *testing.T, part string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/adopting.md")
	must(t, err)
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], part) {
			return m[1]
		}
	}
	t.Fatalf("docs/adopting.md has no SQL with %q", part)
	return ""
}

// wantDoubled checks that these events have taken effect twice, and all others once.
func (w *world) wantDoubled(events ...string) {
	w.t.Helper()
	doubled := query[[]string](w, `select array(select event from effect group by event having count(*) > 1 order by event)`)
	if strings.Join(doubled, " ") != strings.Join(events, " ") {
		w.t.Errorf("doubled: %q, want %q", doubled, events)
	}
	if n := query[int](w, `select count(distinct event) from effect`); n != len(w.ids) {
		w.t.Errorf("%d events took effect, want %d", n, len(w.ids))
	}
}

// plainLoop is a consumer as many services have one, with its last commits lost, or not.
type plainLoop struct {
	*world
	commitsLost bool
	handled     int
	cancel      context.CancelFunc
}

func (l *plainLoop) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (l *plainLoop) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (l *plainLoop) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for msg := range claim.Messages() {
		if _, err := l.pool.Exec(context.Background(),
			`insert into effect (event, partition, "offset", by) values ($1, $2, $3, 'plain loop')`,
			string(msg.Headers[0].Value), msg.Partition, msg.Offset); err != nil {
			return err
		}
		sess.MarkMessage(msg, "")
		if l.handled++; l.handled <= strikeAt || !l.commitsLost {
			sess.Commit()
		}
		if l.handled == inAll {
			l.cancel()
			return nil
		}
	}
	return nil
}

// run runs the loop until all is handled.
func (l *plainLoop) run() {
	l.t.Helper()
	cfg := clientConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cfg.Consumer.MaxWaitTime = 50 * time.Millisecond // for which each commit waits
	group, err := sarama.NewConsumerGroup(l.b.Addrs, l.group, cfg)
	must(l.t, err)
	defer group.Close()
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(l.t.Context())
	for ctx.Err() == nil {
		must(l.t, group.Consume(ctx, []string{l.topic}, l))
	}
}

const (
	oldName = "billing-service/orders.confirmed" // as in the document
	newName = "invoices"
)

// A group is moved from a plain loop to einmal.
func TestMovingAGroup(t *testing.T) {
	t.Parallel()
	tail := []string{"event-5", "event-6", "event-7", "event-8", "event-9"}
	for _, c := range []struct {
		name        string
		commitsLost bool
		prepare     func(t *testing.T, w *world)
		doubled     []string
	}{
		{"the old loop's last commits are lost", true, nil, tail},
		{"the old loop is stopped cleanly", false, nil, nil},
		{"records are filled in from the effects", true, func(t *testing.T, w *world) {
			w.exec(`create view charge as select event as event_id from effect`)
			w.exec(sqlOf(t, "from charge"))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.produceMany(inAll)
				(&plainLoop{world: w, commitsLost: c.commitsLost}).run()
				w.produce(0, "new-0", "new-1")
				if c.prepare != nil {
					c.prepare(t, w)
				}
				o := w.member("einmal")
				o.Consumer = oldName
				m := newMember(t, o)
				m.run()
				w.awaitAll()
				m.stop()
				w.wantDoubled(c.doubled...)
			})
		})
	}
}

// The name of a consumer changes, by itself or with its group's, or its ids are taken from elsewhere, after a process
// was killed before it could commit the offsets of what it had done.
func TestRenaming(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		next    func(*orders) // changes what the next process is told
		edit    func(*consumer.Topic)
		prepare func(t *testing.T, w *world)
		doubled bool
	}{
		{"another consumer", func(o *orders) { o.Consumer = newName }, nil, nil, true},
		{"another consumer with copied records", func(o *orders) { o.Consumer = newName }, nil, func(t *testing.T, w *world) {
			w.exec(sqlOf(t, "'"+newName+"'"))
		}, false},
		{"another group, the consumer by default", func(o *orders) { o.Group, o.Consumer = o.Group+"-2", "" }, nil, nil,
			true},
		{"another group, the consumer pinned", func(o *orders) { o.Group += "-2" }, nil, nil, false},
		{"another source of ids", nil, func(topic *consumer.Topic) { topic.EventID = consumer.HeaderID("id") }, nil, true},
		{"another source of ids for later messages", nil, func(topic *consumer.Topic) { topic.EventID = from(inAll) }, nil,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, serverstest.InProcess(t), 1)
			w.produceMany(inAll)
			o := w.struckAt(offsetCommitUnsent)
			o.Consumer = oldName
			first := start(t, o)
			w.awaitStrike(first, o.Step, whatever)
			w.awaitNoSession(first.Name)
			w.produce(0, "new-0", "new-1")
			if c.prepare != nil {
				c.prepare(t, w)
			}
			next := w.member("next")
			next.Consumer = oldName
			if c.next != nil {
				c.next(&next)
			}
			w.regroup(next.Group)
			m := newMember(t, next)
			m.edit = c.edit
			m.run()
			w.awaitAll()
			m.stop()
			if !c.doubled {
				w.wantDoubled()
			} else if query[int](w, `select count(*) from effect where event = $1`, event5) != 2 {
				t.Errorf("%s has not doubled", event5)
			}
		})
	}
}

// from takes ids from another header from that offset on. Each message keeps the id that it has always had.
func from(offset int64) func(*consumer.Message) (string, error) {
	before, later := consumer.HeaderID("event-id"), consumer.HeaderID("id")
	return func(msg *consumer.Message) (string, error) {
		if msg.Offset < offset {
			return before(msg)
		}
		return later(msg)
	}
}

// A clean shutdown commits all that has taken effect: after it nothing is delivered again, whatever the names are then.
func TestRenamingAfterAShutdown(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 2)
		w.produceMany(inAll)
		w.produce(1, "other-0", "other-1")
		first := w.member("first")
		first.Consumer = oldName
		m := newMember(t, first)
		m.run()
		eventually(t, "some events take effect", func() bool { return query[int](w, `select count(*) from effect`) > 3 })
		m.stop()
		next := w.member("next")
		next.Consumer = newName
		m = newMember(t, next)
		m.run()
		w.awaitAll()
		m.stop()
		w.wantDoubled()
	})
}
