package deadsql

import (
	"context"
	"fmt"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/schema"
)

// starts implements deadletter.Starts.
type starts struct {
	*base
	name, begin, end string
}

func newStarts(b *base) *starts {
	name, d := b.cfg.name(b.cfg.StartedTable), b.dialect
	return &starts{
		base: b, name: name,
		begin: fmt.Sprintf(`insert into %s as s (consumer_id, event_id) values (%s, %s)
on conflict (event_id, consumer_id) do update set starts = s.starts + 1, started_at = %s
returning starts`, name, d.param(1), d.param(2), d.now),
		end: fmt.Sprintf("delete from %s where consumer_id = %s and event_id = %s", name, d.param(1), d.param(2)),
	}
}

var _ deadletter.Starts = (*starts)(nil)

// Begin implements deadletter.Starts.
func (s *starts) Begin(ctx context.Context, key dedupstore.Key) (int, error) {
	if s.invalid != nil {
		return 0, s.invalid
	}
	n, err := s.number(ctx, "count a start", s.begin, key.Consumer, key.Event)
	return int(n), err
}

// End implements deadletter.Starts.
func (s *starts) End(ctx context.Context, key dedupstore.Key) error {
	if s.invalid != nil {
		return s.invalid
	}
	if _, err := s.pool.Exec(ctx, s.end, key.Consumer, key.Event); err != nil {
		return s.explain("forget a start", err)
	}
	return nil
}

// Check implements dedupstore.Checker.
func (s *starts) Check(ctx context.Context) error {
	return s.check(ctx, s.name, schema.CrashLoop, s.begin, []any{"", ""})
}
