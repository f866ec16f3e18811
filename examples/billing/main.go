// Command billing is a service in small that charges orders, and the story of its hardest day.
//
//	go run ./examples/billing            # the story: two workers, killed again and again; every order is charged once
//	go run ./examples/billing -naive     # the same story without einmal, to see what it prevents
//	go run ./examples/billing -compare   # both, side by side
//	go run ./examples/billing produce -h # the parts, against a Kafka of yours
//	go run ./examples/billing consume -h
//
// Read charge.go and consume.go first: they are the service, and all that there is to copy. Everything else makes its life hard.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage: billing [flags]            the story; billing -h shows its flags
       billing consume [flags]    charge the orders of a topic, until Ctrl-C
       billing produce [flags]    send orders to a topic
`

// commands by their names. The first line of each one's documentation is in usage.
var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) error{
	"":        storyCommand,
	"consume": consumeCommand,
	"produce": produceCommand,
	"worker":  workerCommand, // started by the story
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the end of the drain
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
	err := command(ctx, args, stdout, stderr)
	var wrong *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "billing: %v\n", err)
		return 2
	default:
		fmt.Fprintf(stderr, "billing: %v\n", err)
		return 1
	}
}
