package idempotencytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

func (s *suite[Tx]) inProgress() {
	if s.Waits {
		s.waits()
		return
	}
	runs, end := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, _, err := s.Store.Once(s.Context(), request("key", "one"), func(ctx context.Context, tx Tx) (idempotency.Answer,
			error) {
			err := s.Write(ctx, tx, "key")
			close(runs)
			<-end
			return created("1"), err
		})
		first <- err
	}()
	<-runs
	_, _, err := s.Other.Once(s.Context(), request("key", "one"), s.effect("key", created("2")))
	if !errors.Is(err, idempotency.ErrInProgress) {
		s.Errorf("Once() of a request in progress = %v, want ErrInProgress", err)
	}
	_, _, err = s.Other.Once(s.Context(), request("key", "another"), s.effect("key", created("2")))
	if !errors.Is(err, idempotency.ErrOtherRequest) && !errors.Is(err, idempotency.ErrInProgress) { // the store need not know
		s.Errorf("Once() of another request while one is in progress = %v, want ErrOtherRequest or ErrInProgress", err)
	}
	s.wantFresh(request("other key", ""), "other")
	close(end)
	if err := <-first; err != nil {
		s.Fatal(err)
	}
	s.wantReplay(request("key", "one"), "1")
	s.wantEffects("key", 1)
}

// waits does so for a store whose requests wait.
func (s *suite[Tx]) waits() {
	runs, end := make(chan struct{}), make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		_, _, err := s.Store.Once(s.Context(), request("key", "one"), func(ctx context.Context, tx Tx) (idempotency.Answer,
			error) {
			err := s.Write(ctx, tx, "key")
			close(runs)
			<-end
			return created("1"), err
		})
		if err != nil {
			s.Error(err)
		}
	})
	<-runs
	both.Go(func() {
		answer, replayed, err := s.Other.Once(s.Context(), request("key", "one"), s.effect("key", created("2")))
		if err != nil || !replayed || string(answer.Body) != "1" {
			s.Errorf("Once() behind another one: %q, replayed %v, %v", answer.Body, replayed, err)
		}
	})
	time.Sleep(20 * time.Millisecond) // so that it waits, most of the time
	close(end)
	both.Wait()
	s.wantEffects("key", 1)
}

func (s *suite[Tx]) manyAtOnce() {
	const rounds, requests = 10, 20
	for round := range rounds {
		AtOnce(s.T, s.Harness, fmt.Sprintf("round %d", round), requests)
	}
}

func (s *suite[Tx]) expires() {
	short := request("key", "one")
	short.Keep = time.Millisecond
	if _, _, err := s.Store.Once(s.Context(), short, s.effect("key", created("1"))); err != nil {
		s.Fatal(err)
	}
	again := request("key", "another request, which is none of the first one's business")
	s.wait("the answer expires", func() bool {
		answer, replayed, err := s.Other.Once(s.Context(), again, s.effect("key", created("2")))
		if errors.Is(err, idempotency.ErrOtherRequest) {
			return false
		}
		if err != nil || replayed || string(answer.Body) != "2" {
			s.Fatalf("Once() after the expiry: %q, replayed %v, %v", answer.Body, replayed, err)
		}
		return true
	})
	s.wantReplay(again, "2")
	s.wantEffects("key", 2)
}

func (s *suite[Tx]) wait(what string, condition func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// clientGone cuts a client off while its handler runs, which takes no notice.
func (s *suite[Tx]) clientGone() {
	runs, returned := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	handler, err := idempotency.NewHandler(s.Store,
		func(ctx context.Context, tx Tx, w http.ResponseWriter, _ *http.Request) error {
			if err := s.Write(ctx, tx, "key"); err != nil {
				return err
			}
			if calls.Add(1) == 1 {
				close(runs)
				<-ctx.Done()
			}
			w.WriteHeader(http.StatusCreated)
			return nil
		}, idempotency.HandlerConfig{SingleTenant: true})
	if err != nil {
		s.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if calls.Load() == 1 {
			close(returned)
		}
	}))
	defer server.Close()

	ctx, leave := context.WithCancel(s.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := post(ctx, server.URL, "key")
		gone <- err
	}()
	<-runs
	leave()
	if err := <-gone; err == nil {
		s.Error("the client that went away has an answer")
	}
	<-returned
	s.wantEffects("key", 0)
	s.wait("the repetition takes effect", func() bool {
		status, err := post(s.Context(), server.URL, "key")
		if err != nil || status != http.StatusCreated && status != http.StatusConflict {
			s.Fatalf("the repetition: %d, %v", status, err)
		}
		return status == http.StatusCreated
	})
	s.wantEffects("key", 1)
}

func post(ctx context.Context, url, key string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
