package idempotencytest

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
)

func (s *suite[Tx]) replays() {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, answer := range map[string]idempotency.Answer{
		"plain":  created("1"),
		"empty":  {Status: http.StatusNoContent},
		"binary": {Status: http.StatusOK, Body: all, Header: http.Header{"Content-Type": {"application/octet-stream"}}},
		"headers": {Status: http.StatusSeeOther, Header: http.Header{"Link": {"</a>; rel=a", "</b>; rel=b"},
			"Location": {"/caf\xe9?q=\xc3\xa4"}, "Etag": {`"x"`}}},
		"large": {Status: http.StatusOK, Body: []byte(strings.Repeat("0123456789", 100_000))},
	} {
		req := request(name, "")
		first, replayed, err := s.Store.Once(s.Context(), req, s.effect(name, answer))
		if err != nil || replayed || !reflect.DeepEqual(first, answer) {
			s.Fatalf("%s: Once() = %d, replayed %v, %v", name, first.Status, replayed, err)
		}
		again, replayed, err := s.Other.Once(s.Context(), req, func(context.Context, Tx) (idempotency.Answer,
			error) {
			panic("it runs again")
		})
		if err != nil || !replayed {
			s.Fatalf("%s: replayed %v, %v", name, replayed, err)
		}
		if again.Status != answer.Status || string(again.Body) != string(answer.Body) ||
			len(again.Header) != len(answer.Header) {
			s.Errorf("%s: replayed %d %q, %d bytes, want %d %q, %d bytes", name, again.Status, again.Header, len(again.Body),
				answer.Status, answer.Header, len(answer.Body))
		}
		for field, values := range answer.Header {
			if !reflect.DeepEqual(again.Header[field], values) {
				s.Errorf("%s: %s is %q, want %q", name, field, again.Header[field], values)
			}
		}
		s.wantEffects(name, 1)
	}
}

func (s *suite[Tx]) rollsBack() {
	sentinel := errors.New("no")
	req := request("error", "")
	_, _, err := s.Store.Once(s.Context(), req, func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
		return created("1"), errors.Join(s.Write(ctx, tx, req.Key), sentinel)
	})
	if !errors.Is(err, sentinel) {
		s.Errorf("Once() = %v, want the function's error", err)
	}
	s.wantNothing(req)

	req = request("panic", "")
	func() {
		defer func() {
			if got := recover(); got != "mine" {
				s.Errorf("recovered %v, want the function's panic", got)
			}
		}()
		_, _, _ = s.Store.Once(s.Context(), req, func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
			if err := s.Write(ctx, tx, req.Key); err != nil {
				s.Error(err)
			}
			panic("mine")
		})
	}()
	s.wantNothing(req)

	for _, drop := range []bool{false, true} {
		req = request("cancelled", "")
		if drop {
			req = request("cancelled and dropped", "")
		}
		ctx, cancel := context.WithCancel(s.Context())
		_, _, err = s.Store.Once(ctx, req, func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
			answer := created("1")
			answer.DropWrites = drop
			err := s.Write(ctx, tx, req.Key)
			cancel()
			return answer, err // as if it had not noticed
		})
		if !errors.Is(err, context.Canceled) {
			s.Errorf("Once() = %v, want context.Canceled", err)
		}
		s.wantNothing(req)
	}
}

func (s *suite[Tx]) breaks() {
	req := request("ended", "")
	_, _, err := s.Store.Once(s.Context(), req, func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
		if err := s.Write(ctx, tx, "before the end"); err != nil {
			return idempotency.Answer{}, err
		}
		_ = s.End(ctx, tx)
		return created("1"), nil
	})
	if !errors.Is(err, dedupstore.ErrTxEnded) {
		s.Errorf("Once() = %v, want ErrTxEnded", err)
	}
	s.wantNothing(req)

	if s.FailureStays {
		return
	}
	req = request("failed", "")
	_, _, err = s.Store.Once(s.Context(), req, func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
		err := s.Write(ctx, tx, req.Key)
		_ = s.Fail(ctx, tx)
		return created("1"), err
	})
	if err == nil || !strings.Contains(err.Error(), "a statement failed") {
		s.Errorf("Once() = %v, want that a statement failed", err)
	}
	s.wantNothing(req)
}

func (s *suite[Tx]) drops() {
	for _, fails := range []bool{false, true} {
		req := request("dropped", "")
		if fails {
			req = request("dropped after a failure", "")
		}
		answer := idempotency.Answer{Status: http.StatusPaymentRequired, Body: []byte("no money"), DropWrites: true}
		_, replayed, err := s.Store.Once(s.Context(), req, func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
			if err := s.Write(ctx, tx, req.Key); err != nil {
				return answer, err
			}
			if fails && s.Fail(ctx, tx) == nil {
				s.Error("the statement that fails does not")
			}
			return answer, nil
		})
		if err != nil || replayed {
			s.Fatalf("Once(): replayed %v, %v", replayed, err)
		}
		s.wantReplay(req, "no money")
		s.wantEffects(req.Key, 0)
	}
}

func (s *suite[Tx]) refusesOthers() {
	req := request("key", "one")
	s.wantFresh(req, "1")
	_, _, err := s.Other.Once(s.Context(), request("key", "another"), s.effect("key", created("2")))
	if !errors.Is(err, idempotency.ErrOtherRequest) || dedupstore.ClassOf(err) != dedupstore.Permanent {
		s.Errorf("Once() = %v (%v), want ErrOtherRequest", err, dedupstore.ClassOf(err))
	}
	s.wantReplay(req, "1")
	s.wantEffects("key", 1)
}

func (s *suite[Tx]) separates() {
	for _, scope := range []string{"", "tenant", "Tenant", "tenant "} {
		for _, key := range []string{"key", "KEY", "key ", `"quoted"`, `back\slash`, "ke", "y"} {
			req := request(key, scope)
			req.Scope = scope
			if _, replayed, err := s.Store.Once(s.Context(), req, s.effect("any", created(scope+key))); err != nil || replayed {
				s.Errorf("%q %q: replayed %v, %v", scope, key, replayed, err)
			}
			s.wantReplay(req, scope+key)
		}
	}
	s.wantEffects("any", 4*7)
}

func (s *suite[Tx]) refusesInvalid() {
	for name, change := range map[string]func(*idempotency.Request){
		"no key":       func(r *idempotency.Request) { r.Key = "" },
		"long key":     func(r *idempotency.Request) { r.Key = strings.Repeat("k", 256) },
		"long scope":   func(r *idempotency.Request) { r.Scope = strings.Repeat("s", 256) },
		"NUL":          func(r *idempotency.Request) { r.Key = "a\x00b" },
		"not UTF-8":    func(r *idempotency.Request) { r.Scope = "\xff" },
		"kept for 0 s": func(r *idempotency.Request) { r.Keep = 0 },
	} {
		req := request("secret", "")
		change(&req)
		_, _, err := s.Store.Once(s.Context(), req, s.effect("invalid", created("1")))
		if !errors.Is(err, dedupstore.ErrInvalidKey) || strings.Contains(err.Error(), "secret") {
			s.Errorf("%s: Once() = %v, want ErrInvalidKey", name, err)
		}
	}
	s.wantEffects("invalid", 0)

	long := request(strings.Repeat("k", 255), "")
	long.Scope = strings.Repeat("s", 255)
	s.wantFresh(long, "1")
	s.wantReplay(long, "1")
}
