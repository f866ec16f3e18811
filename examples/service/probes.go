package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/status"
)

// probes answers the platform, Prometheus and operators, at an address of its own that customers do not reach.
//
//	/livez    the process answers. It asks nothing else: a restart cures neither Kafka nor the database
//	/readyz   requests may come: see notReady. What the consumer is without all the same stands in the answer
//	/metrics  for Prometheus
//	/status   for einmal status
func (s *service) probes(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := s.notReady(ctx); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		if problem := s.consumer.Status().Problem(); problem != "" {
			fmt.Fprintf(w, "ready; consumer: %s\n", problem)
		}
	})
	mux.Handle("GET /metrics", s.telemetry.metrics)
	mux.Handle("GET /status", status.Handler(status.Sections{
		"consumer": func(context.Context) (any, error) { return s.consumer.Status(), nil },
		"outbox":   func(context.Context) (any, error) { return s.relay.Status(), nil },
		"dead":     func(ctx context.Context) (any, error) { return deadletter.Summarize(ctx, s.dead) },
	}, nil))
	return mux
}

// notReady says why no requests should come, or is "".
//
// Until the consumer has had its first assignment, the process is not ready, so that a rollout stops at a version
// that cannot consume. From then on Kafka's troubles are not those of requests: the outbox takes their events while
// Kafka is away, so the consumer's Ready is left to the alerts. A service without HTTP asks Consumer.Ready each time
// instead.
func (s *service) notReady(ctx context.Context) string {
	switch {
	case ctx.Err() != nil:
		return "stopping"
	case s.joined.Load():
		return ""
	}
	if why := s.consumer.Status().NotReady; why != "" {
		return "consumer: " + why
	}
	s.joined.Store(true)
	return ""
}
