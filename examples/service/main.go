// Command service is what a service needs in production, in one place and to be copied: it takes orders by HTTP, each
// once, and charges them, each once, whatever is killed, repeated or redelivered.
//
//	service           serves until SIGTERM, and then stops in order
//	service migrate   brings the database to the schema of this version, and ends
//
// The environment configures it; config.go has every variable. README.md says what to change in a copy.
//
//	client ──POST /orders──▸ orders.go ──┐ order + event, one transaction
//	         Idempotency-Key             ▼
//	                               outbox_event ──▸ relay ──▸ Kafka
//	                                     ▲                      │
//	                               charges.go ◂──────consumer───┘
//	                                  record + charge + event, one transaction
//
// orders.go and charges.go are what the service is for. service.go puts the parts together, parts.go stops them in
// their order; database.go, kafka.go, telemetry.go, http.go, probes.go and migrate.go are a part each.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	slog.SetDefault(log)
	if err := command(ctx, log, os.Args[1:]); err != nil {
		log.Error("the service has failed", slog.Any("error", err))
		os.Exit(1)
	}
}

// command runs what the arguments ask for.
func command(ctx context.Context, log *slog.Logger, args []string) error {
	switch strings.Join(args, " ") {
	case "":
		cfg, err := readConfig(os.LookupEnv)
		if err != nil {
			return err
		}
		return serve(ctx, log, cfg)
	case "migrate":
		url, err := readDatabaseURL(os.LookupEnv)
		if err != nil {
			return err
		}
		return migrate(ctx, log, url)
	default:
		return fmt.Errorf("unknown arguments %q: there is only \"migrate\"; the environment has all settings", args)
	}
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, log *slog.Logger, cfg config) error {
	s, err := newService(ctx, log, cfg)
	if err != nil {
		return err
	}
	err = s.run(ctx)
	return errors.Join(err, s.close(err))
}
