package middleware

import (
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

// What is kept for the spans of partitions is bounded, however many partitions there are, and is right for each.
func TestKeptStartsAreBounded(t *testing.T) {
	t.Parallel()
	s := starts{known: map[startKey]start{}}
	for p := range int32(3 * maxCachedStarts) {
		for range 2 {
			if st := s.of(&consumer.Message{Topic: "orders", Group: "billing", Partition: p}); st.name == "" ||
				len(st.root) == 0 {
				t.Fatalf("partition %d: %+v", p, st)
			}
		}
		if len(s.known) > maxCachedStarts {
			t.Fatalf("%d are kept, want %d at most", len(s.known), maxCachedStarts)
		}
	}
}
