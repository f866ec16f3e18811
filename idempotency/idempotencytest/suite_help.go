package idempotencytest

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

type suite[Tx any] struct {
	*testing.T
	Harness[Tx]
}

const patience = time.Minute

// request is one whose fingerprint is that of the text.
func request(key, text string) idempotency.Request {
	return idempotency.Request{Scope: "tenant", Key: key, Fingerprint: sha256.Sum256([]byte(text)), Keep: time.Hour}
}

func created(body string) idempotency.Answer {
	return idempotency.Answer{Status: http.StatusCreated, Header: http.Header{"Location": {"/orders/" + body}},
		Body: []byte(body)}
}

// effect writes an effect of the key's name, and answers with the body.
func (s *suite[Tx]) effect(name string, answer idempotency.Answer) func(context.Context, Tx) (idempotency.Answer,
	error) {
	return func(ctx context.Context, tx Tx) (idempotency.Answer, error) { return answer, s.Write(ctx, tx, name) }
}

// wantFresh runs the request, which must not have been answered before. A connection that was given up may hold the key
// for a moment.
func (s *suite[Tx]) wantFresh(req idempotency.Request, body string) {
	s.Helper()
	answer, replayed, err := s.Store.Once(s.Context(), req, s.effect(req.Key, created(body)))
	for deadline := time.Now().Add(patience); errors.Is(err, idempotency.ErrInProgress) && time.Now().Before(deadline); {
		answer, replayed, err = s.Store.Once(s.Context(), req, s.effect(req.Key, created(body)))
	}
	if err != nil || replayed || string(answer.Body) != body {
		s.Fatalf("Once() = %d %q, replayed %v, %v; want a fresh %q", answer.Status, answer.Body, replayed, err, body)
	}
}

// wantReplay sends the request to the other store, which must have an answer.
func (s *suite[Tx]) wantReplay(req idempotency.Request, body string) {
	s.Helper()
	answer, replayed, err := s.Other.Once(s.Context(), req, func(context.Context, Tx) (idempotency.Answer, error) {
		return created("again"), errors.New("it runs again")
	})
	if err != nil || !replayed || string(answer.Body) != body {
		s.Fatalf("Once() = %d %q, replayed %v, %v; want a replay of %q", answer.Status, answer.Body, replayed, err, body)
	}
}

func (s *suite[Tx]) wantEffects(name string, want int) {
	s.Helper()
	if n, err := s.Effects(s.Context(), name); err != nil || n != want {
		s.Errorf("%d effects of %s, %v, want %d", n, name, err, want)
	}
}

// wantNothing says that the request may come as if it had never been there.
func (s *suite[Tx]) wantNothing(req idempotency.Request) {
	s.Helper()
	s.wantEffects(req.Key, 0)
	s.wantFresh(req, "after all")
	s.wantEffects(req.Key, 1)
}
