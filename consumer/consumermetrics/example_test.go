package consumermetrics_test

import (
	"context"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumermetrics"
)

// A Consumer is measured from before it runs until after it has ended.
func Example() {
	run := func(ctx context.Context, cfg consumer.Config) error {
		c, err := consumer.New(cfg)
		if err != nil {
			return err
		}
		stop, err := consumermetrics.Register(c, &consumermetrics.Config{PerPartition: true})
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the instruments end with the process
		return c.Run(ctx)
	}
	fmt.Println(run(context.Background(), consumer.Config{Brokers: []string{"kafka:9092"}, Group: "billing"}))
	// Output: einmal: Config.Topics: is empty: name at least one topic and its Handler
}
