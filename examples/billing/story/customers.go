package story

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

const (
	// customerCount is how many order at a time. One whose two requests meet waits for a second.
	customerCount = 12
	// ahead is how many orders may be placed that no consumer has been given: the whole chain has work for the whole
	// story.
	ahead = 100
	// patience is how long a customer waits for an answer.
	patience = 5 * time.Second
	// tryAgain is about how long a customer waits before the next try.
	tryAgain = 20 * time.Millisecond
	// insistence is how long a customer tries.
	insistence = 2 * time.Minute
)

// customers place the orders, and do not give up.
type customers struct {
	story     *Story
	client    *http.Client
	delivered *atomic.Int64 // orders that have reached a consumer
	made      atomic.Int64  // requests
	placed    atomic.Int64  // of them: answered
	sent      atomic.Int64  // HTTP requests
	replayed  atomic.Int64  // answers that had been given before
}

// orderAll returns when each request has been answered as often as its customer wants. In a story that is shown they go
// on for as long as until is not done.
func (c *customers) orderAll(ctx, until context.Context) error {
	connections := &http.Transport{MaxIdleConnsPerHost: 2 * customerCount}
	defer connections.CloseIdleConnections()
	c.client = &http.Client{Transport: idempotency.NewTransport(c.counting(connections), &idempotency.TransportConfig{
		RequireKey: true, Attempts: 1000, Budget: insistence, AttemptTimeout: patience, MinBackoff: tryAgain,
		MaxBackoff: 10 * tryAgain,
	})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan request)
	var busy sync.WaitGroup
	for range customerCount {
		busy.Go(func() {
			for r := range queue {
				if err := c.order(ctx, r); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; c.story.Serve != "" || i < c.story.Orders; i++ {
		if c.waitFor(ctx, until) != nil {
			break
		}
		c.made.Add(1)
		queue <- makeRequest(i, c.story.Seed)
	}
	close(queue)
	busy.Wait()
	return context.Cause(ctx)
}

// shownPace is the time between two orders of a story that is shown: slow enough to leave the machine to others.
const shownPace = 50 * time.Millisecond

// waitFor waits until the consumers have caught up.
func (c *customers) waitFor(ctx, until context.Context) error {
	if c.story.Serve != "" {
		return cmp.Or(pause(until, shownPace), ctx.Err())
	}
	return poll(ctx, func() (bool, error) { return c.placed.Load()-c.delivered.Load() < ahead, ctx.Err() })
}

// order places one order, once or as often as its customer does.
func (c *customers) order(ctx context.Context, r request) error {
	defer c.placed.Add(1)
	if r.again == once {
		return c.insist(ctx, r)
	}
	if r.again == afterward {
		return cmp.Or(c.insist(ctx, r), c.insist(ctx, r))
	}
	both := make(chan error)
	go func() { both <- c.insist(ctx, r) }()
	return errors.Join(c.insist(ctx, r), <-both)
}

// insist sends a request until it is answered: the client does, with the same key each time.
func (c *customers) insist(ctx context.Context, r request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx = idempotency.WithKey(ctx, idempotency.Key("order", r.Reference))
	url := "http://" + c.story.sockets[ordersService].addr + "/orders"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("order %s was answered with %s: %s", r.Reference, answer.Status, text)
	}
	if answer.Header.Get(idempotency.ReplayedHeader) != "" {
		c.replayed.Add(1)
	}
	return nil
}

// counting counts what is sent.
func (c *customers) counting(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c.sent.Add(1)
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
