package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

// until asks ready every 20 ms until it answers nil. It gives up after startTimeout, when ctx is done, or when gone is
// closed: then it answers what ended says.
func until(ctx context.Context, gone <-chan struct{}, ended func() error, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready within %v", startTimeout))
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return ended()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freePort finds a TCP port between 20000 and 32000 at which nobody listens: below the ranges from which kernels take
// ports for outgoing connections and Docker takes random ones. Another process may still be faster: see onFreePort.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	for range 100 {
		port := strconv.Itoa(20000 + rand.IntN(12000)) //nolint:gosec // a guess at a free port, not a secret
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			return port, l.Close()
		}
	}
	return "", errors.New("no free TCP port between 20000 and 32000")
}

// onFreePort runs start with a free port, and again with another one when somebody else took the port in between.
func onFreePort[S any](ctx context.Context, start func(port string) (S, error)) (server S, err error) {
	for range 5 {
		var port string
		if port, err = freePort(ctx); err != nil {
			return server, err
		}
		if server, err = start(port); err == nil || !portTaken(err) {
			return server, err
		}
	}
	return server, err
}

// portTaken tells the words of PostgreSQL, of Java and of Docker for a port that is in use.
func portTaken(err error) bool {
	s := strings.ToLower(err.Error())
	return strings.Contains(s, "address already in use") || strings.Contains(s, "port is already allocated")
}

// joinClose cleans up after err and answers with it, and with what went wrong in cleaning up.
func joinClose(err error, closeServer func() error) error {
	return errors.Join(err, closeServer())
}
