package consumer

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/kafkaconf"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// silence keeps requests of a kind without an answer.
func silence(b *serverstest.Broker, key kmsg.Key) {
	b.Fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		return nil, nil, true //nolint:nilnil // kfake: never answered
	})
}

// A refusal is told once. Whoever asks later gets the coordinator, if the user may have it by then.
func TestRefusedCoordinatorIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	fault := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Group: group,
		Err: kerr.GroupAuthorizationFailed, Count: -1})
	for range 2 {
		if _, err := g.Coordinator(group); !errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
			t.Fatalf("%v, want that it is refused", err)
		}
	}
	fault.Remove()
	if own, err := g.Coordinator(group); err != nil || !connected(own) {
		t.Errorf("it is not asked again: %v", err)
	}
	if why := g.why(); why != nil {
		t.Errorf("there is a coordinator, and still a cause why not: %v", why)
	}
}

// A coordinator that accepts the connection and says nothing is not waited for without end, and the error says which it
// is.
func TestConnectToACoordinatorThatSaysNothing(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	g := testGroupClient(t, serverstest.Group(t), b, func(c *sarama.Config) { c.Net.ReadTimeout = time.Hour })
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	closed := make(chan error, 1)
	go func() {
		conn, err := mute.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, conn) // until the other side closes it
		}
		closed <- err
	}()
	addr := mute.Addr().String()
	connecting := make(chan error, 1)
	go func() {
		_, err := g.connect(addr, 200*time.Millisecond)
		connecting <- err
	}()
	answers, ok := errors.AsType[kafkaconf.NoAnswer](received(t, connecting))
	if !ok || !errors.Is(answers[addr], errNoReply) {
		t.Errorf("%v, want that %s does not answer", answers, addr)
	}
	_ = received(t, closed) // the connection does not stay open
	if _, err := g.connect(addr[:len(addr)-1]+"x", time.Minute); err == nil {
		t.Error("an address that is none is connected")
	}
}

// The connections over which brokers were asked for the coordinator end with the client.
func TestConnectionsOfTheSearchEnd(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	if _, err := g.Coordinator(group); err != nil {
		t.Fatal(err)
	}
	asked := slices.Collect(maps.Values(g.finder.brokers))
	if !slices.ContainsFunc(asked, connected) {
		t.Fatal("no connection is kept")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, broker := range asked {
		soon(t, "it is closed", func() bool { return !connected(broker) })
	}
	if g.finder.broker(b.Addrs[0]) != nil {
		t.Error("another one is opened")
	}
}

// While no broker tells who the coordinator is, the one that says that it is none any more is let go.
func TestCoordinatorThatMovesToNobodyKnows(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	before, _ := coordinators(t, g, group)
	silence(b, kmsg.FindCoordinator)
	refreshed := make(chan error, 1)
	go func() { refreshed <- g.RefreshCoordinator(group) }()
	if err := received(t, refreshed); err != nil {
		t.Fatal(err)
	}
	soon(t, "its connection is closed", func() bool { return !connected(before) })
	if g.connected() != nil {
		t.Error("it is still the coordinator")
	}
}

// slowCommit is a session whose commit is not answered.
type slowCommit struct {
	marks
	release chan struct{}
}

func (s *slowCommit) Commit() { <-s.release }

// The commit at the end of a session is waited for a little, and the log tells that it was not answered.
func TestLastCommitThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := &session{membership: &membership{running: &running{log: slog.New(slog.NewTextHandler(&log, nil))}}}
	sess := &slowCommit{release: make(chan struct{})}
	defer close(sess.release)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.commit(sess)
	}()
	if !waitFor(ended, 30*time.Second) {
		t.Fatal("the session does not end")
	}
	if !log.says("was not answered in time") {
		t.Error("the log does not tell")
	}
}

// Without a connection to the brokers nothing is known of committed offsets, and that a static member stays in the
// group is told.
func TestWithoutAConnection(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	g := testGroupClient(t, group, b, nil)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if found := committedOffsets(g, group, map[string][]int32{"t": {0}}); found != nil {
		t.Errorf("committed %v", found)
	}
	var log logBuffer
	c := &Consumer{cfg: Config{Group: group, InstanceID: "this"}}
	m := &membership{running: &running{Consumer: c, client: g, log: slog.New(slog.NewTextHandler(&log, nil))}}
	m.removeInstance()
	if !log.says("could not leave the group") {
		t.Error("the log does not tell that the member stays")
	}
}

// Brokers answer for each member that is to leave, beside the answer as a whole.
func TestStaticMemberThatMayNotLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, ofMember *kerr.Error
		told             bool
	}{
		"it leaves":      {nil, nil, false},
		"it is none":     {nil, kerr.UnknownMemberID, false},
		"no group":       {kerr.GroupIDNotFound, nil, false},
		"not authorized": {kerr.GroupAuthorizationFailed, nil, true},
		"it stays":       {nil, kerr.FencedInstanceID, true},
		"unknown error":  {nil, kerr.UnknownServerError, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			group := serverstest.Group(t)
			g := testGroupClient(t, group, b, nil)
			b.Fake.ControlKey(int16(kmsg.LeaveGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				res := req.ResponseKind().(*kmsg.LeaveGroupResponse)
				if c.answer != nil {
					res.ErrorCode = c.answer.Code
					return res, nil, true //nolint:nilerr // the error is in the answer
				}
				member := kmsg.NewLeaveGroupResponseMember()
				member.InstanceID = req.(*kmsg.LeaveGroupRequest).Members[0].InstanceID
				if c.ofMember != nil {
					member.ErrorCode = c.ofMember.Code
				}
				res.Members = append(res.Members, member)
				return res, nil, true
			})
			var log logBuffer
			m := &membership{running: &running{Consumer: &Consumer{cfg: Config{Group: group, InstanceID: "this"}}, client: g,
				log: slog.New(slog.NewTextHandler(&log, nil))}}
			m.removeInstance()
			if log.says("could not leave the group") != c.told || c.told && !log.says("level=WARN") {
				t.Errorf("told: %v, want %v", !c.told, c.told)
			}
		})
	}
}

// What was committed when a claim began is -1 where nobody has told.
func TestCommittedOffsetThatIsNotTold(t *testing.T) {
	t.Parallel()
	r := &running{Consumer: &Consumer{topics: map[string]*topic{"t": {name: "t"}}}}
	s := &session{membership: &membership{running: r}}
	at := claimOf{topic: "t", partition: 1}
	if c := s.committedOffset(at); c.offset != -1 || c.note != "" || c.carried != "" {
		t.Errorf("nothing is known: %+v", c)
	}
	s.committed = map[string]map[int32]committed{"t": {0: {offset: 7},
		1: {offset: 9, note: "partitions=2", carried: " open="}}}
	if c := s.committedOffset(at); c != s.committed["t"][1] {
		t.Errorf("%+v, want %+v", c, s.committed["t"][1])
	}
}

// claimOf is a claim of which its name matters alone.
type claimOf struct {
	sarama.ConsumerGroupClaim
	topic     string
	partition int32
}

func (c claimOf) Topic() string    { return c.topic }
func (c claimOf) Partition() int32 { return c.partition }
