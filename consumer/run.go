package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// running is a Consumer from the moment at which all servers have answered, until Run returns.
type running struct {
	*Consumer
	log      *slog.Logger
	client   sarama.Client
	group    sarama.ConsumerGroup
	ctx      context.Context // ends with the caller's, or by stop
	stop     context.CancelCauseFunc
	handlers context.Context // never ends; carries the caller's values

	stuckMu     sync.Mutex
	stuckClaims []*claim
	reader      chan struct{} // closed when the group's errors have been read
}

// What lies between two sessions. A rebalance is answered at once, the others wait for it; sessions that end soon after they began,
// one after the other, are not: without a pause one bad partition would make the whole group rebalance without end.
const (
	shortSession = 10 * time.Second
	rejoinBase   = 100 * time.Millisecond
	rejoinMax    = 5 * time.Second
)

func rejoinDelay(short int) time.Duration {
	if short <= 1 {
		return 0
	}
	return min(rejoinMax, rejoinBase<<min(short-2, 10))
}

// consume joins the group again and again until ctx is done or the broker refuses this member for good.
func (r *running) consume() error {
	topics := slices.Sorted(maps.Keys(r.topics))
	short := 0
	for r.ctx.Err() == nil {
		began := time.Now()
		err := r.group.Consume(r.ctx, topics, &session{running: r})
		if r.ctx.Err() != nil {
			break
		}
		if fatal := refused(err, r.cfg.Group); fatal != nil {
			return fatal
		}
		if err != nil {
			short = max(short, 1) // never at once after an error
			r.log.Warn("einmal: joining or leaving the group failed, trying again", slog.Any("error", err))
		}
		if short++; time.Since(began) > shortSession && err == nil {
			short = 1
		}
		r.wait(rejoinDelay(short))
	}
	var stopped *StopError
	if errors.As(context.Cause(r.ctx), &stopped) {
		return stopped
	}
	return nil
}

// wait waits for about d, or until ctx is done.
func (r *running) wait(d time.Duration) {
	if d == 0 {
		return
	}
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

// refused returns an error for what joining again cannot cure, with what can, and nil for the rest.
func refused(err error, group string) error {
	remedy := ""
	var conf sarama.ConfigurationError
	switch {
	case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		remedy = "allow the user READ on the group"
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		remedy = "allow the user READ and DESCRIBE on the topics"
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		remedy = "correct Net.SASL in Config.Sarama"
	case errors.Is(err, sarama.ErrFencedInstancedId):
		remedy = "give each process a group instance id of its own"
	case errors.Is(err, sarama.ErrInconsistentGroupProtocol):
		remedy = "the members that run use no strategy that this one knows: it uses range"
	case errors.As(err, &conf):
		remedy = "correct Config.Sarama"
	default:
		return nil
	}
	return fmt.Errorf("einmal: group %q refuses this member: %w: %s", group, err, remedy)
}

// stuck remembers a claim whose handlers ignore their contexts.
func (r *running) stuck(cl *claim) {
	r.log.Error("einmal: handlers did not return after their context was cancelled; their messages are delivered again", slog.Any("messages", cl.stillRunning()))
	r.stuckMu.Lock()
	defer r.stuckMu.Unlock()
	r.stuckClaims = append(r.stuckClaims, cl)
}

func (r *running) stuckError() error {
	r.stuckMu.Lock()
	defer r.stuckMu.Unlock()
	var names []string
	for _, cl := range r.stuckClaims {
		names = append(names, cl.stillRunning()...)
	}
	return stuckError(names)
}

// close leaves the group and closes the connections. It is called after Consume has returned, never before: closing first would
// cut the last commit off.
func (r *running) close() {
	r.stop(nil)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := r.group.Close(); err != nil {
			r.log.Debug("einmal: closing the group", slog.Any("error", err)) // the last of the errors reported before
		}
		<-r.reader
		_ = r.client.Close()
	}()
	if !waitFor(closed, closeTimeout) {
		r.log.Warn("einmal: the brokers do not answer: the group was not left; its partitions stay unassigned until the session time-out")
	}
}

// closeTimeout bounds leaving the group: one round trip to a broker that lives.
const closeTimeout = 3 * time.Second

// readErrors logs what the client reports, until the group is closed.
func (r *running) readErrors() {
	defer close(r.reader)
	errs := newBrokerErrors(r.log)
	for err := range r.group.Errors() {
		errs.warn(err)
	}
}
