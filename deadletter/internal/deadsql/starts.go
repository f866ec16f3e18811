package deadsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/schema"
)

// starts implements deadletter.Starts.
type starts struct {
	*base
	begin, end, pending string
}

func newStarts(b *base) *starts {
	name, d := b.cfg.name(b.cfg.StartedTable), b.dialect
	consumer, event := d.param(1), d.param(2)
	return &starts{
		base: b,
		begin: fmt.Sprintf(`insert into %s as s (consumer_id, event_id)
select %s, %s where not exists (select 1 from %s where consumer_id = %s and event_id = %s)
on conflict (event_id, consumer_id) do update set starts = s.starts + 1, started_at = %s
returning starts`, name, consumer+d.text, event+d.text, b.cfg.name(b.cfg.RecordTable), consumer, event, d.now),
		end:     fmt.Sprintf("delete from %s where consumer_id = %s and event_id = %s", name, consumer, event),
		pending: fmt.Sprintf("select event_id, starts from %s where consumer_id = %s order by started_at desc limit %d", name, consumer, maxPending),
	}
}

// maxPending bounds what Pending keeps in memory. What is there is what ended a process, and what was in work beside it.
const maxPending = 10_000

var _ deadletter.Starts = (*starts)(nil)

// Begin implements deadletter.Starts.
func (s *starts) Begin(ctx context.Context, key dedupstore.Key) (int, error) {
	if s.invalid != nil {
		return 0, s.invalid
	}
	n, err := s.number(ctx, "count a start", s.begin, key.Consumer, key.Event)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return int(n), err
}

// Pending implements deadletter.Starts.
func (s *starts) Pending(ctx context.Context, consumer string) (map[string]int, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	rows, err := s.pool.Query(ctx, s.pending, consumer)
	if err != nil {
		return nil, s.explain("read the starts", err)
	}
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var event string
		var n int
		if err := rows.Scan(&event, &n); err != nil {
			return nil, s.explain("read the starts", err)
		}
		counts[event] = n
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, s.explain("read the starts", err)
	}
	return counts, nil
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
	if err := s.check(ctx, schema.CrashLoop, func(schema.Finding) bool { return false }, s.begin, []any{"", ""}); err != nil {
		return err
	}
	if _, err := s.ask(ctx, "explain "+s.end, "", ""); err != nil {
		return s.unable(ctx, err)
	}
	return nil
}
