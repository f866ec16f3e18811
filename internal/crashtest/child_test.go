package crashtest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/middleware"
)

// envOrders holds what a child is told, as JSON. Its presence makes a process a child.
const envOrders = "EINMAL_CRASH_ORDERS"

// orders are what a member of the group is told.
type orders struct {
	Name      string // in the tables, and the application_name of its sessions
	Database  string
	Brokers   []string
	Group     string
	Topic     string
	Consumer  string // consumer.Topic.Consumer
	Step      step   // at which it is struck
	Event     string // the event which is at the step then
	Offset    int64  // of the event
	Gate      bool   // the handler of Event waits until it is told to go
	Swallow   bool   // at the gate it has written, and returns nil when its context is done
	Rebalance time.Duration
	Protocol  consumer.Rebalance
	Commits   time.Duration // between offset commits
	Idle      time.Duration // pgxstore.Config.IdleTimeout
	Share     int           // pgxstore.Config.Group
	Work      time.Duration // of the handler, on average
	Order     consumer.Order
	InTurn    bool          // the handler is takeTurn
	Attempts  int           // of middleware.Retry, 5 by default
	Drain     time.Duration // consumer.Config.DrainTimeout
	Dead      bool          // the handler of Event fails for good, and its dead letter is struck
	CrashLoop bool          // the handler of Event ends the process each time, against which middleware.CrashLoop stands
	Redrive   bool          // the process redrives dead letters, and consumes nothing
	Republish bool          // it has them published again
	Retries   string        // the name of a retry topic, to which the message of Event is handed on, which is struck
}

// What a child says on standard output, and hears on standard input.
const (
	sayUp      = childtest.Up
	sayGate    = "at the gate"
	sayEnding  = "ending" // SIGTERM has come
	sayAt      = "at: "   // and the step
	hearGo     = "go"
	hearDie    = "die"
	hearFreeze = "freeze" // the connections to Kafka
	hearHeal   = "heal"
)

// child is a process that consumes.
type child struct {
	orders
	striker
	database *network
	kafka    *network
	log      io.Writer
	edit     func(*consumer.Topic)     // if not nil
	more     map[string]consumer.Topic // beside Topic
	gate     chan struct{}
	die      chan struct{}
}

func newChild(o orders, log io.Writer) *child {
	c := &child{orders: o, log: log, gate: make(chan struct{}), die: make(chan struct{})}
	c.striker.step, c.striker.event, c.striker.offset = o.Step, o.Event, o.Offset
	c.database, c.kafka = newNetwork(c.databaseConn), newNetwork(c.kafkaConn)
	return c
}

// childMain runs until SIGTERM, until it is struck, or until its standard input ends: it does not outlive its parent.
func childMain(ctx context.Context, o orders) error {
	c := newChild(o, os.Stderr)
	c.blow = c.kill
	context.AfterFunc(ctx, func() { childtest.Say(sayEnding) })
	go c.listen()
	switch {
	case o.Redrive:
		return c.redrive(ctx)
	case o.Republish:
		return c.republish(ctx)
	}
	return c.consume(ctx)
}

// process is a child as its parent sees it.
type process = childtest.Process

func start(t testing.TB, o orders) *process {
	t.Helper()
	return childtest.Start(t, envOrders, o.Name, o)
}

const patience = childtest.Patience

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	childtest.Eventually(t, what, ok)
}

// listen does what the parent says.
func (c *child) listen() {
	openGate := sync.OnceFunc(func() { close(c.gate) })
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case hearGo:
			openGate()
		case hearDie:
			close(c.die)
		case hearFreeze:
			c.kafka.frozen.Store(true)
		case hearHeal:
			c.kafka.heal()
		}
	}
	os.Exit(1)
}

// kill is the blow. Where it can wait, the parent looks around first.
func (c *child) kill(at step) {
	childtest.Say(sayAt + string(at))
	switch at {
	case commitSent, commitAnswered, offsetCommitSent:
	case exiting:
		os.Exit(exitStatus)
	default:
		<-c.die
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

const exitStatus = 3

func (c *child) consume(ctx context.Context) error {
	pool, err := c.openPool(ctx)
	if err != nil {
		return err
	}
	err = consumer.Run(ctx, c.config(pool))
	if !errors.Is(err, consumer.ErrHandlersStuck) {
		pool.Close()
	}
	return err
}

func (c *child) openPool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(c.Database)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = c.Name
	cfg.ConnConfig.DialFunc = c.database.DialContext
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (c *child) config(pool *pgxpool.Pool) consumer.Config {
	topics := map[string]consumer.Topic{c.Topic: c.topic(pool)}
	if c.Retries != "" {
		topics = c.retrying(pool)
	}
	maps.Copy(topics, c.more)
	return consumer.Config{
		Brokers:      c.Brokers,
		Group:        c.Group,
		Middleware:   []consumer.Middleware{c.outermost},
		Topics:       topics,
		DrainTimeout: c.Drain,
		StartTimeout: 2 * time.Minute, // a machine that has much to do
		Rebalance:    c.Protocol,
		Logger:       slog.New(slog.NewTextHandler(c.log, nil)),
		Sarama: func(cfg *sarama.Config) {
			hurry(cfg, c.Rebalance, c.Commits)
			cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, c.kafka
		},
	}
}

func (c *child) topic(pool *pgxpool.Pool) consumer.Topic {
	s := store{pgxstore.New(pool, &pgxstore.Config{IdleTimeout: c.Idle, Group: c.Share}), &c.striker}
	t := consumer.Topic{
		Consumer:   c.Consumer,
		Middleware: []consumer.Middleware{middleware.Retry(cmp.Or(c.Attempts, 5), nil), middleware.Recover()},
		Handler:    middleware.Dedup(s, c.handle, nil),
		Order:      c.Order,
		Workers:    workers(c.Order),
	}
	if c.Dead {
		c.mortal(pool, &t)
	}
	if c.CrashLoop {
		c.looping(pool, &t)
	}
	if c.edit != nil {
		c.edit(&t)
	}
	return t
}

// workers is for one process; in partition order there is one for each partition.
func workers(order consumer.Order) int {
	if order == consumer.PartitionOrder {
		return 0
	}
	return 8
}

// handle is the user's function.
func (c *child) handle(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	if c.InTurn {
		return c.takeTurn(ctx, tx, msg)
	}
	struck := msg.EventID == c.Event
	if struck && c.Gate && !c.Swallow {
		if err := c.pass(ctx); err != nil {
			return err
		}
	}
	if c.Work > 0 {
		if _, err := tx.Exec(ctx, "select pg_sleep($1)", 2*rand.Float64()*c.Work.Seconds()); err != nil {
			return err
		}
	}
	if err := takeEffect(ctx, tx, msg, c.Name); err != nil {
		return err
	}
	if struck {
		c.at(inHandler)
		c.at(exiting)
	}
	if struck && c.Swallow {
		_ = c.pass(ctx)
	}
	return nil
}

// pass passes the gate.
func (c *child) pass(ctx context.Context) error {
	childtest.Say(sayGate)
	select {
	case <-c.gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeEffect writes a row. Nothing but einmal keeps it from being written twice.
func takeEffect(ctx context.Context, tx pgx.Tx, msg *consumer.Message, name string) error {
	_, err := tx.Exec(ctx, `insert into effect (event, partition, "offset", by) values ($1, $2, $3, $4)`,
		eventOf(msg), msg.Partition, msg.Offset, name)
	return err
}

// eventOf is the event's id, also where Topic.EventID takes it from elsewhere.
func eventOf(msg *consumer.Message) string {
	id, _ := msg.Header(consumer.DefaultEventIDHeader)
	return string(id)
}

const (
	usualRebalance = 500 * time.Millisecond
	usualCommits   = 10 * time.Millisecond
)

// hurry shortens the time-outs, in the order in which they must stand, so that what a member held that was killed comes
// back soon; and the commits, so that a mark which is made too early is soon seen from outside.
func hurry(c *sarama.Config, rebalance, commits time.Duration) {
	rebalance, commits = cmp.Or(rebalance, usualRebalance), cmp.Or(commits, usualCommits)
	c.Consumer.Group.Heartbeat.Interval = 50 * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = rebalance
	c.Net.ReadTimeout = rebalance + 500*time.Millisecond
	c.Consumer.Group.Session.Timeout = rebalance + time.Second
	c.Consumer.Group.Rebalance.Retry.Backoff = 50 * time.Millisecond
	c.Consumer.Offsets.AutoCommit.Interval = commits
	c.Consumer.MaxWaitTime = 50 * time.Millisecond
}
