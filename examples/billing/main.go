// Command billing is a shop in small, and the story of its hardest day.
//
//	go run ./examples/billing            # the story: everybody is killed again and again; every order is charged once
//	go run ./examples/billing -naive     # the same story without einmal, to see what it prevents
//	go run ./examples/billing -careful   # and of services that a careful team has written without it
//	go run ./examples/billing -compare   # all three, side by side
//	go run ./examples/billing -serve     # the story goes on until Ctrl-C: the console, metrics and probes at http://127.0.0.1:8080
//	go run ./examples/billing orders -h  # the parts, against a Kafka of yours: orders, relay, charges, provider, receipts
//
// # The flow
//
//	customer ──POST /orders──▸ orders ───┐            each arrow can break, each box can be killed, at any moment
//	           Idempotency-Key           │ order + event, one transaction
//	                                orders' database
//	                                     │ outbox_event
//	                                   relay ──▸ Kafka: orders.confirmed
//	                                                     │
//	            provider ◂──POST /charges── billing ◂────┘ record + charge + event, one transaction
//	  its own database     Idempotency-Key   │
//	                                billing's database
//	                                     │ outbox_event
//	                           billing's own relay ──▸ Kafka: payments.charged
//	                                                     │
//	                                       receipts ◂────┘ record + receipt, one transaction of bun
//	                                           │
//	                                receipts' database
//
// Each part is a file, to be read and copied: orders.go, relay.go, billing.go, provider.go, receipts.go. How each shuts
// down is part of it: no new work first, then what is in work, the pool last. ops.go is what operators see of a
// process, tracing.go the HTTP ends of the trace that leads from a request to its receipt. naive.go is how many begin,
// careful.go what a careful team writes by hand. Package story makes their life hard.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage: billing [flags]            the story; billing -h shows its flags
       billing orders [flags]     serve POST /orders, until Ctrl-C like all of these
       billing relay [flags]      send the confirmed orders to Kafka
       billing charges [flags]    charge the confirmed orders, and send what was charged to Kafka
       billing provider [flags]   serve POST /charges
       billing receipts [flags]   write a receipt of each charge
`

type command func(ctx context.Context, args []string, stdout io.Writer) error

// commands by their names. The first line of each one's documentation is in usage.
var commands = map[string]command{
	"":         storyCommand,
	"orders":   ordersCommand,
	"relay":    relayCommand,
	"charges":  billingCommand,
	"provider": providerCommand,
	"receipts": receiptsCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the end of the drain
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns the exit code: 0, 1 for a failure, 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	command, ok := commands[name]
	if !ok {
		fmt.Fprintf(stderr, "billing: there is no command %q\n%s", name, usage)
		return 2
	}
	err := command(ctx, args, stdout)
	var wrong *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case name != "" && ctx.Err() != nil && errors.Is(err, context.Canceled): // a part that was stopped while it started
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "billing: %v\n", err)
		return 2
	default:
		fmt.Fprintf(stderr, "billing: %v\n", err)
		return 1
	}
}
