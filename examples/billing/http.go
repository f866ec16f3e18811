package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func addListen(fs *flag.FlagSet, addr string) *string {
	return fs.String("listen", addr, "`host:port` to serve at, or fd:3 for a socket that was inherited")
}

// listen opens the port, or takes over the one that this process was given.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	number, inherited := strings.CutPrefix(addr, "fd:")
	if !inherited {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	}
	fd, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w: give fd: and a number", addr, err)
	}
	file := os.NewFile(uintptr(fd), addr)
	defer file.Close() // FileListener has made a copy
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w: it is no socket that listens", addr, err)
	}
	return l, nil
}

// requestBudget is how long requests in work may take to finish after SIGTERM. It is below the time that the platform
// leaves between SIGTERM and SIGKILL (Kubernetes: 30 s), with room for what comes after it.
const requestBudget = 8 * time.Second

// serve answers requests at the listener, which it closes, until ctx ends. Then it takes no more, and waits for those
// that are in work; after requestBudget it cuts them off: their contexts end, and their transactions are rolled back.
// When it returns, the pool may be closed.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestBudget)
		defer cancel()
		err := server.Shutdown(ctx)
		stopped <- errors.Join(err, server.Close())
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	return <-stopped
}
