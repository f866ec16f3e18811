package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// httpServer answers requests at the listener, which it closes, until ctx ends. Then it takes no more, and waits for
// those in work; after finish it cuts them off: their contexts end, and their transactions are rolled back.
func httpServer(l net.Listener, h http.Handler, finish time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		server := &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			IdleTimeout:       2 * time.Minute, // longer than a load balancer's, which then is the one to close connections
		}
		stopped := make(chan error, 1)
		stop := context.AfterFunc(ctx, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
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
}
