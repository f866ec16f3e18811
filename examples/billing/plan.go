package main

import (
	"math/rand/v2"
	"time"
)

// deed is what happens to a worker in a step of the story.
type deed int

const (
	kill            deed = iota // SIGKILL at a random moment
	killAfterCommit             // SIGKILL after a COMMIT, before the offset is marked
	terminate                   // SIGTERM: it drains
)

// step is one of the things that happen in a story.
type step struct {
	deed     deed
	worker   int           // index of the worker
	messages int           // it happens when so many messages have been delivered,
	after    time.Duration // and so much later
}

// makePlan spreads kills and one SIGTERM over the time in which the messages are delivered. Every third kill falls between COMMIT and
// mark, beginning with the second. The last step leaves a part of the messages to be delivered after it.
func makePlan(messages, kills, workers int, rng *rand.Rand) []step {
	var deeds []deed
	for i := range kills {
		if i == kills/2 {
			deeds = append(deeds, terminate)
		}
		if i%3 == 1 {
			deeds = append(deeds, killAfterCommit)
		} else {
			deeds = append(deeds, kill)
		}
	}
	var plan []step
	for i, d := range deeds {
		plan = append(plan, step{
			deed:     d,
			worker:   rng.IntN(workers),
			messages: int(float64(messages) * (float64(i) + 0.2 + 0.6*rng.Float64()) / float64(len(deeds)+1)),
			after:    time.Duration(rng.Int64N(int64(50 * time.Millisecond))),
		})
	}
	return plan
}
