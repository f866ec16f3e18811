package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// Where offsets go back, the log has changed under the fetch: the claim ends, and with it the session, so that it is
// read again from what is committed. Nothing of it is taken for done.
func TestOffsetsThatGoBack(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var handled []int64
	cl, m := testClaim(PartitionOrder, func(_ context.Context, msg *Message) error {
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, msg.Offset)
		return nil
	})
	messages := make(chan *sarama.ConsumerMessage, 3)
	for _, o := range []int64{5, 6, 3} {
		messages <- &sarama.ConsumerMessage{Topic: "t", Offset: o}
	}
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		cl.pump(messages) // the channel stays open
	}()
	received(t, pumped)
	cl.end(10 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	for _, o := range handled {
		if o == 3 {
			t.Error("3 was handled")
		}
	}
	for _, o := range m.all() {
		if o != 6 && o != 7 {
			t.Errorf("%d was marked", o)
		}
	}
}

// Of a message without a time nobody knows whether its record is gone: where records are not kept for ever, it is not
// replayed.
func TestReplayOfMessagesWithoutATime(t *testing.T) {
	t.Parallel()
	hour := time.Now().Add(-time.Hour)
	for _, test := range []struct {
		keep time.Duration
		at   time.Time
		want bool
	}{
		{0, time.Time{}, false},
		{0, hour, false},
		{2 * time.Hour, time.Time{}, true},
		{2 * time.Hour, hour, false},
		{61 * time.Minute, hour, false},
		{59 * time.Minute, hour, true},
	} {
		if got := (&replay{keep: test.keep}).tooOld(Message{Timestamp: test.at}); got != test.want {
			t.Errorf("kept for %v, of %v: too old %v", test.keep, test.at, got)
		}
	}
}

// What is left for a drain is all of DrainTimeout at a stop, what the rebalance allows otherwise, and next to nothing
// without a coordinator.
func TestDrainBudget(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, test := range map[string]struct {
		ctx     context.Context
		drain   time.Duration
		patient time.Duration // of the client without a coordinator
		want    time.Duration
	}{
		"stop":                        {stopped, time.Minute, time.Hour, time.Minute},
		"stop, without a coordinator": {stopped, time.Minute, -time.Hour, time.Minute},
		"rebalance":                   {t.Context(), time.Minute, time.Hour, rebalanceTimeout - 2*heartbeatInterval},
		"rebalance, short drain":      {t.Context(), time.Second / 2, time.Hour, time.Second / 2},
		"without a coordinator":       {t.Context(), time.Minute, -time.Hour, lostBudget},
	} {
		c := &Consumer{cfg: Config{DrainTimeout: test.drain}, sarama: newSaramaConfig("g", &strategy{})}
		client := &groupClient{deadline: time.Now().Add(test.patient)}
		s := &session{membership: &membership{running: &running{Consumer: c, ctx: test.ctx, client: client}}}
		if got := s.drainBudget(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func testSession(t *testing.T, b *serverstest.Broker, group string, topics ...string) *session {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := &running{
		Consumer: &Consumer{topics: map[string]*topic{}, cfg: Config{Group: group}}, log: log,
		client: testGroupClient(t, group, b, nil),
		ids:    map[string]TopicID{}, partitions: map[string]int{},
	}
	for _, name := range topics {
		r.topics[name] = &topic{name: name}
	}
	return &session{membership: &membership{running: r, errors: newBrokerErrors(log)}}
}

// Without its topic's id a message would have another identity than after the next rebalance: a session does not begin
// before it is known.
func TestIDsMustBeKnown(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	there, gone := b.Topic(t, 1), b.Topic(t, 1)
	s := testSession(t, b, serverstest.Group(t), there, gone)
	claims := map[string][]int32{there: {0}}

	f := kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: gone, Err: kerr.UnknownTopicOrPartition, Count: -1}
	fault := b.Fake.Fault(f)
	if err := s.learnIDs(claims); err != nil || s.topicID(there) == (TopicID{}) || s.topicID(gone) != (TopicID{}) {
		t.Errorf("a topic that is not held is unknown: %v, %v", err, s.ids)
	}
	claims[gone] = []int32{0}
	if err := s.learnIDs(claims); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) ||
		!strings.Contains(err.Error(), gone) {
		t.Errorf("one that is held is unknown: %v", err)
	}
	fault.Remove()
	f.Err = kerr.TopicAuthorizationFailed
	fault = b.Fake.Fault(f)
	if err := s.learnIDs(claims); !errors.Is(err, sarama.ErrTopicAuthorizationFailed) ||
		!strings.Contains(err.Error(), gone) {
		t.Errorf("one may not be read: %v", err)
	}
	fault.Remove()
	if err := s.learnIDs(claims); err != nil || s.recreated[there] || s.recreated[gone] {
		t.Errorf("%v, created again: %v", err, s.recreated)
	}
	s.ids[gone], s.partitions[there], s.partitions[gone] = TopicID{1}, 9, 9
	if err := s.learnIDs(claims); err != nil || s.recreated[there] || !s.recreated[gone] {
		t.Errorf("%v, created again: %v", err, s.recreated)
	}
	if s.partitions[there] != 9 || s.partitions[gone] != 0 { // it may have fewer now
		t.Errorf("partitions %v", s.partitions)
	}
}

// Where the committed offset is not known, a start that needs it is an error, and the others are left to sarama.
func TestUnknownCommittedOffset(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	name, group := b.Topic(t, 1), serverstest.Group(t)
	s := testSession(t, b, group, name)
	b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: group, Err: kerr.UnstableOffsetCommit, Count: -1})
	s.committed = committedOffsets(s.client, group, map[string][]int32{name: {0}})
	if _, known := s.committed[name][0]; known {
		t.Fatalf("committed %v", s.committed)
	}
	for _, test := range []struct {
		start  Start
		policy OutOfRange
		fails  bool
	}{{Start{}, ToOldest, false}, {FromNewest(), ToOldest, true}, {FromTime(time.Now()), ToOldest, true},
		{Start{}, ToNewest, true}, {Start{}, Fail, true}} {
		_, move, err := s.startOf(&topic{name: name, start: test.start, outOfRange: test.policy}, 0)
		if move || (err != nil) != test.fails || err != nil && !strings.Contains(err.Error(), name+"[0]") {
			t.Errorf("%+v: move %v, %v", test, move, err)
		}
	}
}

// Which partitions were added is told by the notes of committed offsets, and without notes by which of them are
// committed.
func TestAddedPartitionsAreTold(t *testing.T) {
	t.Parallel()
	type all = map[int32]committed
	for name, test := range map[string]struct {
		known all
		p     int32
		want  bool
	}{
		"nothing is committed":   {all{}, 0, false},
		"nothing, of several":    {all{0: {offset: -1}, 1: {offset: -1}}, 1, false},
		"others began with it":   {all{0: {offset: 7, note: "partitions=3"}, 2: {offset: -1}}, 2, false},
		"others began before it": {all{0: {offset: 7, note: "partitions=2"}, 2: {offset: -1}}, 2, true},
		"and later ones have come": {all{0: {offset: 7, note: "partitions=2"},
			3: {offset: 0, note: "partitions=4"}}, 2, true},
		"no notes, a later one": {all{0: {offset: 7, note: ""}, 1: {offset: 0, note: ""}, 2: {offset: -1}}, 2,
			true},
		"no notes, one between": {all{0: {offset: 7, note: ""}, 2: {offset: 0, note: ""}, 1: {offset: -1}}, 1,
			false},
		"a note that is none":                 {all{0: {offset: 7, note: "partitions=x"}, 1: {offset: -1}}, 1, true},
		"a note of a partition that is gone":  {all{0: {offset: -1, note: "partitions=1"}, 1: {offset: -1}}, 1, true},
		"the first partition is never a late": {all{0: {offset: -1}, 1: {offset: 3, note: ""}}, 0, false},
	} {
		s := &session{committed: map[string]map[int32]committed{"t": test.known}}
		if got := s.isAdded(&topic{name: "t"}, test.p); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The position at which a claim begins is one that is to be committed: commits that stop before it is are told of.
func TestStartIsToBeCommitted(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	s := testSession(t, b, serverstest.Group(t), topic)
	cl, _ := testClaim(PartitionOrder, func(context.Context, *Message) error { return nil })
	cl.topic.name, cl.first, cl.committed = topic, -1, -1
	if !s.begin(cl) || cl.first != 0 {
		t.Fatalf("it begins at %d", cl.first)
	}
	if cl.commits.mark != 0 || cl.commits.since.IsZero() {
		t.Errorf("nothing waits to be committed: %+v", cl.commits)
	}
}
