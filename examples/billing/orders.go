package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// event is a message about an order. The id identifies what happened, however often it is sent.
type event struct {
	id    string
	order Order
}

// makeEvents returns the events of n orders in the order in which they are sent. The same seed makes the same events.
//
// One order in ten is sent twice in a row, as by a producer that missed an acknowledgement, and one in ten, all of them from the first
// half, is sent again after at least a third of all the others, as by somebody who replays a day.
func makeEvents(n int, seed uint64) []event {
	type sent struct {
		event
		number int
		at     float64
	}
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable amounts of money, not secrets
	var list []sent
	for i := range n {
		id := fmt.Sprintf("%016x-%05d", seed, i)
		e := event{id: "confirmed-" + id, order: Order{ID: id, Cents: 100 + rng.Int64N(20_000)}}
		list = append(list, sent{e, i, float64(i)})
		if i%5 == 2 && i < n/2 {
			later := (1 + rng.Float64()) / 3 * float64(n)
			list = append(list, sent{e, -1, float64(i) + later})
		}
	}
	slices.SortStableFunc(list, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	var events []event
	for _, s := range list {
		events = append(events, s.event)
		if s.number%10 == 3 {
			events = append(events, s.event)
		}
	}
	return events
}

// randomSeed is printed, so that what it led to can be repeated.
func randomSeed() uint64 { return rand.Uint64() } //nolint:gosec // not a secret

// priceList maps the events' orders to what each costs, in cents.
func priceList(events []event) map[string]int64 {
	prices := map[string]int64{}
	for _, e := range events {
		prices[e.order.ID] = e.order.Cents
	}
	return prices
}
