package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	errors *brokerErrors

	// Written in Setup and Cleanup, read when Consume has returned.
	sessionBegan time.Time
	sessionEnd   error // why it ended
}

// What lies between two sessions. A rebalance is answered at once, the others wait for it; sessions that end soon after
// they began, one after the other, are not: without a pause one bad partition would make the whole group rebalance
// without end.
const (
	shortSession = 10 * time.Second
	rejoinBase   = 100 * time.Millisecond
	rejoinMax    = 5 * time.Second
	// rejoinOthers is the most where others made the group rebalance: they wait for this member, with all their
	// partitions. It is for the one that begins the rebalances to pause.
	rejoinOthers = 200 * time.Millisecond
)

func rejoinDelay(short int) time.Duration {
	if short <= 1 {
		return 0
	}
	return min(rejoinMax, rejoinBase<<min(short-2, 10))
}

func (m *membership) rejoinDelay(short int) time.Duration {
	if errors.Is(m.sessionEnd, sarama.ErrRebalanceInProgress) {
		return min(rejoinOthers, rejoinDelay(short))
	}
	return rejoinDelay(short)
}

// member joins the group and stays in it until ctx is done, the membership is left, or the broker refuses it for good.
func (r *running) member() error {
	group, err := sarama.NewConsumerGroupFromClient(r.cfg.Group, r.client)
	if err != nil {
		return err
	}
	m := &membership{running: r, group: group, reader: make(chan struct{}), errors: newBrokerErrors(r.log)}
	m.errors.away = r.brokersFailed
	r.strategy.onAssignment(m.assigned)
	defer r.strategy.onAssignment(nil)
	m.ctx, m.leave = context.WithCancelCause(r.ctx)
	go m.readErrors()
	defer m.leave(nil)
	defer m.close()
	returned, cut := make(chan struct{}), make(chan struct{})
	unneeded := context.AfterFunc(m.ctx, func() {
		defer close(cut)
		m.cutIfStuck(returned)
	})
	defer func() {
		close(returned)
		if !unneeded() {
			<-cut
		}
	}()
	return m.sessions()
}

// cutIfStuck is the last resort when the membership ends: a request that a broker does not answer, a join that it
// parks, knows no context. When the claims have had their time and sarama has not returned, the connections are cut,
// and none is opened until it has: sarama asks each broker several times, and each of them may be frozen.
func (m *membership) cutIfStuck(returned <-chan struct{}) {
	drained := time.Now().Add(m.cfg.DrainTimeout + cancelGrace)
	for len(m.allClaims()) > 0 && time.Now().Before(drained) {
		if waitFor(returned, cutPoll) {
			return
		}
	}
	if waitFor(returned, stopGrace) {
		return
	}
	m.log.Warn("einmal: the brokers do not answer, connections are cut")
	m.dialer.Halt()
	defer m.dialer.Resume() // to leave the group
	<-returned
}

const cutPoll = 20 * time.Millisecond

// sessions joins again and again.
func (m *membership) sessions() error {
	short := 0
	for {
		err := m.session()
		if m.ctx.Err() != nil {
			return nil //nolint:nilerr // what ended with the membership is no error of it
		}
		if errors.Is(err, sarama.ErrInvalidSessionTimeout) {
			return m.sessionTimeoutRefused(err)
		}
		if fatal := refused(err, m.cfg.Group); fatal != nil {
			return fatal
		}
		if err != nil {
			var attrs []any
			if why := m.client.why(); why != nil {
				attrs = append(attrs, slog.Any("coordinator", why)) // the error says no more than that there is none
				err = fmt.Errorf("%w: %w", err, why)
			}
			m.outages.failed(m.log, NeedCoordinator, "", err, attrs...)
			m.change(Left, Running) // until the next assignment
		}
		short = m.countShort(short, err)
		if !m.wait(m.rejoinDelay(short)) {
			return nil
		}
	}
}

// session joins the group and stays in it until the next rebalance, or longer in cooperative mode.
func (m *membership) session() error {
	m.sessionBegan, m.sessionEnd = time.Time{}, nil
	m.client.arm()
	topics := m.existing()
	if len(topics) == 0 {
		return errNoTopics
	}
	ctx, end := context.WithCancel(m.ctx)
	defer end()
	s := &session{membership: m, end: end}
	defer s.watching.Wait()
	return m.group.Consume(ctx, topics, s)
}

var errNoTopics = errors.New("none of the topics exists")

// assigned is called in cooperative mode with a new assignment, as soon as it is known: what is not in it is revoked.
func (m *membership) assigned(assignment map[string][]int32) {
	m.sessionTotals.rebalanced()
	for _, cl := range m.allClaims() {
		if !slices.Contains(assignment[cl.topic.name], cl.partition) {
			cl.revoke()
		}
	}
}

// countShort counts sessions in a row that failed, or ended soon after they began.
func (m *membership) countShort(short int, err error) int {
	if err == nil && !m.sessionBegan.IsZero() && time.Since(m.sessionBegan) > shortSession {
		return 1
	}
	short++
	m.sessionTotals.wasShort()
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
		remedy = "the members that run have no strategy in common with this one: " + clashRemedy
	case errors.As(err, &conf):
		remedy = "correct Config.Sarama"
	default:
		return nil
	}
	return fmt.Errorf("einmal: group %q refuses this member: %w: %s", group, err, remedy)
}

// sessionTimeoutRefused is the error for a session time-out that the brokers do not allow.
func (m *membership) sessionTimeoutRefused(err error) error {
	ctx, cancel := context.WithTimeout(m.ctx, windowTimeout)
	defer cancel()
	bounds := "their group.min.session.timeout.ms and group.max.session.timeout.ms"
	found, asked := bounded(ctx, 0, func() (*settings, error) { return askSettings(m.client, nil) }, func(*settings) {})
	if asked == nil && found.broker["group.min.session.timeout.ms"] != "" {
		bounds = fmt.Sprintf("group.min.session.timeout.ms is %s there, group.max.session.timeout.ms is %s",
			found.broker["group.min.session.timeout.ms"], found.broker["group.max.session.timeout.ms"])
	}
	return fmt.Errorf("einmal: group %q refuses this member: %w: Consumer.Group.Session.Timeout is %v in Config.Sarama, set one that the brokers allow: %s",
		m.cfg.Group, err, m.sarama.Consumer.Group.Session.Timeout, bounds)
}

// clashRemedy is what to do about members with other strategies.
const clashRemedy = "by default a member offers range only. To move a group to Cooperative, first run all its members with Config.Rebalance ToCooperative, which offers both"

// close leaves the group. It is called after Consume has returned, never before: closing first would cut the last
// commit off.
func (m *membership) close() {
	left := within(closeTimeout, func() {
		if err := m.group.Close(); err != nil {
			m.log.Debug("einmal: closing the group", slog.Any("error", err)) // the last of the errors reported before
		}
		<-m.reader
	})
	if m.cfg.InstanceID != "" && left && (m.cfg.LeaveOnStop || errors.Is(context.Cause(m.ctx), errLeave)) {
		left = within(closeTimeout, m.removeInstance)
	}
	if !left {
		m.log.Warn("einmal: the brokers do not answer: the group was not left; its partitions stay unassigned until the session time-out")
		m.dialer.Cut()
	}
}

// removeInstance makes a static member leave.
func (m *membership) removeInstance() {
	admin, err := sarama.NewClusterAdminFromClient(m.client)
	var res *sarama.LeaveGroupResponse
	if err == nil {
		res, err = admin.RemoveMemberFromConsumerGroup(m.cfg.Group, []string{m.cfg.InstanceID})
	}
	if err == nil {
		err = stayed(res)
	}
	if err != nil && !errors.Is(err, sarama.ErrUnknownMemberId) && !errors.Is(err, sarama.ErrGroupIDNotFound) { // one that nobody knows has left
		m.log.Warn("einmal: the static member could not leave the group: its partitions stay with it until the session time-out", slog.Any("error", err))
	}
}

// stayed is why a member is still in the group: an answer without an error has one for each member.
func stayed(res *sarama.LeaveGroupResponse) error {
	for _, m := range res.Members {
		if !errors.Is(m.Err, sarama.ErrNoError) {
			return m.Err
		}
	}
	return nil
}

// closeTimeout bounds leaving the group: one round trip to a broker that lives.
const closeTimeout = 3 * time.Second

// readErrors logs what the client reports, until the group is closed.
func (m *membership) readErrors() {
	defer close(m.reader)
	for err := range m.group.Errors() {
		m.errors.warn(err)
		m.note(err)
	}
}

// note keeps the error of a partition for Status, until something of it is fetched.
func (m *membership) note(err error) {
	var failed *sarama.ConsumerError
	if !errors.As(err, &failed) || failed.Topic == "" {
		return
	}
	if errors.Is(failed.Err, sarama.ErrOffsetMetadataTooLarge) {
		m.withoutMetadata()
		return
	}
	if ofCommit(failed.Err) {
		return
	}
	for _, cl := range m.allClaims() {
		if cl.topic.name == failed.Topic && cl.partition == failed.Partition {
			cl.cannotRead(failed.Err)
			cl.examine(failed.Err)
		}
	}
}

// withoutMetadata goes on without carrying what is known of open messages: a broker with a small
// offset.metadata.max.bytes refuses the whole commit for it.
func (m *membership) withoutMetadata() {
	if m.noMetadata.Swap(true) {
		return
	}
	m.log.Warn("einmal: the broker refuses the metadata of committed offsets: ages and attempts of messages begin anew with each rebalance; raise offset.metadata.max.bytes")
	for _, cl := range m.allClaims() {
		cl.mu.Lock()
		if !cl.fenced {
			cl.commitAgain()
		}
		cl.mu.Unlock()
	}
}
