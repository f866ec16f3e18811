// Command bench measures einmal beside the plain way, on the same servers and in the same run. See the README of this
// module.
//
//	go run ./cmd/bench dedup     # the full chain: one transaction per message
//	go run ./cmd/bench repeat    # what a repeated message costs
//	go run ./cmd/bench consume   # no database: what the runner itself costs
//	go run ./cmd/bench observe   # what tracing and metrics cost
//	go run ./cmd/bench janitor   # what deleting old records costs a consumer
//	go run ./cmd/bench console   # what a console costs that somebody looks at
//	go run ./cmd/bench audit     # how long an audit of a large topic takes, and its memory
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: bench dedup [flags]     the full chain with a database, beside a plain loop
       bench repeat [flags]    messages that are recorded already, as after a crash
       bench consume [flags]   an empty handler without a database, beside a bare consumer group
       bench work [flags]      10 ms of work per message: by key, and without order
       bench groups [flags]    many messages in one transaction, beside loops by hand
       bench stores [flags]    the stores alone, beside pgbench
       bench outbox [flags]    the outbox's relay, beside the plain loop; and how soon an event is sent
       bench idempotency [flags]  requests with an Idempotency-Key, beside the same handler without it
       bench observe [flags]   the full chain and an empty handler, with and without tracing and metrics
       bench janitor [flags]   the full chain beside a janitor that works off a backlog
       bench console [flags]   the full chain beside a console that somebody looks at, with 10 million dead letters
       bench audit [flags]     how long an audit of a large topic takes, and how much memory
`

var benchmarks = map[string]func(ctx context.Context, args []string) error{
	"dedup":   dedup,
	"repeat":  repeat,
	"consume": consume,
	"work":    work,
	"groups":  groups,
	"stores":  stores,
	"outbox":  outboxBench,
	"janitor": sweeps,
	"observe": observe,
	"audit":   auditBench,
	"console": consoleBench,

	"idempotency": idempotencyBench,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 || benchmarks[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	err := benchmarks[args[0]](ctx, args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
}
