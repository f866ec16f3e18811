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
)

const (
	customerCount = 8
	// ahead is how many orders may be placed that no consumer has been given: the whole chain has work for the whole story.
	ahead = 100
	// patience is how long a customer waits for an answer.
	patience = 5 * time.Second
	// tryAgain is how long a customer waits before the next try.
	tryAgain = 20 * time.Millisecond
)

// customers place the orders, and do not give up.
type customers struct {
	story     *Story
	client    *http.Client
	delivered *atomic.Int64 // orders that have reached a consumer
	placed    atomic.Int64
	sent      atomic.Int64 // HTTP requests
}

// orderAll returns when each request has been answered as often as its customer wants.
func (c *customers) orderAll(ctx context.Context) error {
	c.client = &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * customerCount}}
	defer c.client.CloseIdleConnections()
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
	for _, r := range c.story.requests {
		if c.waitFor(ctx) != nil {
			break
		}
		queue <- r
	}
	close(queue)
	busy.Wait()
	return context.Cause(ctx)
}

// waitFor waits until the consumers have caught up.
func (c *customers) waitFor(ctx context.Context) error {
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

// insist sends a request until it is answered.
func (c *customers) insist(ctx context.Context, r request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for {
		again, err := c.send(ctx, r, body)
		if !again {
			return err
		}
		if err := pause(ctx, tryAgain); err != nil {
			return err
		}
	}
}

// send sends a request once, and reports whether it must be sent again: there was no answer, or one that says so.
func (c *customers) send(ctx context.Context, r request, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.story.sockets[ordersService].addr+"/orders", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", r.Reference)
	c.sent.Add(1)
	answer, err := c.client.Do(req)
	if err != nil {
		return true, nil // that says nothing: the order may have been placed
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil, answer.StatusCode >= http.StatusInternalServerError, answer.StatusCode == http.StatusConflict:
		return true, nil
	case answer.StatusCode != http.StatusCreated:
		return false, fmt.Errorf("order %s was answered with %s: %s", r.Reference, answer.Status, text)
	}
	return false, nil
}
