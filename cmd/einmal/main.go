// Command einmal is for operators: it prints, applies and checks the tables that einmal's stores need, looks after dead
// letters and the outbox, shows the status of a running service, a consumer group and a record of a topic, and says
// what a replay would do.
//
//	go install github.com/einmal-go/einmal/cmd/einmal@latest
//	einmal schema print -db postgres dedup
//	EINMAL_DATABASE_URL=postgres://... einmal schema check dedup
//	EINMAL_DATABASE_URL=postgres://... einmal dead list -consumer billing-service/orders.confirmed -since 24h
//	einmal status http://billing:8080/status
//	EINMAL_KAFKA_BROKERS=kafka:9092 einmal group billing-service
//
// It exits with 0 if all is well, with 1 if the answer is no or it failed, and with 2 if it was called in a wrong way.
// Each command explains itself with -h. No output has the password of a URL.
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

	"github.com/einmal-go/einmal/internal/redact"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code := run(ctx, &environment{os.Stdout, os.Stderr, os.Getenv, os.Stdin}, os.Args[1:])
	stop()
	os.Exit(code)
}

// environment is what a command has of its process.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	stdin          io.Reader // nil if nobody can answer
}

// Exit codes.
const (
	exitOK    = 0
	exitNo    = 1
	exitUsage = 2 // and that of a command that could not look
)

// maxErrorText is how much of an error is printed, in bytes.
const maxErrorText = 16 << 10

// errNo is the error of a command that has said by itself that the answer is no.
var errNo = errors.New("no")

// usageError is the error of a command that was called in a wrong way.
type usageError struct{ says string }

func (e *usageError) Error() string { return e.says }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// run runs the command that args name, and answers with the exit code.
func run(ctx context.Context, env *environment, args []string) int {
	err := dispatch(ctx, env, args)
	var usage *usageError
	var unable *unableError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage), errors.As(err, &unable):
		sayError(env, err)
		return exitUsage
	case !errors.Is(err, errNo):
		sayError(env, err)
	}
	return exitNo
}

func sayError(env *environment, err error) {
	fmt.Fprintf(env.stderr, "einmal: %s\n",
		redact.Lines(redact.Text(strings.TrimPrefix(err.Error(), "einmal: "), maxErrorText)))
}
