// Package story tells what happens to the services of examples/billing on their hardest day: it starts them as
// processes of their own, has customers order, kills everybody again and again, loses answers, and counts at the end.
package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/servers"
)

const (
	partitions = 4

	// storyTimeout, on top of the work itself, is for a machine on which something hangs: on 2 free cores a story takes
	// about 20 s.
	storyTimeout = 4 * time.Minute
	// armedTimeout is long enough for a process that has work.
	armedTimeout = 3 * time.Second
	// drainTimeout is longer than the longest drain of a role.
	drainTimeout = 20 * time.Second
	// defaultEvery is Options.Every.
	defaultEvery = 4 * time.Second
	// askTimeout is for those who wait after Ctrl-C.
	askTimeout = 2 * time.Second
)

// Options are the parts of a story that can be chosen.
type Options struct {
	Orders int           // that are placed
	Kills  int           // how often a process is killed
	Seed   uint64        // of the orders and the kills
	Work   time.Duration // how long the provider takes for a payment
	Drop   float64       // how many of the HTTP answers are lost, from 0 to 1
	Share  int           // messages that may share a transaction
	Mode   Mode          // who has written the services
	Armed  time.Duration // how long a process waits for a COMMIT to be killed after; 0 is 3 s
	Every  time.Duration // about how long it is between two blows in a story that is shown; 0 is 4 s
	Serve  string        // if not empty, the story goes on until it is interrupted, and is shown at this host:port

	Name      string         // of the story: its topics and groups begin with it
	Brokers   string         // host:port, separated by commas
	Fake      *kfake.Cluster // the Kafka, if it is an in-process one
	Databases Databases

	// As returns the URL by which a process of the cast works in its service's database, or Reader looks into it, where
	// that is not the one of Databases: the tables are there then, and the process makes none.
	As func(who, service string) string

	Out io.Writer // lines for a human
	Log io.Writer // of the processes
}

// Databases are URLs, each of an empty schema of its own.
type Databases struct {
	Orders, Billing, Provider, Receipts, Story string

	names []string // of the schemas
}

func (d Databases) of(service string) string {
	return map[string]string{ordersService: d.Orders, billingService: d.Billing, bankService: d.Provider,
		receiptService: d.Receipts}[service]
}

// Reader looks at what the services have written, and counts.
const Reader = "reader"

// url is where who works in the service's database.
func (o *Options) url(who, service string) string {
	if o.As != nil {
		return o.As(who, service)
	}
	return o.Databases.of(service)
}

// Story is the processes, and what happens to them.
type Story struct {
	Options
	cast      []role
	plan      []step
	pool      *pgxpool.Pool     // of the story's own schema
	sockets   map[string]socket // of the servers
	ops       map[string]socket // of all, for operators
	processes []*process        // as the cast; nil where none runs
	dead      atomic.Int64      // ended by SIGKILL
	delivered atomic.Int64
	customers customers
	began     time.Time
}

// New returns a story that has not begun.
func New(o Options) *Story {
	s := &Story{Options: o, cast: slices.Clone(cast)}
	if o.Mode != Einmal {
		s.cast = slices.DeleteFunc(s.cast, func(r role) bool { return r.relay })
	}
	s.processes = make([]*process, len(s.cast))
	s.plan = makePlan(o.Orders, o.Kills, s.cast, s.random())
	s.customers = customers{story: s, delivered: &s.delivered}
	return s
}

// random is the same for the same seed: a repeatable plan.
func (s *Story) random() *rand.Rand { return rand.New(rand.NewPCG(s.Seed, 1)) } //nolint:gosec // not a secret

// Tell runs the story from the first order to the last, and returns what it came to. No process is left when it
// returns.
//
// When ctx ends, the story is given up; one that is shown takes no more orders then, and comes to its end.
func (s *Story) Tell(ctx context.Context) (f Figures, err error) {
	until := ctx
	ctx, cancel := s.limited(ctx)
	defer cancel(nil)
	if s.pool, err = pgxpool.New(ctx, s.Databases.Story); err != nil {
		return f, err
	}
	defer s.pool.Close()
	defer s.cleanUp()
	if err := s.prepare(ctx); err != nil {
		return f, err
	}
	if err := s.live(ctx, until); err != nil {
		return f, err
	}
	f, err = s.count(ctx)
	f.Kills, f.Sent, f.Replayed = int(s.dead.Load()), int(s.customers.sent.Load()), int(s.customers.replayed.Load())
	return f, err
}

// limited returns the context of the story, which ends when it takes too long.
func (s *Story) limited(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	limit := storyTimeout + time.Duration(s.Orders)*s.Work
	late := fmt.Errorf("the story is not over after %v", limit)
	until := ctx
	if s.Serve != "" {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if s.Serve != "" {
		context.AfterFunc(until, func() { time.AfterFunc(limit, func() { cancel(late) }) })
	} else {
		timer := time.AfterFunc(limit, func() { cancel(late) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return ctx, cancel
}

// prepare makes what the processes find when they start.
func (s *Story) prepare(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, deliveryTable); err != nil {
		return err
	}
	if err := s.openSockets(); err != nil {
		return err
	}
	return s.createTopics(ctx)
}

// live lives through the plan while customers order, and then waits for the last receipt.
func (s *Story) live(ctx, until context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	s.beginning(ctx, &background)
	stop, err := s.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for i := range s.cast {
		if err := s.start(i); err != nil {
			return err
		}
		s.say("%s starts (pid %d)", s.cast[i].name, s.processes[i].pid())
	}
	ordered := make(chan error, 1)
	background.Go(func() { ordered <- s.customers.orderAll(ctx, until) })
	if err := s.trouble(ctx, until); err != nil {
		return err
	}
	if err := s.awaitCustomers(ctx, ordered); err != nil {
		return err
	}
	if err := s.awaitEnd(ctx); err != nil {
		return err
	}
	s.say("every message is committed")
	return s.drainAll(ctx)
}

// beginning starts what runs beside the story.
func (s *Story) beginning(ctx context.Context, background *sync.WaitGroup) {
	s.began = time.Now()
	background.Go(func() { s.watchDeliveries(ctx) })
	if s.Fake == nil {
		return
	}
	for _, group := range s.groups() {
		background.Go(func() { servers.ExpireGhosts(ctx, s.Fake, group) })
	}
}

// watchDeliveries counts the orders that have reached a consumer. A plain one may lose them, but not these.
func (s *Story) watchDeliveries(ctx context.Context) {
	_ = poll(ctx, func() (bool, error) {
		var n int64
		err := s.pool.QueryRow(ctx, `SELECT count(DISTINCT (partition, "offset")) FROM delivery WHERE topic = $1`,
			s.topic(ordersTopic)).Scan(&n)
		if err == nil {
			s.delivered.Store(n)
		}
		if s.Serve != "" {
			return false, pause(ctx, time.Second) // nobody waits for it
		}
		return false, nil
	})
}

func (s *Story) awaitCustomers(ctx context.Context, ordered <-chan error) error {
	var answer error
	err := poll(ctx, func() (bool, error) {
		select {
		case answer = <-ordered:
			return true, nil
		default:
			return false, s.surprise()
		}
	})
	if err == nil && answer == nil {
		s.say("every request was answered")
	}
	return errors.Join(err, answer)
}

// awaitEnd waits, from one end of the chain to the other one, until there is nothing more to do.
func (s *Story) awaitEnd(ctx context.Context) error {
	for _, hop := range []struct{ service, topic, group string }{
		{ordersService, ordersTopic, billingGroup},
		{billingService, paymentsTopic, receiptsGroup},
	} {
		if err := s.awaitOutbox(ctx, hop.service); err != nil {
			return err
		}
		if err := s.awaitCommit(ctx, s.topic(hop.group), s.topic(hop.topic)); err != nil {
			return err
		}
	}
	return nil
}

// awaitOutbox waits until all that stands in the service's outbox is sent.
func (s *Story) awaitOutbox(ctx context.Context, service string) error {
	table := "outbox_event"
	if s.Mode == Careful {
		table = "careful_outbox"
	}
	return with(ctx, s.url(Reader, service), func(pool *pgxpool.Pool) error {
		return poll(ctx, func() (bool, error) {
			var n int
			err := pool.QueryRow(ctx, `SELECT count(*) FROM `+table).Scan(&n)
			return n == 0, errors.Join(err, s.surprise())
		})
	})
}

// cleanUp leaves no process behind, and no topic. Those that still run, because the story failed or was interrupted,
// are asked before they are killed, so that they leave their groups.
func (s *Story) cleanUp() {
	for _, p := range s.processes {
		if p != nil {
			p.signal(syscall.SIGTERM)
		}
	}
	for _, p := range s.processes {
		if p != nil && !p.endsWithin(askTimeout) {
			p.kill()
		}
	}
	s.closeSockets()
	if err := s.deleteTopics(); err != nil {
		fmt.Fprintf(s.Log, "billing: cannot delete the topics %s.*: %v\n", s.Name, err)
	}
}

// say prints a line with the time.
func (s *Story) say(format string, args ...any) {
	fmt.Fprintf(s.Out, "%6.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
