package story

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// trouble lives through the plan, or in a story that is shown through one after the other for as long as until is not
// done.
func (s *Story) trouble(ctx, until context.Context) error {
	if s.Serve != "" {
		return s.endlessTrouble(ctx, until)
	}
	for _, step := range s.plan {
		if err := s.await(ctx, step); err != nil {
			return err
		}
		if err := s.do(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// endlessTrouble does something every few seconds, or as often as Options.Every says.
func (s *Story) endlessTrouble(ctx, until context.Context) error {
	rng := s.random()
	for {
		for _, step := range makePlan(1, len(s.cast), s.cast, rng) {
			every := cmp.Or(s.Every, defaultEvery)
			next := time.Now().Add(every/2 + time.Duration(rng.Int64N(int64(every))))
			err := poll(ctx, func() (bool, error) { return time.Now().After(next) || until.Err() != nil, s.surprise() })
			if err != nil || until.Err() != nil {
				return err
			}
			if err := s.do(ctx, step); err != nil {
				return err
			}
		}
	}
}

// await waits until it is time for the step.
func (s *Story) await(ctx context.Context, step step) error {
	err := poll(ctx, func() (bool, error) { return s.delivered.Load() >= int64(step.orders), s.surprise() })
	if err != nil {
		return err
	}
	return pause(ctx, step.after)
}

// do does what the step says, and puts a new process in the place of the old one.
func (s *Story) do(ctx context.Context, step step) (err error) {
	i := step.process
	switch step.deed {
	case kill:
		s.processes[i].kill()
		err = s.killed(s.processes[i])
	case killAfterCommit:
		if i, err = s.busy(ctx, i); err != nil {
			return err
		}
		s.processes[i].tell(dieAfterCommit)
		if !s.processes[i].endsWithin(cmp.Or(s.Armed, armedTimeout)) {
			s.processes[i].kill() // it has nothing more to commit
		}
		err = s.killed(s.processes[i])
	case terminate:
		err = s.drain(ctx, i)
	}
	if err != nil {
		return err
	}
	return s.start(i)
}

// busy returns the process of i's service with the latest delivery, or else i: one without work would wait long for a
// COMMIT to die after.
func (s *Story) busy(ctx context.Context, i int) (int, error) {
	var latest string
	err := s.pool.QueryRow(ctx, `SELECT coalesce((SELECT process FROM delivery WHERE process LIKE $1 ORDER BY id DESC LIMIT 1), '')`,
		s.cast[i].service+"%").Scan(&latest)
	if at := slices.IndexFunc(s.processes, func(p *process) bool { return p.name == latest }); at >= 0 {
		i = at
	}
	return i, err
}

// killed counts the end of a process by SIGKILL, and says where it was.
func (s *Story) killed(p *process) error {
	if !p.killed() {
		return errors.New(p.end())
	}
	s.dead.Add(1)
	how := "SIGKILL"
	if place := p.place(); place != "" {
		how += " " + place
	}
	s.say("%s: %s, when %s orders were delivered", p.name, how, thousands(s.delivered.Load()))
	return nil
}

// drain sends SIGTERM, after which a process finishes what it has begun, and exits with 0.
func (s *Story) drain(ctx context.Context, i int) error {
	p := s.processes[i]
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

func (s *Story) drainAll(ctx context.Context) error {
	for i := range s.processes {
		if err := s.drain(ctx, i); err != nil {
			return err
		}
		s.processes[i] = nil
	}
	return nil
}

// surprise is an error when a process has ended by itself.
func (s *Story) surprise() error {
	for _, p := range s.processes {
		if p != nil && p.ended() {
			return errors.New(p.end())
		}
	}
	return nil
}
