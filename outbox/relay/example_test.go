package relay_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// A relay has a pool of its own, with two connections more than it has workers, and is woken by notifications beside
// polling.
func Example() {
	send := func(ctx context.Context, url string, brokers []string) error {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			return err
		}
		cfg.MaxConns = relay.DefaultWorkers + 2
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer pool.Close() // after Run has returned
		r, err := relay.New(relay.Config{
			Database: pgxoutbox.NewDatabase(pool), Listener: pgxoutbox.NewListener(pool, ""), Brokers: brokers,
			Mode: outbox.TwoPhase, Keep: time.Hour,
		})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	_ = send

	_, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(nil), Brokers: []string{"kafka://localhost:9092"}})
	wrong, _ := errors.AsType[*relay.ConfigError](err)
	fmt.Println(wrong)
	// Output: outbox: Config.Brokers[0]: "kafka://localhost:9092" is not an address: write "host:port", without a scheme
}
