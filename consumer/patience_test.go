package consumer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// valve is a dialer whose connections can be refused, or opened and then left without an answer.
type valve struct {
	mu     sync.Mutex
	refuse bool
	mute   bool
	conns  []net.Conn
}

func (v *valve) Dial(network, addr string) (net.Conn, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.refuse {
		return nil, errors.New("refused")
	}
	if v.mute { // a frozen broker: the kernel accepts, nobody reads
		client, server := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		v.conns = append(v.conns, client)
		return client, nil
	}
	conn, err := net.Dial(network, addr)
	if err == nil {
		v.conns = append(v.conns, conn)
	}
	return conn, err
}

func (v *valve) set(refuse, mute bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refuse, v.mute = refuse, mute
	if refuse || mute {
		for _, c := range v.conns {
			_ = c.Close()
		}
		v.conns = nil
	}
}

func (v *valve) install(c *sarama.Config) {
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, v
}

func beat(b *sarama.Broker, group string) error {
	_, err := b.Heartbeat(&sarama.HeartbeatRequest{GroupId: group, MemberId: "m"})
	return err
}

// A coordinator that is away is waited for, and found again.
func TestCoordinatorIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	var v valve
	g := testGroupClient(t, group, b, v.install)
	before, _ := g.Coordinator(group)
	v.set(true, false)
	_ = beat(before, group) // sarama notices at the next request
	found := make(chan *sarama.Broker)
	go func() {
		b, _ := g.Coordinator(group)
		found <- b
	}()
	select {
	case <-found:
		t.Fatal("it did not wait")
	case <-time.After(200 * time.Millisecond):
	}
	v.set(false, false)
	if after := received(t, found); after == before || !connected(after) {
		t.Error("it is not connected")
	}
}

// Beyond its patience it is lost: then every request fails at once. A new join may look for it again.
func TestCoordinatorIsLost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		refuse, mute bool
	}{{"refused", true, false}, {"frozen", false, true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			group := serverstest.Group(t)
			var v valve
			g := testGroupClient(t, group, b, v.install)
			g.patience = 2 * time.Second
			if _, err := g.Coordinator(group); err != nil {
				t.Fatal(err)
			}
			v.set(test.refuse, test.mute)
			own, _ := g.Coordinator(group)
			_ = beat(own, group)
			began := time.Now()
			for range 5 {
				dead, err := g.Coordinator(group)
				if err != nil {
					t.Fatal(err)
				}
				if err := beat(dead, group); !errors.Is(err, sarama.ErrNotConnected) {
					t.Errorf("a request to it: %v", err)
				}
			}
			if took := time.Since(began); took < g.patience/2 || took > 4*g.patience { // it begins before began
				t.Errorf("five calls took %v, want the patience once", took)
			}
			if !g.lost() {
				t.Error("it is not lost")
			}
			v.set(false, false)
			soon(t, "it is found again", func() bool { // a look-up may still wait for a frozen broker
				g.arm()
				own, _ := g.Coordinator(group)
				return connected(own)
			})
		})
	}
}

// A Consumer that stops waits for a coordinator a little, and no longer.
func TestCoordinatorIsNotWaitedForAtTheEnd(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	group := serverstest.Group(t)
	var v valve
	g := testGroupClient(t, group, b, v.install)
	stop := make(chan struct{})
	g.stop = stop
	v.set(true, false)
	began := time.Now()
	close(stop)
	if _, err := g.Coordinator(group); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < stopGrace-time.Second || took > patience-time.Second {
		t.Errorf("it took %v", took)
	}
}

// Run returns in time whatever the brokers do not answer.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		do   func(b *serverstest.Broker, v *valve)
		held int // partitions, when Run is to return
	}{
		"brokers gone":                 {func(_ *serverstest.Broker, v *valve) { v.set(true, false) }, 2},
		"brokers frozen":               {func(_ *serverstest.Broker, v *valve) { v.set(false, true) }, 2},
		"brokers frozen, session over": {func(_ *serverstest.Broker, v *valve) { v.set(false, true) }, 0}, // it asks one after the other for the topics
		"parked join": {func(b *serverstest.Broker, _ *valve) {
			b.Fake.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				return nil, nil, true //nolint:nilnil // kfake: never answered
			})
			b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Err: kerr.RebalanceInProgress, Count: 1})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 2), serverstest.Group(t)
			var v valve
			c, err := New(Config{
				Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Second,
				Sarama: func(c *sarama.Config) { often(c); v.install(c) },
				Topics: map[string]Topic{topic: {Handler: HandlerFunc(func(context.Context, *Message) error { return nil })}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			soon(t, "it runs", func() bool { return len(c.Status().Partitions) == 2 })
			fault.do(b, &v)
			soon(t, "it notices", func() bool { return len(c.Status().Partitions) <= fault.held })
			began := time.Now()
			cancel()
			if err := received(t, done); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("Run returned after %v", took)
			} else {
				t.Logf("Run returned after %v", took)
			}
		})
	}
}
