package story

import (
	"fmt"
	"math/rand/v2"
)

// request is what a customer orders. The reference is the customer's own, and tells the story what belongs to it.
type request struct {
	Reference string `json:"reference"`
	Cents     int64  `json:"cents"`
	again     again
}

// again is how often a customer sends a request, beside the repetitions that lost answers bring.
type again int

const (
	once      again = iota
	twice           // two at the same time
	afterward       // and once more when it was answered
)

// makeRequests returns the first n requests. The same seed makes the same. One in ten is sent twice at the same time,
// as by an impatient customer, and one in five again when it has been answered, as by a client that missed the answer.
func makeRequests(n int, seed uint64) []request {
	list := make([]request, n)
	for i := range list {
		list[i] = makeRequest(i, seed)
	}
	return list
}

func makeRequest(i int, seed uint64) request {
	rng := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // repeatable amounts of money, not secrets
	r := request{Reference: fmt.Sprintf("%016x-%05d", seed, i), Cents: 100 + rng.Int64N(20_000)}
	switch i % 10 {
	case 1:
		r.again = twice
	case 3, 8:
		r.again = afterward
	}
	return r
}

// RandomSeed is printed, so that what it led to can be repeated.
func RandomSeed() uint64 { return rand.Uint64() } //nolint:gosec // not a secret

// priceList maps the requests' references to what each costs, in cents.
func priceList(requests []request) map[string]int64 {
	prices := map[string]int64{}
	for _, r := range requests {
		prices[r.Reference] = r.Cents
	}
	return prices
}

func total(prices map[string]int64) (cents int64) {
	for _, price := range prices {
		cents += price
	}
	return cents
}
