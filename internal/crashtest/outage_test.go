package crashtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// member is a child's consumer in the test's own process.
type member struct {
	*child
	*consumer.Consumer
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// newMember makes a consumer, which run starts. Its log is shown if the test fails.
func newMember(t testing.TB, o orders) *member {
	t.Helper()
	var log childtest.Output
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return &member{child: newChild(o, &log), t: t, done: make(chan struct{})}
}

func (m *member) run() {
	m.t.Helper()
	pool, err := m.openPool(m.t.Context())
	must(m.t, err)
	m.Consumer, err = consumer.New(m.config(pool))
	must(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.Run(ctx)
		pool.Close()
	}()
	m.t.Cleanup(func() { m.stop() })
}

func (m *member) stop() {
	m.t.Helper()
	m.cancel()
	<-m.done
	if m.err != nil {
		m.t.Errorf("Run returned %v", m.err)
	}
}

// failing returns the failed attempts of the message that has failed most often, and its last error.
func (m *member) failing() (attempts int, last error) {
	for _, p := range m.Status().Partitions {
		if p.Failing != nil && p.Failing.Attempts > attempts {
			attempts, last = p.Failing.Attempts, p.Failing.Err
		}
	}
	return attempts, last
}

// The connection to the database breaks at each step of a message's life.
func TestDatabaseConnectionLostAt(t *testing.T) {
	t.Parallel()
	for _, s := range steps {
		if s.step == afterCommit {
			break // from there on no connection to the database is used
		}
		t.Run(string(s.step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, serverstest.InProcess(t), 1)
			w.produceMany(inAll)
			m := newMember(t, w.struckAt(s.step))
			m.blow = func(step) { m.database.breakAll() }
			m.run()
			w.awaitAll()
			m.stop()
			w.wantOnce()
			if !m.struck.Load() {
				t.Error("the connection did not break")
			}
			want := 0
			if s.done {
				want = 1
			}
			if n := w.duplicates(event5); n != want {
				t.Errorf("%d repetitions were recognised, want %d", n, want)
			}
		})
	}
}

// The database cannot be reached when the service starts.
func TestDatabaseAwayAtTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, serverstest.InProcess(t), 1)
	w.produceMany(inAll)
	m := newMember(t, w.member("first"))
	m.database.cut()
	m.run()
	eventually(t, "connecting is tried again", func() bool { return m.database.refused.Load() > 2 })
	m.database.heal()
	w.awaitAll()
	m.stop()
	w.wantOnce()
}

// The database goes away, and comes back: its messages are open until then, and none is given up for it.
func TestDatabaseAwayLater(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 2)
		w.produceMany(inAll)
		o := w.member("first")
		o.Attempts = 2
		m := newMember(t, o)
		m.run()
		w.awaitAll()
		m.database.cut()
		w.produce(0, "late-0", "late-1")
		w.produce(1, "late-2", "late-3")
		eventually(t, "a message has failed more often than a handler may", func() bool {
			attempts, err := m.failing()
			if consumer.IsGaveUp(err) {
				t.Fatal(err)
			}
			return attempts > o.Attempts
		})
		w.look()
		m.database.heal()
		w.awaitAll()
		m.stop()
		w.wantOnce()
	})
}

// The server ends all sessions again and again, as it does when it is restarted.
func TestDatabaseEndsSessions(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		w.produceMany(200)
		m := newMember(t, w.member("first"))
		m.run()
		for range 10 {
			before := query[int](w, `select count(*) from effect`)
			eventually(t, "some events take effect", func() bool {
				n := query[int](w, `select count(*) from effect`)
				return n > before || n == 200
			})
			w.exec(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1`, m.Name)
		}
		w.awaitAll()
		m.stop()
		w.wantOnce()
	})
}

// The brokers cannot be reached for a while: the member is thrown out of its group, and joins again.
func TestBrokersAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*network){
		"connections refused": (*network).cut,
		"no answers":          func(n *network) { n.frozen.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 2)
				w.produceMany(inAll)
				m := newMember(t, w.member("first"))
				m.run()
				w.awaitAll()
				away(m.kafka)
				w.produce(0, "late-0", "late-1")
				w.produce(1, "late-2", "late-3")
				w.awaitState("Empty")
				m.kafka.heal()
				w.awaitAll()
				m.stop()
				w.wantOnce()
			})
		})
	}
}

// Partitions and the group get other brokers, again and again.
func TestBrokersChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, serverstest.InProcess(t), 2)
	m := newMember(t, w.member("first"))
	m.run()
	for i := range 5 {
		w.produce(int32(i%2), fmt.Sprintf("event-%d-0", i), fmt.Sprintf("event-%d-1", i))
		w.b.Fake.ShufflePartitionLeaders()
		w.b.Fake.RehashCoordinators()
		w.awaitAll()
	}
	m.stop()
	w.wantOnce()
}

// A topic is deleted, and created again under the same name, while it is consumed: its offsets begin anew. The new log
// is still shorter than the old one was: a longer one is not told apart from it.
func TestTopicCreatedAgain(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		w.produceMany(inAll)
		m := newMember(t, w.member("first"))
		m.run()
		w.awaitAll()
		w.createTopicAgain(func() {})
		w.produce(0, "new-0", "new-1", "new-2")
		w.awaitAll()
		m.stop()
		w.wantOnce()
	})
}

// One of two topics is deleted while both are consumed. The other one goes on, and so does the first when it is there
// again.
func TestTopicDeletedBesideAnother(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		other := b.Topic(t, 1)
		var handled atomic.Int32
		produce := func() { b.Produce(t, &sarama.ProducerMessage{Topic: other}) }
		m := newMember(t, w.member("first"))
		m.more = map[string]consumer.Topic{other: {Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			handled.Add(1)
			return nil
		})}}
		w.produceMany(inAll)
		produce()
		m.run()
		w.awaitAll()
		eventually(t, "the other topic is served", func() bool { return handled.Load() == 1 })
		w.createTopicAgain(func() {
			produce()
			eventually(t, "the other topic is served without the first", func() bool { return handled.Load() == 2 })
		})
		w.produce(0, "new-0", "new-1", "new-2")
		produce()
		w.awaitAll()
		eventually(t, "the other topic is served", func() bool { return handled.Load() == 3 })
		m.stop()
		w.wantOnce()
	})
}

// The retention deletes messages that nobody has read. The rest is handled.
func TestRetentionOvertakes(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		w := newWorld(t, b, 1)
		w.produceMany(3)
		m := newMember(t, w.member("first"))
		m.run()
		w.awaitAll()
		m.stop()
		w.produce(0, "late-3", "late-4", "late-5", "late-6", "late-7")
		w.lose(0, 3, 6)
		must(t, w.admin.DeleteRecords(w.topic, map[int32]int64{0: 6}))
		m = newMember(t, w.member("second"))
		m.run()
		w.awaitAll()
		m.stop()
		w.wantOnce()
	})
}
