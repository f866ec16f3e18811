package idempotency

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// endless is a body that has no end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > 100*drainLimit {
		return 0, io.EOF // the test would hang
	}
	return len(p), nil
}

func (e *endless) Close() error { return nil }

// An answer that is not handed over is read only so far as a new connection would cost.
func TestAnAnswerIsDrainedToALimit(t *testing.T) {
	t.Parallel()
	body := &endless{}
	a := &attempt{res: &http.Response{Body: body}, timer: time.NewTimer(time.Hour), cancel: func(error) {}}
	_, a.cancel = context.WithCancelCause(t.Context())
	a.drain()
	if body.read < drainLimit || body.read > 2*drainLimit {
		t.Errorf("%d bytes were read, want %d", body.read, drainLimit)
	}
}
