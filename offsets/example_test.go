package offsets_test

import (
	"fmt"

	"github.com/einmal-go/einmal/offsets"
)

func ExampleTracker() {
	var t offsets.Tracker
	for _, offset := range []int64{100, 101, 105} { // 102 to 104 were compacted away
		if err := t.Deliver(offset); err != nil {
			fmt.Println(err)
		}
	}
	for _, offset := range []int64{105, 100, 101, 101} {
		if err := t.Done(offset); err != nil {
			fmt.Println(err)
			continue
		}
		commit, ok := t.Committable()
		oldest, open := t.Oldest()
		fmt.Println("done:", offset, "commit:", commit, ok, "in flight:", t.InFlight(), "oldest:", oldest, open)
	}
	// Output:
	// done: 105 commit: 0 false in flight: 2 oldest: 100 true
	// done: 100 commit: 101 true in flight: 1 oldest: 101 true
	// done: 101 commit: 106 true in flight: 0 oldest: 0 false
	// unknown offset: 101 is done, but it is not open: it was never delivered, or was done before
}
