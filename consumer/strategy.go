package consumer

import (
	"fmt"
	"maps"
	"sync"

	"github.com/IBM/sarama"
)

// Rebalance is how partitions move between the members of a group.
type Rebalance int

const (
	// Eager lets go of all partitions at each rebalance and distributes them by range. It is the default: on small groups
	// it is the faster one, and Kafka can move such a group to its newer protocol (KIP-848) while it runs.
	Eager Rebalance = iota
	// ToCooperative is a step on the way from Eager to Cooperative: members that offer both. All members must run with it
	// before the first one runs with Cooperative; going from Eager to Cooperative in one step is refused by the broker.
	ToCooperative
	// Cooperative lets go only of the partitions that move (cooperative-sticky). sarama's support is young.
	Cooperative
)

// String returns the name of the constant.
func (r Rebalance) String() string {
	switch r {
	case Eager:
		return "Eager"
	case ToCooperative:
		return "ToCooperative"
	case Cooperative:
		return "Cooperative"
	default:
		return fmt.Sprintf("Rebalance(%d)", int(r))
	}
}

// strategy is what the group's strategies tell the runner, and it them.
type strategy struct {
	kind Rebalance

	mu       sync.Mutex
	nonce    []byte                              // user data of the subscription: other bytes make the group rebalance
	assigned func(assignment map[string][]int32) // called with each new assignment, before anything is revoked
}

// list returns sarama's strategies. They have state, so each client has its own.
func (s *strategy) list() []sarama.BalanceStrategy {
	eager := nudged{sarama.NewBalanceStrategyRange(), s}
	switch s.kind {
	case Cooperative:
		return []sarama.BalanceStrategy{announcing{newCooperative(), s}}
	case ToCooperative:
		return []sarama.BalanceStrategy{newCooperative(), eager}
	default:
		return []sarama.BalanceStrategy{eager}
	}
}

// nudge makes the next join differ from the one before, so that the broker starts a rebalance even for a static member.
func (s *strategy) nudge(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonce = []byte(nonce)
}

func (s *strategy) onAssignment(f func(map[string][]int32)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned = f
}

// nudged is an eager strategy whose subscription can be changed. Its user data is empty until there is need: what a
// group of mixed protocols (KIP-848) makes of other bytes is not known.
type nudged struct {
	sarama.BalanceStrategy
	*strategy
}

// SubscriptionUserData implements sarama.SubscriptionUserDataBalanceStrategy.
func (n nudged) SubscriptionUserData([]string) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nonce, nil
}

// cooperative is all that sarama's cooperative strategy implements.
type cooperative interface {
	sarama.RebalanceProtocolBalanceStrategy
	sarama.SubscriptionUserDataBalanceStrategy
	sarama.OnAssignmentBalanceStrategy
}

func newCooperative() cooperative {
	return sarama.NewBalanceStrategyCooperativeSticky().(cooperative) //nolint:forcetypeassert // its own documentation says so
}

// announcing is the cooperative strategy that tells of a new assignment at once. sarama itself tells a claim of its
// revocation by closing its channel, which can take a fetch longer.
type announcing struct {
	cooperative
	*strategy
}

// OnAssignment implements sarama.OnAssignmentBalanceStrategy.
func (a announcing) OnAssignment(assignment *sarama.ConsumerGroupMemberAssignment, generation int32) {
	a.cooperative.OnAssignment(assignment, generation)
	a.mu.Lock()
	assigned := a.assigned
	a.mu.Unlock()
	if assigned != nil {
		assigned(maps.Clone(assignment.Topics))
	}
}
