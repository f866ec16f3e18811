package relaymetrics_test

import (
	"context"

	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/outbox/relay/relaymetrics"
)

// A relay is measured from before it runs until after it has ended.
func Example() {
	run := func(ctx context.Context, cfg relay.Config) error {
		r, err := relay.New(cfg)
		if err != nil {
			return err
		}
		stop, err := relaymetrics.Register(r, nil)
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the instruments end with the process
		return r.Run(ctx)
	}
	_ = run
	// Output:
}
