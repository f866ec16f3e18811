package story

import (
	"math/rand/v2"
	"time"
)

// deed is what happens to a process in a step of the story.
type deed int

const (
	kill            deed = iota // SIGKILL at a random moment
	killAfterCommit             // SIGKILL after a COMMIT, before the offset is marked or the answer is given
	terminate                   // SIGTERM: it drains
)

// step is one of the things that happen in a story.
type step struct {
	deed    deed
	process int           // index in the cast
	orders  int           // it happens when so many orders have been delivered,
	after   time.Duration // and so much later
}

// makePlan spreads kills and one SIGTERM over the time in which the orders are delivered. Each process is killed in
// turn, in random order. Every second kill of one that commits falls after a COMMIT. The last step leaves a part of the
// orders to be delivered after it.
func makePlan(orders, kills int, cast []role, rng *rand.Rand) []step {
	var deeds []step
	var turns []int
	for i := range kills {
		if i == kills/2 {
			deeds = append(deeds, step{deed: terminate, process: rng.IntN(len(cast))})
		}
		if len(turns) == 0 {
			turns = rng.Perm(len(cast))
		}
		s := step{deed: kill, process: turns[0]}
		turns = turns[1:]
		if i%2 == 1 && cast[s.process].kind != sender {
			s.deed = killAfterCommit
		}
		deeds = append(deeds, s)
	}
	for i := range deeds {
		deeds[i].orders = int(float64(orders) * (float64(i) + 0.2 + 0.6*rng.Float64()) / float64(len(deeds)+1))
		deeds[i].after = time.Duration(rng.Int64N(int64(50 * time.Millisecond)))
	}
	return deeds
}
