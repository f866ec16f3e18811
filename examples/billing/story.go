package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/servers"
)

const (
	workers    = 2
	partitions = 4

	// storyTimeout, on top of the work itself, is for a machine on which something hangs: on 2 free cores a story takes about 20 s.
	storyTimeout = 3 * time.Minute
	// armedTimeout is long enough for a worker that has work.
	armedTimeout = 3 * time.Second
	// drainTimeout is longer than consumer.DefaultDrainTimeout.
	drainTimeout = 20 * time.Second
	// askTimeout is for those who wait after Ctrl-C.
	askTimeout = 2 * time.Second
)

// storyOptions are the parts of a story that can be chosen.
type storyOptions struct {
	orders int
	kills  int
	seed   uint64
	work   time.Duration
	naive  bool
	armed  time.Duration  // how long a worker waits for a COMMIT to be killed after; 0 is armedTimeout
	fake   *kfake.Cluster // the Kafka, if it is an in-process one
	out    io.Writer      // lines for a human
	log    io.Writer      // of the workers
}

// story is the workers of one group, and what happens to them. Its target's database is an empty schema of its own.
type story struct {
	storyOptions
	target
	events  []event
	plan    []step
	pool    *pgxpool.Pool
	workers []*process // nil where none has been started
	dead    int        // workers ended by SIGKILL
	began   time.Time
}

func newStory(t target, o storyOptions) *story {
	s := &story{storyOptions: o, target: t, events: makeEvents(o.orders, o.seed), workers: make([]*process, workers)}
	rng := rand.New(rand.NewPCG(o.seed, 1)) //nolint:gosec // a repeatable plan, not a secret
	s.plan = makePlan(len(s.events), o.kills, workers, rng)
	return s
}

// tell runs the story from the first order to the last, and returns what it came to. No worker is left when it returns.
func (s *story) tell(ctx context.Context) (f figures, err error) {
	limit := storyTimeout + time.Duration(len(s.events))*s.work
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the story is not over after %v", limit))
	defer cancel()
	if s.pool, err = pgxpool.New(ctx, s.database); err != nil {
		return f, err
	}
	defer s.pool.Close()
	defer s.cleanUp()
	if err := s.prepare(ctx); err != nil {
		return f, err
	}
	if err := s.run(ctx); err != nil {
		return f, err
	}
	f, err = audit(ctx, s.pool, s.events)
	f.Kills = s.dead
	return f, err
}

// prepare makes the tables and the topic, and sends the orders.
func (s *story) prepare(ctx context.Context) error {
	if err := createTables(ctx, s.pool); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, deliveryTable); err != nil {
		return err
	}
	if err := createTopic(ctx, s.target, partitions); err != nil {
		return err
	}
	if err := produce(ctx, s.target, s.events); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "produced  %s messages about %s orders on %d partitions: one order in ten is sent twice in a row, one in ten again much later\n",
		thousands(int64(len(s.events))), thousands(int64(s.orders)), partitions)
	return nil
}

// run lives through the plan, and then waits for the end of the topic.
func (s *story) run(ctx context.Context) error {
	if s.fake != nil {
		ctx, cancel := context.WithCancel(ctx)
		var background sync.WaitGroup
		background.Go(func() { servers.ExpireGhosts(ctx, s.fake, s.group) })
		defer background.Wait()
		defer cancel()
	}
	s.began = time.Now()
	for i := range s.workers {
		if err := s.start(i); err != nil {
			return err
		}
	}
	for _, step := range s.plan {
		if err := s.await(ctx, step); err != nil {
			return err
		}
		if err := s.do(ctx, step); err != nil {
			return err
		}
	}
	if err := s.awaitCommit(ctx); err != nil {
		return err
	}
	s.say("every message is committed")
	return s.drainAll(ctx)
}

// start starts the worker of that index.
func (s *story) start(i int) error {
	name := fmt.Sprintf("worker %d", i+1)
	args := []string{"worker", "-name", name, "-topic", s.topic, "-group", s.group,
		"-work", s.work.String(), fmt.Sprintf("-naive=%t", s.naive)}
	env := []string{servers.EnvKafkaBrokers + "=" + s.brokers, servers.EnvDatabaseURL + "=" + s.database}
	p, err := start(name, args, env, s.log)
	if err != nil {
		return err
	}
	s.workers[i] = p
	s.say("%s starts (pid %d)", p.name, p.pid())
	return nil
}

// await waits until it is time for the step.
func (s *story) await(ctx context.Context, step step) error {
	err := poll(ctx, func() (bool, error) {
		if err := s.surprise(); err != nil {
			return false, err
		}
		n, err := s.delivered(ctx)
		return n >= step.messages, err
	})
	if err != nil {
		return err
	}
	return pause(ctx, step.after)
}

// delivered returns how many messages have reached a worker. A plain consumer may lose the orders in them, but not these.
func (s *story) delivered(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(DISTINCT (partition, "offset")) FROM delivery`).Scan(&n)
	return n, err
}

// charged returns how many orders are charged.
func (s *story) charged(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(DISTINCT order_id) FROM charge`).Scan(&n)
	return n, err
}

// surprise is an error when a worker has ended by itself.
func (s *story) surprise() error {
	for _, p := range s.workers {
		if p != nil && p.ended() {
			return errors.New(p.end())
		}
	}
	return nil
}

// do does what the step says, and puts a new worker in the place of the old one.
func (s *story) do(ctx context.Context, step step) (err error) {
	i := step.worker
	switch step.deed {
	case kill:
		s.workers[i].kill()
		err = s.killed(ctx, s.workers[i])
	case killAfterCommit:
		if i, err = s.busy(ctx, i); err != nil {
			return err
		}
		s.workers[i].tell(dieAfterCommit)
		if !s.workers[i].endsWithin(cmp.Or(s.armed, armedTimeout)) {
			s.workers[i].kill() // its partitions have nothing more to commit
		}
		err = s.killed(ctx, s.workers[i])
	case terminate:
		err = s.drain(ctx, i)
	}
	if err != nil {
		return err
	}
	return s.start(i)
}

// busy returns the worker with the latest delivery, or else i: one without work would wait long for a COMMIT to die after.
func (s *story) busy(ctx context.Context, i int) (int, error) {
	var latest string
	err := s.pool.QueryRow(ctx, `SELECT coalesce((SELECT worker FROM delivery ORDER BY id DESC LIMIT 1), '')`).Scan(&latest)
	if at := slices.IndexFunc(s.workers, func(p *process) bool { return p.name == latest }); at >= 0 {
		i = at
	}
	return i, err
}

// killed counts the end of a worker by SIGKILL, and says where it was.
func (s *story) killed(ctx context.Context, p *process) error {
	if !p.killed() {
		return errors.New(p.end())
	}
	s.dead++
	n, err := s.charged(ctx)
	if err != nil {
		return err
	}
	how := "SIGKILL"
	if place := p.place(); place != "" {
		how = "SIGKILL between COMMIT and mark, at " + place
	}
	s.say("%s: %s, when %s of %s orders were charged", p.name, how, thousands(int64(n)), thousands(int64(s.orders)))
	return nil
}

// drain sends SIGTERM, after which a worker finishes what it has begun, commits, and exits with 0.
func (s *story) drain(ctx context.Context, i int) error {
	p := s.workers[i]
	if err := poll(ctx, func() (bool, error) { return p.isUp(), s.surprise() }); err != nil {
		return err
	}
	began := time.Now()
	p.signal(syscall.SIGTERM)
	if !p.endsWithin(drainTimeout) {
		return fmt.Errorf("%s has not drained within %v after SIGTERM", p.name, drainTimeout)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("after SIGTERM, %s", p.end())
	}
	s.say("%s: SIGTERM, drained in %.1f s, exit code 0", p.name, time.Since(began).Seconds())
	return nil
}

func (s *story) drainAll(ctx context.Context) error {
	for i := range s.workers {
		if err := s.drain(ctx, i); err != nil {
			return err
		}
		s.workers[i] = nil
	}
	return nil
}

// awaitCommit waits until the group has committed the end of the topic.
func (s *story) awaitCommit(ctx context.Context) error {
	return withAdmin(s.target, func(admin sarama.ClusterAdmin, client sarama.Client) error {
		return poll(ctx, func() (bool, error) {
			if err := s.surprise(); err != nil {
				return false, err
			}
			open, err := backlog(admin, client, s.target)
			return open == 0, err
		})
	})
}

// cleanUp leaves no worker behind, and no topic. Workers that still run, because the story failed or was interrupted, are asked
// before they are killed, so that they leave the group.
func (s *story) cleanUp() {
	for _, p := range s.workers {
		if p != nil {
			p.signal(syscall.SIGTERM)
		}
	}
	for _, p := range s.workers {
		if p != nil && !p.endsWithin(askTimeout) {
			p.kill()
		}
	}
	if err := deleteTopic(s.target); err != nil {
		fmt.Fprintf(s.log, "billing: cannot delete topic %s: %v\n", s.topic, err)
	}
}

// say prints a line with the time.
func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
