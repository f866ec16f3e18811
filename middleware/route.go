package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/einmal-go/einmal/consumer"
)

// ErrNoRoute is wrapped by the permanent error for a message for which a Route has no handler.
var ErrNoRoute = errors.New("no handler for this type of event")

// RouteConfig is what can be chosen about Route. Nil means all defaults.
type RouteConfig struct {
	// Default handles messages whose name is none of the routes. By default they are failures, with a permanent error that
	// wraps ErrNoRoute: for a dead letter, or OnFailure. Filter with OtherType skips those of others.
	Default consumer.Handler
}

// Route returns a handler that chooses among handlers by the type of the event: by names it, as ByHeader does, and
// routes has the handler for each name, a Dedup with the handler's own type of event, or a chain of its own.
// consumer.New sees them all, as a function of your own that chooses cannot show.
//
// All routes have the same msg.Consumer: an event goes one way. by must be safe for concurrent use, and say the same of
// a message at any time.
func Route(by func(msg *consumer.Message) string, routes map[string]consumer.Handler,
	cfg *RouteConfig) consumer.Handler {
	r := &route{by: by, routes: map[string]consumer.Handler{}}
	if cfg != nil {
		r.otherwise = cfg.Default
	}
	var errs []error
	if by == nil {
		errs = append(errs, errors.New("middleware.Route: by is nil: pass a function that names the type of an event, ByHeader for example"))
	}
	if len(routes) == 0 {
		errs = append(errs, errors.New("middleware.Route: there are no routes: pass a handler for each type of event"))
	}
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		h := routes[name]
		if f, ok := h.(consumer.HandlerFunc); h == nil || ok && f == nil {
			errs = append(errs, fmt.Errorf("middleware.Route: the handler for %q is nil", name))
			continue
		}
		r.routes[name] = h
	}
	r.invalid = errors.Join(errs...)
	return r
}

// ByHeader returns a function for Route that names an event by a header, "ce_type" for example. Without the header the
// name is "".
func ByHeader(name string) func(msg *consumer.Message) string {
	return func(msg *consumer.Message) string {
		value, _ := msg.Header(name)
		return string(value)
	}
}

type route struct {
	by        func(msg *consumer.Message) string
	routes    map[string]consumer.Handler
	otherwise consumer.Handler
	invalid   error // what is wrong with the arguments
}

// Validate implements consumer.Validator.
func (r *route) Validate([]consumer.Handler) error { return r.invalid }

// Branches implements consumer.Brancher.
func (r *route) Branches() (branches [][]consumer.Handler) {
	for _, name := range slices.Sorted(maps.Keys(r.routes)) {
		branches = append(branches, linksOf(r.routes[name]))
	}
	if r.otherwise != nil {
		branches = append(branches, linksOf(r.otherwise))
	}
	return branches
}

// linksOf are the links of a handler that is not nil.
func linksOf(h consumer.Handler) []consumer.Handler {
	links, _ := consumer.Compose(h, nil)
	return links
}

// Handle implements consumer.Handler.
func (r *route) Handle(ctx context.Context, msg *consumer.Message) error {
	if r.invalid != nil {
		return r.invalid // not permanent: nothing is wrong with the message
	}
	if h := r.routes[r.by(msg)]; h != nil {
		return h.Handle(ctx, msg)
	}
	if r.otherwise != nil {
		return r.otherwise.Handle(ctx, msg)
	}
	return consumer.Permanent(fmt.Errorf("middleware.Route: %w, which is none of the %d that have one: add it, or set RouteConfig.Default", ErrNoRoute, len(r.routes)))
}
