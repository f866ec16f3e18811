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
type starts struct{ *base }

// beginSQL counts a start, unless the event is recorded.
const beginSQL = `insert into %s as s (consumer_id, event_id)
select %s, %s where not exists (select 1 from %s where consumer_id = %s and event_id = %s)
on conflict (event_id, consumer_id) do update set starts = s.starts + 1, started_at = %s
returning starts`

func (s *starts) begin(ctx context.Context) (string, error) {
	name, err := s.name(ctx, s.pool, s.cfg.StartedTable)
	if err != nil {
		return "", err
	}
	records, err := s.name(ctx, s.pool, s.cfg.RecordTable)
	d := s.dialect
	consumer, event := d.param(1), d.param(2)
	return fmt.Sprintf(beginSQL, name, consumer+d.text, event+d.text, records, consumer, event, d.now), err
}

func (s *starts) end(ctx context.Context) (string, error) {
	name, err := s.name(ctx, s.pool, s.cfg.StartedTable)
	return fmt.Sprintf("delete from %s where consumer_id = %s and event_id = %s", name, s.dialect.param(1), s.dialect.param(2)), err
}

func (s *starts) pending(ctx context.Context) (string, error) {
	name, err := s.name(ctx, s.pool, s.cfg.StartedTable)
	return fmt.Sprintf("select event_id, starts from %s where consumer_id = %s order by started_at desc limit %d", name, s.dialect.param(1), maxPending), err
}

// maxPending bounds what Pending keeps in memory. What is there is what ended a process, and what was in work beside it.
const maxPending = 10_000

var _ deadletter.Starts = (*starts)(nil)

// Begin implements deadletter.Starts.
func (s *starts) Begin(ctx context.Context, key dedupstore.Key) (int, error) {
	if s.invalid != nil {
		return 0, s.invalid
	}
	text, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	n, err := s.number(ctx, "count a start", text, key.Consumer, key.Event)
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
	text, err := s.pending(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, text, consumer)
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
	text, err := s.end(ctx)
	if err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, text, key.Consumer, key.Event); err != nil {
		return s.explain("forget a start", err)
	}
	return nil
}

// Check implements dedupstore.Checker.
func (s *starts) Check(ctx context.Context) error {
	begin := func() (string, error) { return s.begin(ctx) }
	if err := s.check(ctx, schema.CrashLoop, s.cfg.StartedTable, func(schema.Finding) bool { return false }, begin, []any{"", ""}); err != nil {
		return err
	}
	return s.plan(ctx, func() (string, error) { return s.end(ctx) }, "", "")
}
