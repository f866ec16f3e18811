package relay_test

import (
	"log/slog"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Thousands of rows that can never be sent are a line now and then, in which all are counted: not a line each.
func TestBlockedRowsAreCountedInTheLog(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const rows = 4_000
			b := newBench(t, 1)
			// 50 topics that there are not, one of them with most of the rows, all of different keys
			b.MustExec(`insert into outbox_event (event_id, topic, partition_key) select n::text, 'missing-' || case when n <= 200 then n % 50 else 0 end, n::text::bytea
				from generate_series(1, $1::int) n`, rows)
			var log output
			cfg := b.config(mode)
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			began := time.Now()
			func() {
				r, stop := run(t, cfg)
				defer stop()
				eventually(t, "all are blocked", func() bool { return r.Status().BlockedHere == rows })
			}()
			lines := regexp.MustCompile(`cannot be sent.* rows=(\d+)`).FindAllStringSubmatch(log.text(), -1)
			sum := 0
			for _, m := range lines {
				n, err := strconv.Atoi(m[1])
				must(t, err)
				sum += n
			}
			if most := 11 * (2 + int(time.Since(began)/(10*time.Second))); sum != rows || len(lines) == 0 || len(lines) > most {
				t.Errorf("%d lines count %d rows, want %d rows in %d lines at most", len(lines), sum, rows, most)
			}
		})
	}
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
