package janitormetrics_test

import (
	"context"

	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/janitor/janitormetrics"
)

// A janitor is measured from before it runs until after it has ended.
func Example() {
	run := func(ctx context.Context, j *janitor.Janitor) error {
		stop, err := janitormetrics.Register(j, nil)
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the instruments end with the process
		return j.Run(ctx)
	}
	_ = run
	// Output:
}
