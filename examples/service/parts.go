package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// part is a part of the service. run returns nil after its ctx has ended and all that it had begun is finished.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// runParts runs the parts side by side until ctx ends or one of them returns. Then it stops them in the order of the
// list: a part is told to stop when the one before it has returned, so that what a part leaves behind is still taken
// on by those behind it.
func runParts(ctx context.Context, log *slog.Logger, parts ...part) error {
	ctx, stopAll := context.WithCancel(ctx)
	defer stopAll()
	type running struct {
		stop  context.CancelFunc
		ended chan error
	}
	list := make([]running, len(parts))
	for i, p := range parts {
		partCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it ends when it is its turn
		defer stop()
		list[i] = running{stop, make(chan error, 1)}
		go func() {
			defer stopAll() // a service without one of its parts must not go on
			err := p.run(partCtx)
			if err == nil && partCtx.Err() == nil {
				err = errors.New("it has ended by itself")
			}
			list[i].ended <- err
		}()
	}
	<-ctx.Done()
	var errs []error
	for i, p := range parts {
		log.Info("stopping", slog.String("part", p.name))
		list[i].stop()
		if err := <-list[i].ended; err != nil {
			log.Error("a part has failed", slog.String("part", p.name), slog.Any("error", err))
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}
