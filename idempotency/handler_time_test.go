package idempotency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A handler does not run whose time is over when its transaction has begun, or whose client has gone.
func TestTheTimeIsOverBeforeTheHandlerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			within time.Duration // FinishWithin
			wait   time.Duration
			gone   bool
			want   error
		}{
			"in time":                               {0, time.Second, false, nil},
			"in time, to be finished":               {time.Minute, time.Second, false, nil},
			"over":                                  {0, 3 * time.Second, false, errNotBegun},
			"over, to be finished":                  {time.Minute, 3 * time.Second, false, errNotBegun},
			"the client has gone":                   {time.Minute, time.Second, true, context.Canceled},
			"the client has gone, the time is over": {time.Minute, 3 * time.Second, true, errNotBegun},
		} {
			h := &Handler[int]{cfg: HandlerConfig{BeginTimeout: 2 * time.Second, FinishWithin: c.within}}
			client, leave := context.WithCancel(t.Context())
			s := h.begin(client)
			time.Sleep(c.wait)
			if c.gone {
				leave()
			}
			synctest.Wait()
			if err := s.begun(); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			_ = s.end(nil)
			leave()
		}
	})
}
