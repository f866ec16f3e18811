package childtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
)

// Up is what a child says when it has begun.
const Up = "up"

// Main runs a child, whose orders are in the variable env as JSON, and ends its process: with 0 if run returns nil. Its
// ctx ends with SIGTERM. In a process that is no child it returns at once. run must see to it that the child does not
// outlive its parent: standard input ends then.
func Main[T any](env string, run func(ctx context.Context, orders T) error) {
	text, is := os.LookupEnv(env)
	if !is {
		return
	}
	if err := obey(text, run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func obey[T any](text string, run func(ctx context.Context, orders T) error) error {
	var orders T
	if err := json.Unmarshal([]byte(text), &orders); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	Say(Up)
	return run(ctx, orders)
}

// Say tells the parent a line.
func Say(line string) { fmt.Fprintln(os.Stdout, line) }

// Kills is how often a test kills: what a flag says, unless it is 0; else what the variable env says; else usual.
func Kills(t testing.TB, said int, env string, usual int) int {
	t.Helper()
	if said > 0 {
		return said
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv(env), strconv.Itoa(usual)))
	if err != nil || n < 1 {
		t.Fatalf("%s is no number of kills: %v", env, err)
	}
	return n
}
