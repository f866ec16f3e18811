package story

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, seed := rapid.IntRange(1, 2000).Draw(t, "n"), rapid.Uint64().Draw(t, "seed")
		requests := makeRequests(n, seed)
		if !reflect.DeepEqual(requests, makeRequests(n, seed)) {
			t.Fatal("the same seed makes other requests")
		}
		prices, repeated := priceList(requests), map[again]int{}
		for _, r := range requests {
			repeated[r.again]++
		}
		if len(prices) != n || total(prices) < int64(n)*100 || repeated[twice] != (n+8)/10 || repeated[afterward] != (n+1)/5 {
			t.Fatalf("%d requests for %d cents, repeated %v", len(prices), total(prices), repeated)
		}
	})
}

func TestPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		orders, kills := rapid.IntRange(1, 5000).Draw(t, "orders"), rapid.IntRange(0, 40).Draw(t, "kills")
		plan := makePlan(orders, kills, cast, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		count, killed := map[deed]int{}, make([]int, len(cast))
		before := 0
		for _, s := range plan {
			count[s.deed]++
			if s.deed != terminate {
				killed[s.process]++
			}
			if s.orders < before || s.orders >= orders || s.deed == killAfterCommit && cast[s.process].kind == sender {
				t.Fatalf("step %+v after one at %d of %d orders", s, before, orders)
			}
			before = s.orders
		}
		if count[kill]+count[killAfterCommit] != kills || count[terminate] != min(1, kills) {
			t.Fatalf("%d kills: %v", kills, count)
		}
		for i, n := range killed {
			if n < kills/len(cast) {
				t.Fatalf("%d kills, of which %s got %d", kills, cast[i].name, n)
			}
		}
	})
}

func TestAuditCountsWhatIsDoubledAndMissing(t *testing.T) {
	t.Parallel()
	prices := map[string]int64{"a": 100, "b": 200, "c": 300, "d": 400}
	for _, c := range []struct {
		name string
		rows []entries
		want Ledger
	}{
		{"all once", []entries{{"a", 1, 100}, {"b", 1, 200}, {"c", 1, 300}, {"d", 1, 400}}, Ledger{Rows: 4, Cents: 1000}},
		{"nothing", nil, Ledger{Missing: 4}},
		{"one three times, one never", []entries{{"a", 3, 300}, {"b", 1, 200}, {"d", 1, 400}},
			Ledger{Rows: 5, Doubled: 2, Missing: 1, Cents: 900}},
		{"one that nobody made", []entries{{"a", 1, 100}, {"b", 1, 200}, {"c", 1, 300}, {"d", 1, 400}, {"x", 1, 9}},
			Ledger{Rows: 5, Doubled: 1, Cents: 1009}},
	} {
		if got := count(c.rows, prices); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
