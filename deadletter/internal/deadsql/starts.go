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

// beginSQL counts a start, unless the event is recorded. The count is 0 if the row has another key, as a trigger may
// have it.
const beginSQL = `insert into %[1]s as s (consumer_id, event_id)
select %[2]s%[4]s, %[3]s%[4]s where not exists (select 1 from %[5]s where consumer_id = %[2]s and event_id = %[3]s)
on conflict (event_id, consumer_id) do update set starts = s.starts + 1, started_at = %[6]s
returning case when consumer_id = %[2]s and event_id = %[3]s then starts else 0 end`

func (s *starts) begin(ctx context.Context) (string, error) {
	name, err := s.name(ctx, s.pool, s.cfg.StartedTable)
	if err != nil {
		return "", err
	}
	records, err := s.name(ctx, s.pool, s.cfg.RecordTable)
	d := s.dialect
	return fmt.Sprintf(beginSQL, name, d.param(1), d.param(2), d.text, records, d.now), err
}

// recorded looks for the record of the event.
func (s *starts) recorded(ctx context.Context) (string, error) {
	records, err := s.name(ctx, s.pool, s.cfg.RecordTable)
	return fmt.Sprintf("select count(*) from %s where consumer_id = %s and event_id = %s", records, s.dialect.param(1),
		s.dialect.param(2)), err
}

func (s *starts) end(ctx context.Context) (string, error) {
	name, err := s.name(ctx, s.pool, s.cfg.StartedTable)
	return fmt.Sprintf("delete from %s where consumer_id = %s and event_id = %s", name, s.dialect.param(1),
		s.dialect.param(2)), err
}

func (s *starts) pending(ctx context.Context) (string, error) {
	name, err := s.name(ctx, s.pool, s.cfg.StartedTable)
	return fmt.Sprintf("select event_id, starts from %s where consumer_id = %s order by started_at desc limit %d", name,
		s.dialect.param(1), maxPending), err
}

// maxPending bounds what Pending keeps in memory. What is there is what ended a process, and what was in work beside
// it.
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
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, s.silence(ctx, key)
	case err == nil && n == 0:
		return 0, s.swallowed("count a start", s.cfg.StartedTable)
	}
	return int(n), err
}

// silence explains a start that was answered with no row: it is nil if the event is recorded.
func (s *starts) silence(ctx context.Context, key dedupstore.Key) error {
	text, err := s.recorded(ctx)
	if err != nil {
		return err
	}
	n, err := s.number(ctx, "look for the record", text, key.Consumer, key.Event)
	if err == nil && n == 0 {
		err = s.swallowed("count a start", s.cfg.StartedTable)
	}
	return err
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
	if err := s.check(ctx, schema.CrashLoop, s.cfg.StartedTable, func(schema.Finding) bool { return false }, begin,
		[]any{"", ""}); err != nil {
		return err
	}
	return s.plan(ctx, func() (string, error) { return s.end(ctx) }, "", "")
}
