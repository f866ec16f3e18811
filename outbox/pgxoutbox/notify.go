package pgxoutbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
)

// DefaultChannel is the name of the notifications' channel.
const DefaultChannel = "einmal_outbox"

// Listener hears notifications on a connection of its own.
type Listener struct {
	config  *pgx.ConnConfig
	channel string
}

var _ outbox.Listener = (*Listener)(nil)

// NewListener returns a Listener that connects as the pool does: it takes no connection from it. The connection must
// lead to PostgreSQL itself: a pooler in transaction mode forwards no notifications. An empty channel is
// DefaultChannel.
func NewListener(pool *pgxpool.Pool, channel string) *Listener {
	l := &Listener{channel: channel}
	if channel == "" {
		l.channel = DefaultChannel
	}
	if pool != nil {
		l.config = pool.Config().ConnConfig
	}
	return l
}

// keepAlive is how often a connection on which nothing comes is asked whether it is still there.
const keepAlive = 30 * time.Second

// Listen implements outbox.Listener.
func (l *Listener) Listen(ctx context.Context, wake func()) error {
	if l.config == nil {
		return errors.New("pgxoutbox: the pool is nil: make one with pgxpool.New")
	}
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		return err
	}
	wake() // what was committed before it could hear
	for {
		if err := l.next(ctx, conn); err != nil {
			return err
		}
		wake()
	}
}

// next waits for a notification.
func (l *Listener) next(ctx context.Context, conn *pgx.Conn) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, keepAlive)
		_, err := conn.WaitForNotification(waiting)
		timedOut := waiting.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !timedOut {
			return err
		}
		if err := conn.Ping(ctx); err != nil {
			return err
		}
	}
}

// Notifier sends notifications, outside of the transactions that write: a NOTIFY inside would have their commits
// queue for one lock of the whole cluster. It is safe for concurrent use.
type Notifier struct {
	pool    *pgxpool.Pool
	channel string
	every   time.Duration

	mu     sync.Mutex
	timer  *time.Timer // not nil while a notification is to be sent
	last   time.Time
	closed bool
	busy   sync.WaitGroup
}

// NewNotifier returns a Notifier. An empty channel is DefaultChannel; every is the least time between two
// notifications, 10 ms if it is 0: a relay that is awake needs no more.
func NewNotifier(pool *pgxpool.Pool, channel string, every time.Duration) *Notifier {
	if channel == "" {
		channel = DefaultChannel
	}
	if every <= 0 {
		every = 10 * time.Millisecond
	}
	return &Notifier{pool: pool, channel: channel, every: every}
}

// Notify has a notification sent soon. Call it after a commit that wrote events. It never blocks, and what it cannot
// send is not missed: relays poll.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.timer != nil {
		return
	}
	n.busy.Add(1)
	n.timer = time.AfterFunc(n.every-time.Since(n.last), n.send)
}

// notifyTimeout is how long a notification may take.
const notifyTimeout = 5 * time.Second

func (n *Notifier) send() {
	defer n.busy.Done()
	n.mu.Lock()
	n.timer, n.last = nil, time.Now() // what is committed from now on needs another one
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
	defer cancel()
	_, _ = n.pool.Exec(ctx, "select pg_notify($1, '')", n.channel)
}

// Close waits for a notification that is being sent. The pool may be closed then.
func (n *Notifier) Close() {
	n.mu.Lock()
	n.closed = true
	if n.timer != nil && n.timer.Stop() {
		n.timer = nil
		n.busy.Done()
	}
	n.mu.Unlock()
	n.busy.Wait()
}
