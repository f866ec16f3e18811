package janitor_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/schema"
)

// unreachable is a database that nobody answers for.
type unreachable struct{}

func (unreachable) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.New("connection refused")
}
func (unreachable) Driver() sqldriver.Driver { return nil }

// A sweep that failed is repeated after 1 s, 2 s, 4 s and so on, give or take a half, whatever the interval is: neither
// at once, nor in an hour.
func TestFailedSweepsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			db := sql.OpenDB(unreachable{})
			defer db.Close()
			var at []time.Duration
			begin := time.Now()
			j := newJanitor(t, db, schema.Postgres, func(cfg *janitor.Config) {
				cfg.Interval = interval
				cfg.OnSweep = func(r janitor.Report) {
					if r.Err == nil {
						t.Error("the sweep did not fail")
					}
					at = append(at, time.Since(begin))
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := j.Run(ctx); err != nil {
				t.Errorf("Run() = %v", err)
			}
			pause := time.Second
			for i := range len(at) - 1 {
				if d := at[i+1] - at[i]; d < pause/2 || d > pause*3/2 {
					t.Errorf("every %v: %v after failure %d, want about %v", interval, d, i+1, pause)
				}
				pause = min(2*pause, time.Minute)
			}
			if len(at) < 10 {
				t.Errorf("every %v: failed at %v, want it to go on", interval, at)
			}
		})
	}
}
