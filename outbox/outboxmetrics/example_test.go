package outboxmetrics_test

import (
	"context"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxmetrics"
)

// A relay is measured from before it runs until after it has ended.
func Example() {
	run := func(ctx context.Context, cfg outbox.Config) error {
		relay, err := outbox.New(cfg)
		if err != nil {
			return err
		}
		stop, err := outboxmetrics.Register(relay, nil)
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the instruments end with the process
		return relay.Run(ctx)
	}
	_ = run
	// Output:
}
