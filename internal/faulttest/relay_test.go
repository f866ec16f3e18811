package faulttest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxtest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

// relayed is an outbox, its relay, and a topic on the cluster.
type relayed struct {
	t     *testing.T
	name  string
	mode  outbox.Mode
	addrs []string
	topic string
	pool  *pgxpool.Pool
	relay *relay.Relay
	pause time.Duration // between events that are written
	log   childtest.Output

	order map[string][]string // what was committed, by key
}

func newRelayed(t *testing.T, mode outbox.Mode, brokers []string, topic string, edit ...func(*relay.Config)) *relayed {
	t.Helper()
	r := &relayed{t: t, name: string(mode), mode: mode, addrs: brokers, topic: topic, pause: 5 * time.Millisecond,
		pool: serverstest.Pool(t), order: map[string][]string{}}
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := r.pool.Exec(ctx, sql)
		return err
	}, nil, schema.Outbox))
	cfg := relay.Config{
		Database: pgxoutbox.NewDatabase(r.pool), Brokers: brokers, Mode: mode, Keep: time.Hour,
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	for _, f := range edit {
		f(&cfg)
	}
	var err error
	r.relay, err = relay.New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: Run() = %v", mode, err)
		}
		if t.Failed() || *showLog {
			t.Logf("%s logged\n%s", mode, r.log.String())
		}
	})
	return r
}

// feed writes events until done is closed, one every some milliseconds.
func (r *relayed) feed(done <-chan struct{}) {
	w := pgxoutbox.NewWriter(nil)
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-time.After(r.pause):
		}
		key, id := fmt.Sprint("key ", n%20), outbox.NewID()
		err := pgx.BeginFunc(context.Background(), r.pool, func(tx pgx.Tx) error {
			return w.Write(context.Background(), tx, outbox.Event{ID: id, Topic: r.topic, Key: []byte(key)})
		})
		if err != nil {
			r.t.Errorf("%s: write: %v", r.mode, err)
			return
		}
		r.order[key] = append(r.order[key], id)
	}
}

func (r *relayed) value(sql string, args ...any) (n int) {
	r.t.Helper()
	must(r.t, r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&n))
	return n
}

// awaitSent waits until all is sent that is in the table now.
func (r *relayed) awaitSent() {
	r.t.Helper()
	last := r.value("select coalesce(max(id), 0) from outbox_event")
	eventually(r.t, 2*time.Minute, fmt.Sprintf("%s: all that was written is sent", r.mode), func() bool {
		return r.value("select count(*) from outbox_event where id <= $1 and status <> 'PUBLISHED'", last) == 0
	})
}

// judge checks that everything is in the topic, the first copies of each key in order, and that no row was blamed.
func (r *relayed) judge() {
	r.t.Helper()
	if n := r.value("select count(*) from outbox_event where attempts > 0 or status <> 'PUBLISHED'"); n > 0 ||
		r.relay.Status().BlockedHere > 0 {
		r.t.Errorf("%s: %d rows were blamed", r.mode, n)
	}
	list, err := outboxtest.Records(r.addrs, r.topic)
	must(r.t, err)
	got, repeated := outboxtest.FirstCopies(list)
	for key, want := range r.order {
		if !slices.Equal(got[key], want) {
			r.t.Errorf("%s: %s has %d events in the topic, of %d, or another order", r.mode, key, len(got[key]), len(want))
		}
	}
	r.t.Logf("%s: %d events, %d sent again", r.name, r.value("select count(*) from outbox_event"), repeated)
}

// The leader of a relay's partition is killed, and then all brokers are, while events are written: no row is blamed for
// it, the first copies of each key stay in order, and everything arrives.
func TestRelayWhileBrokersDie(t *testing.T) { //nolint:paralleltest // it breaks brokers that all share
	c := need(t)
	b := &serverstest.Broker{Addrs: c.Addrs, Kind: servers.Apache}
	topics := map[outbox.Mode]string{outbox.SinglePhase: b.Topic(t, 3), outbox.TwoPhase: b.Topic(t, 3)}
	began := time.Now()
	lap := func(what string) { t.Logf("%6.1f s %s", time.Since(began).Seconds(), what) }
	t.Cleanup(func() { must(t, c.Restore(context.Background())) })
	done := make(chan struct{})
	var writers sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(done)
		writers.Wait()
	})
	var all []*relayed
	for mode, topic := range topics {
		r := newRelayed(t, mode, c.Addrs, topic)
		all = append(all, r)
		t.Cleanup(stop)
		writers.Go(func() { r.feed(done) })
	}
	each := func(f func(*relayed)) {
		for _, r := range all {
			f(r)
		}
	}
	each(func(r *relayed) {
		eventually(t, time.Minute, "something is sent", func() bool { return r.relay.Status().Published > 0 })
	})

	leader, err := c.Leader(all[0].topic, 0)
	must(t, err)
	must(t, c.Kill(leader))
	each((*relayed).awaitSent)
	must(t, c.Start(t.Context(), leader))
	lap("all goes to the other brokers, and the killed one is back")

	must(t, c.KillAll())
	each(func(r *relayed) {
		eventually(t, time.Minute, "it pauses", func() bool { return r.relay.Status().Paused })
	})
	lap("all brokers are down, and the relays know")
	must(t, c.Start(t.Context(), 1, 2, 3))
	each((*relayed).awaitSent)
	lap("all goes on")

	stop()
	each((*relayed).awaitSent)
	each((*relayed).judge)
}
