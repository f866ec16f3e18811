package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/middleware"
)

func explode(v any) consumer.Handler {
	return consumer.HandlerFunc(func(context.Context, *consumer.Message) error { panic(v) })
}

func TestRecover(t *testing.T) {
	t.Parallel()
	for _, v := range []any{"boom", errBase, 4711, http.ErrAbortHandler} {
		err := middleware.Recover()(explode(v)).Handle(t.Context(), message())
		var p *consumer.Panic
		if !errors.As(err, &p) || p.Value != v || !strings.Contains(string(p.Stack), "recover_test.go") {
			t.Errorf("panic(%v): got %v, want a *consumer.Panic with the stack of the panic", v, err)
		}
		if consumer.IsPermanent(err) {
			t.Errorf("panic(%v) is permanent", v)
		}
	}
}

func TestRecoverPanicNil(t *testing.T) {
	t.Parallel()
	err := middleware.Recover()(explode(nil)).Handle(t.Context(), message())
	if _, ok := errors.AsType[*runtime.PanicNilError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestRecoverPassesOthers(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errBase, consumer.Permanent(errBase)} {
		if err := middleware.Recover()(returning(want)).Handle(t.Context(), message()); err != want { //nolint:errorlint // as it is
			t.Errorf("got %v, want %v as it is", err, want)
		}
	}
}

func TestRecoverLetsGoexitPass(t *testing.T) {
	t.Parallel()
	returned := make(chan bool)
	go func() {
		ok := false
		defer func() { returned <- ok }()
		_ = middleware.Recover()(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			runtime.Goexit()
			return nil
		})).Handle(t.Context(), message())
		ok = true
	}()
	if <-returned {
		t.Error("Goexit was turned into a return")
	}
}
