package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// membership is one time as a member of the group, from joining to leaving, through all rebalances in between.
type membership struct {
	*running
	group  sarama.ConsumerGroup
	ctx    context.Context // ends with running's, or by leave
	leave  context.CancelCauseFunc
	reader chan struct{} // closed when the group's errors have been read

	sessionBegan time.Time // written in Setup, read when Consume has returned
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

// member joins the group and stays in it until ctx is done, the membership is left, or the broker refuses it for good.
func (r *running) member() error {
	group, err := sarama.NewConsumerGroupFromClient(r.cfg.Group, r.client)
	if err != nil {
		return err
	}
	m := &membership{running: r, group: group, reader: make(chan struct{})}
	m.ctx, m.leave = context.WithCancelCause(r.ctx)
	go m.readErrors()
	defer m.close()
	returned := make(chan struct{})
	defer context.AfterFunc(m.ctx, func() { m.cutIfStuck(returned) })()
	defer close(returned)
	return m.sessions()
}

// cutIfStuck is the last resort when the membership ends: a request that a broker does not answer, a join that it parks, knows no
// context. When the claims have had their time and sarama has not returned, the connections are cut.
func (m *membership) cutIfStuck(returned <-chan struct{}) {
	drained := time.Now().Add(m.cfg.DrainTimeout + cancelGrace)
	for len(m.allClaims()) > 0 && time.Now().Before(drained) {
		if waitFor(returned, cutPoll) {
			return
		}
	}
	for !waitFor(returned, stopGrace) {
		m.log.Warn("einmal: the brokers do not answer, connections are cut")
		m.dialer.cut()
	}
}

const cutPoll = 20 * time.Millisecond

// sessions joins again and again.
func (m *membership) sessions() error {
	topics := slices.Sorted(maps.Keys(m.topics))
	short := 0
	for {
		m.sessionBegan = time.Time{}
		m.client.arm()
		err := m.group.Consume(m.ctx, topics, &session{membership: m})
		if m.ctx.Err() != nil {
			return nil //nolint:nilerr // what ended with the membership is no error of it
		}
		if fatal := refused(err, m.cfg.Group); fatal != nil {
			return fatal
		}
		if err != nil {
			m.log.Warn("einmal: joining or leaving the group failed, trying again", slog.Any("error", err))
		}
		short = m.countShort(short, err)
		if !m.wait(rejoinDelay(short)) {
			return nil
		}
	}
}

// countShort counts sessions in a row that failed, or ended soon after they began.
func (m *membership) countShort(short int, err error) int {
	if err == nil && !m.sessionBegan.IsZero() && time.Since(m.sessionBegan) > shortSession {
		return 1
	}
	short++
	m.hooks.shortSession(short)
	if err != nil {
		short = max(short, 2) // never at once after an error
	}
	return short
}

// wait waits for about d, and reports whether the membership goes on.
func (m *membership) wait(d time.Duration) bool {
	if d == 0 {
		return m.ctx.Err() == nil
	}
	return pause(m.ctx, d/2+rand.N(d)) //nolint:gosec // jitter is no secret
}

// refused returns an error for what joining again cannot cure, with what can, and nil for the rest.
func refused(err error, group string) error {
	var remedy string
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

// close leaves the group. It is called after Consume has returned, never before: closing first would cut the last commit off.
func (m *membership) close() {
	m.leave(nil)
	left := within(closeTimeout, func() {
		if err := m.group.Close(); err != nil {
			m.log.Debug("einmal: closing the group", slog.Any("error", err)) // the last of the errors reported before
		}
		<-m.reader
	})
	if !left {
		m.log.Warn("einmal: the brokers do not answer: the group was not left; its partitions stay unassigned until the session time-out")
		m.dialer.cut()
	}
}

// closeTimeout bounds leaving the group: one round trip to a broker that lives.
const closeTimeout = 3 * time.Second

// readErrors logs what the client reports, until the group is closed.
func (m *membership) readErrors() {
	defer close(m.reader)
	errs := newBrokerErrors(m.log)
	for err := range m.group.Errors() {
		errs.warn(err)
	}
}
