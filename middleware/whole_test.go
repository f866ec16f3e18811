package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/middleware"
)

func topics(t consumer.Topic) consumer.Config {
	return consumer.Config{Brokers: []string{"localhost:9"}, Group: "g", Topics: map[string]consumer.Topic{"orders": t}}
}

// team is a helper as teams write it: several links by one function.
func team(next consumer.Handler) consumer.Handler {
	return middleware.Recover()(middleware.Timeout(time.Minute)(middleware.Timeout(2 * time.Minute)(next)))
}

// What a function puts around the next link is seen: its order, its repetition, its checks.
func TestLinksOfAHelperAreSeen(t *testing.T) {
	t.Parallel()
	missing := checkingStore{&store{check: func(context.Context) error { return errBase }}}
	dedup := middleware.Dedup(&store{}, noop, nil)
	for name, c := range map[string]struct {
		topic consumer.Topic
		says  string
	}{
		"in order": {consumer.Topic{Middleware: []consumer.Middleware{middleware.Retry(3, nil), team},
			Handler: dedup}, ""},
		"Retry inside Recover": {consumer.Topic{Middleware: []consumer.Middleware{team, middleware.Retry(3, nil)},
			Handler: dedup}, "Retry stands inside Timeout"},
		"two Retries": {consumer.Topic{Middleware: []consumer.Middleware{middleware.Retry(3, nil),
			func(next consumer.Handler) consumer.Handler {
				return middleware.Filter(middleware.OtherType("type", "a"), nil)(middleware.Retry(2, nil)(next))
			}}, Handler: dedup}, "two Retry links"},
		"in the handler": {consumer.Topic{Handler: middleware.Recover()(middleware.Retry(3, nil)(dedup))},
			"Retry stands inside Recover"},
		"no argument": {consumer.Topic{Handler: middleware.Recover()(middleware.Dedup[*tx](nil, noop, nil))},
			"the store is nil"},
		"a missing table": {consumer.Topic{Handler: middleware.Logging(nil,
			nil)(middleware.Recover()(middleware.Dedup(missing, noop, nil)))}, errBase.Error()},
		"a route's table": {consumer.Topic{Handler: middleware.Route(middleware.ByHeader("type"),
			map[string]consumer.Handler{"a": dedup, "b": middleware.Recover()(middleware.Dedup(missing, noop, nil))}, nil)},
			errBase.Error()},
		"a route's order": {consumer.Topic{Middleware: []consumer.Middleware{middleware.Recover()},
			Handler: middleware.Route(middleware.ByHeader("type"),
				map[string]consumer.Handler{"a": middleware.Retry(3, nil)(dedup)}, nil)}, "Retry stands inside Recover"},
		"a default's": {consumer.Topic{Middleware: []consumer.Middleware{middleware.Recover()},
			Handler: middleware.Route(middleware.ByHeader("type"), map[string]consumer.Handler{"a": dedup},
				&middleware.RouteConfig{Default: middleware.Retry(3, nil)(dedup)})}, "Retry stands inside Recover"},
		"a route for none": {consumer.Topic{Handler: middleware.Route(nil, map[string]consumer.Handler{"a": nil}, nil)},
			`the handler for "a" is nil`},
		"no routes": {consumer.Topic{Handler: middleware.Route(middleware.ByHeader("type"), nil, nil)},
			"there are no routes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			con, err := consumer.New(topics(c.topic))
			if err == nil {
				err = con.Check(t.Context())
			}
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	var got []string
	handles := func(name string) consumer.Handler {
		return consumer.HandlerFunc(func(context.Context, *consumer.Message) error { got = append(got, name); return nil })
	}
	routes := map[string]consumer.Handler{"a": handles("a"), "b": handles("b")}
	h := middleware.Route(middleware.ByHeader("type"), routes, nil)
	msg := func(kind ...string) *consumer.Message {
		m := message()
		for _, k := range kind {
			m.Headers = append(m.Headers, consumer.Header{Key: "type", Value: []byte(k)})
		}
		return m
	}
	for _, kind := range []string{"b", "a"} {
		if err := h.Handle(t.Context(), msg(kind)); err != nil {
			t.Error(err)
		}
	}
	for _, m := range []*consumer.Message{msg("s3cret"), msg()} {
		if err := h.Handle(t.Context(), m); !consumer.IsPermanent(err) || !errors.Is(err, middleware.ErrNoRoute) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("another type: %v", err)
		}
	}
	if err := middleware.Route(middleware.ByHeader("type"), routes,
		&middleware.RouteConfig{Default: handles("default")}).Handle(t.Context(), msg("c")); err != nil {
		t.Error(err)
	}
	if strings.Join(got, " ") != "b a default" {
		t.Errorf("handled by %v", got)
	}
}

// A Dedup behind a function that shows nothing is told of, once, with the remedy; one that is seen is not.
//
//nolint:paralleltest // it looks at the default logger
func TestLinksThatNobodySawAreTold(t *testing.T) {
	log := &bytes.Buffer{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	h := middleware.Dedup(&store{}, noop, nil)
	for _, c := range []struct {
		handler consumer.Handler
		want    int
	}{
		{h, 0}, {middleware.Recover()(h), 0},
		{consumer.HandlerFunc(middleware.Dedup(&store{}, noop, nil).Handle), 1},
	} {
		log.Reset()
		chains := consumertest.New(t, topics(consumer.Topic{Handler: c.handler}), nil)
		for _, id := range []string{"1", "2"} {
			if out := chains.Deliver(t.Context(), consumertest.Message("orders", id, nil)); out.Err != nil {
				t.Error(out)
			}
		}
		if n := strings.Count(log.String(), "consumer.New has not seen"); n != c.want || c.want > 0 &&
			!strings.Contains(log.String(), "middleware.Route") {
			t.Errorf("%T: told %d times: %s", c.handler, n, log)
		}
	}
	log.Reset()
	handled(t.Context(), middleware.Dedup(&store{}, noop, nil), &consumer.Message{Topic: "orders", Consumer: "billing",
		EventID: "1"})
	if log.Len() > 0 {
		t.Errorf("of a message that no runner has made: %s", log)
	}
}

// The standard chain has a legal order with everything in it, counts attempts, and gives up into the table.
func TestStandard(t *testing.T) {
	t.Parallel()
	s, c := &store{}, &cemetery{}
	silent := slog.New(slog.DiscardHandler)
	attempts := 0
	fails := func(context.Context, *tx, *consumer.Message) error { attempts++; return errBase }
	for name, cfg := range map[string]*middleware.StandardConfig[*tx]{
		"defaults": nil,
		"all": {Tracing: &middleware.TracingConfig{}, Logging: &middleware.LoggingConfig{}, Attempts: 2,
			Timeout: time.Minute, DeadLetters: c, CrashLoop: middleware.CrashLoop(&starts{}, nil),
			Dedup: &middleware.DedupConfig{Window: time.Hour}, Logger: silent},
	} {
		if _, err := consumer.New(topics(middleware.Standard(s, cfg).Topic(fails))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	out := consumertest.Run(t, middleware.Standard(s, &middleware.StandardConfig[*tx]{DeadLetters: c,
		Logger: silent}).Topic(fails), consumertest.Message("orders", "e1", nil))
	if out.Err != nil || attempts != 5 || len(c.dead) != 1 {
		t.Errorf("%v: %d attempts, %d dead letters", out, attempts, len(c.dead))
	}
	attempts = 0
	stops := middleware.Standard(s, &middleware.StandardConfig[*tx]{Attempts: 3, Logger: silent}).Topic(fails)
	stops.OnFailure = consumer.Stop
	if out := consumertest.Run(t, stops, consumertest.Message("orders", "e2", nil)); !consumer.IsGaveUp(out.Err) ||
		attempts != 3 {
		t.Errorf("%v: %d attempts", out, attempts)
	}
	if _, err := consumer.New(topics(middleware.Standard[*tx](nil, nil).Topic(fails))); err == nil ||
		!strings.Contains(err.Error(), "the store is nil") {
		t.Errorf("without a store: %v", err)
	}
}
