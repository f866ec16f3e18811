package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/internal/servers"
)

const storyDoc = `
billing tells a story: customers place some hundred orders, many of them twice. An order service, a relay, two billing processes, a
payment provider and a receipts service handle them, each with a database of its own. All of them are killed with SIGKILL again and
again, some between the database's COMMIT and what should follow it, and answers are lost. At the end it counts: each request must be
one order, one charge, one payment at the provider and one receipt.

It uses the Kafka of ` + servers.EnvKafkaBrokers + `, or else one that speaks the real protocol inside this process, and the PostgreSQL of
` + servers.EnvDatabaseURL + `, or else one that it finds or starts by itself. It works in schemas and topics of its own, which it removes.

The parts can be run alone, against a Kafka of yours: billing orders -h, billing relay -h, billing charges -h, billing provider -h,
billing receipts -h.`

func storyCommand(ctx context.Context, args []string, stdout io.Writer) error {
	s := story.Show{Options: story.Options{Out: stdout, Log: io.Discard}}
	fs := newFlags("billing", storyDoc)
	fs.IntVar(&s.Orders, "n", 1000, "`orders` that are placed")
	fs.IntVar(&s.Kills, "kills", 12, "`times` that a process is killed")
	fs.Float64Var(&s.Drop, "drop", 0.1, "`part` of the HTTP answers that are lost")
	fs.Uint64Var(&s.Seed, "seed", 0, "`seed` of the orders and the kills (default: random)")
	fs.DurationVar(&s.Work, "work", 3*time.Millisecond, "how long the provider takes for a payment")
	fs.IntVar(&s.Share, "share", 1, "`messages` that may share a transaction in the services that consume")
	naive := fs.Bool("naive", false,
		"tell the story of plain services that commit, publish and call as they can, and show the damage")
	careful := fs.Bool("careful", false,
		"tell the story of services that a careful team has written without einmal, and show what still goes wrong")
	fs.BoolVar(&s.Compare, "compare", false, "tell all three stories, and show them side by side")
	shown := fs.Bool("serve", false,
		"keep the story going until Ctrl-C, and show it at -listen: the console, /metrics, /readyz, /livez; it is counted then")
	addr := fs.String("listen", "127.0.0.1:8080", "`host:port` for -serve")
	fs.DurationVar(&s.Every, "every", 4*time.Second, "about how long it is between two kills with -serve")
	verbose := fs.Bool("v", false, "show what the processes log")
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	if err := errors.Join(inRange(fs, "n", s.Orders, 1, 100_000), inRange(fs, "kills", s.Kills, 0, 1000),
		inRange(fs, "share", s.Share, 1, 1000),
		isPart(fs, "drop", s.Drop)); err != nil {
		return err
	}
	switch {
	case *naive && *careful:
		return wrongUsage("billing: -naive and -careful exclude each other; -compare shows both")
	case *naive:
		s.Mode = story.Plain
	case *careful:
		s.Mode = story.Careful
	}
	if s.Every <= 0 {
		return wrongUsage("billing: -every is %v: make it 4s for example", s.Every)
	}
	if *shown {
		s.Serve = *addr
		if s.Mode != story.Einmal || s.Compare {
			return wrongUsage("billing: -serve shows the story of einmal alone: leave out -naive, -careful and -compare")
		}
	}
	s.Seed = cmp.Or(s.Seed, story.RandomSeed())
	if *verbose {
		s.Log = os.Stderr
	}
	return s.Run(ctx)
}
