package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// gate holds the first produce request back until it is opened: a relay that freezes just before it sends.
type gate struct {
	once    sync.Once
	reached chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

// Dial implements sarama's proxy.Dialer.
func (g *gate) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &gatedConn{conn, g}, err
}

type gatedConn struct {
	net.Conn
	g *gate
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if len(b) > 6 && b[4] == 0 && b[5] == 0 {
		c.g.once.Do(func() {
			close(c.g.reached)
			<-c.g.open
		})
	}
	return c.Conn.Write(b)
}

// A relay freezes before it sends, loses its rows to another one, and sends them when all is long over: the copies
// stand behind everything. A consumer that knows events by their ids applies each once, in order.
func TestZombiesLastSend(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			b.insert("1", "2", "3")
			g, zombie := newGate(), b.pool("zombie")
			cfg := b.config(mode)
			cfg.Database = pgxoutbox.NewDatabase(zombie)
			cfg.PublishTimeout, cfg.LeaseTTL = time.Minute, 3*time.Minute
			cfg.Sarama = func(c *sarama.Config) { c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, g }
			r, err := relay.New(cfg)
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			<-g.reached
			cancel()
			// what the server does to a frozen relay: its transaction ends, its lease expires
			b.MustExec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'zombie' and state = 'idle in transaction'")
			b.MustExec("update outbox_lease set leased_until = clock_timestamp() where leased_until > clock_timestamp()")
			b.MustExec("update outbox_event set claimed_until = clock_timestamp() where status = 'PUBLISHING'")
			start(t, b.config(mode))
			eventually(t, "the successor has sent them", func() bool { return b.rows("true") == 0 })
			b.insert("4", "5")
			eventually(t, "and more", func() bool { return b.rows("true") == 0 })
			close(g.open)
			must(t, <-ended)
			if got := b.topicHas(); got != "1 2 3 4 5 1 2 3" {
				t.Fatalf("the topic has %s", got)
			}
			if got := b.consume(8); fmt.Sprint(got) != "[1 2 3 4 5]" {
				t.Errorf("applied in the order %v", got)
			}
		})
	}
}

// pool is a pool of its own whose sessions have that name.
func (b *bench) pool(name string) *pgxpool.Pool {
	b.T.Helper()
	cfg, err := pgxpool.ParseConfig(b.URL)
	must(b.T, err)
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	must(b.T, err)
	b.T.Cleanup(pool.Close)
	return pool
}

// consume has einmal's consumer handle so many records, and returns the ids in the order in which they took effect.
func (b *bench) consume(records int) (applied []string) {
	b.T.Helper()
	var mu sync.Mutex
	handled := 0
	ctx, cancel := context.WithCancel(b.T.Context())
	count := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			err := next.Handle(ctx, msg)
			mu.Lock()
			defer mu.Unlock()
			if handled++; handled == records {
				cancel()
			}
			return err
		})
	}
	must(b.T, consumer.Run(ctx, consumer.Config{
		Brokers: b.b.Addrs, Group: serverstest.Group(b.T), Logger: slog.New(slog.DiscardHandler),
		Middleware: []consumer.Middleware{count},
		Topics: map[string]consumer.Topic{b.topic: {Handler: middleware.Dedup(memstore.New(),
			func(_ context.Context, _ *memstore.Tx, msg *consumer.Message) error {
				mu.Lock()
				defer mu.Unlock()
				applied = append(applied, msg.EventID)
				return nil
			}, nil)}},
	}))
	return applied
}
