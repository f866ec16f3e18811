package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
)

func TestOperator(t *testing.T) {
	t.Parallel()
	for _, d := range tabletest.Drivers {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			f := tabletest.Open(t)
			write, db := d.Open(t, f.URL, nil)
			op := outbox.NewOperator(db, nil)
			must(t, write(t.Context(), tabletest.Commit, strange...))
			f.MustExec("update outbox_event set status = 'BLOCKED', attempts = 1, last_error = 'too large' where event_id in ('plain', 'none')")

			list, err := op.List(t.Context(), outbox.Filter{State: outbox.Blocked})
			must(t, err)
			if len(list) != 2 || list[0].Event.ID != "plain" || list[0].Event.Value != nil || list[0].LastError != "too large" ||
				list[0].Attempts != 1 || time.Since(list[0].CreatedAt) > time.Minute {
				t.Errorf("List() = %+v", list)
			}
			for i, want := range strange {
				row, err := op.Show(t.Context(), int64(i+1))
				must(t, err)
				if !same(row.Event, want) {
					t.Errorf("Show(%d) = %+v, want %+v", i+1, row.Event, want)
				}
			}
			if _, err := op.Show(t.Context(), 4711); !errors.Is(err, outbox.ErrNoRow) {
				t.Errorf("Show() = %v", err)
			}
			if n, err := op.Retry(t.Context(), outbox.Filter{Numbers: []int64{1}}); n != 1 || err != nil {
				t.Errorf("Retry() = %d, %v", n, err)
			}
			if n, err := op.Discard(t.Context(), outbox.Filter{State: outbox.Blocked, Topic: "T"}, "it was a test"); n != 1 ||
				err != nil {
				t.Errorf("Discard() = %d, %v", n, err)
			}
			if _, err := op.Discard(t.Context(), outbox.Filter{State: outbox.Blocked}, " "); err == nil {
				t.Error("a discard without a reason")
			}
			if _, err := op.Retry(t.Context(), outbox.Filter{}); err == nil {
				t.Error("a retry of all rows")
			}
			if _, err := op.Retry(t.Context(), outbox.Filter{State: outbox.Published}); err == nil {
				t.Error("a retry of what was sent")
			}
			if s := tabletest.Value[string](f,
				"select string_agg(status || ' ' || attempts || ' ' || coalesce(last_error, '-'), ', ' order by id) from outbox_event where id in (1, 3)"); s != "PENDING 1 -, DEAD 1 it was a test" {
				t.Error(s)
			}
		})
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	op := outbox.NewOperator(db, nil)
	must(t, write(t.Context(), tabletest.Commit, strange[0]))
	f.MustExec("update outbox_event set status = 'BLOCKED', last_error = 'x', claims = 3")
	must(t, op.Edit(t.Context(), 1, func(e *outbox.Event) error {
		e.Topic, e.Value, e.Headers, e.Partition = "other", nil, []outbox.Header{{Key: "edited"}}, new(int32(7))
		return nil
	}))
	row, err := op.Show(t.Context(), 1)
	must(t, err)
	if want := (outbox.Event{ID: "plain", Topic: "other", Key: []byte("k"), Headers: []outbox.Header{{Key: "edited"}},
		Partition: new(int32(7))}); !same(row.Event, want) || row.State != outbox.Pending || row.LastError != "" {
		t.Errorf("%+v", row)
	}
	if n := tabletest.Value[int](f, "select claims from outbox_event"); n != 0 { // with which two-phase relays would take it for what kills them
		t.Errorf("%d claims are left", n)
	}
	for name, edit := range map[string]func(e *outbox.Event) error{
		"id":    func(e *outbox.Event) error { e.ID = "other"; return nil },
		"key":   func(e *outbox.Event) error { e.Key = nil; return nil },
		"place": func(e *outbox.Event) error { e.Partition = new(int32(-1)); return nil },
		"topic": func(e *outbox.Event) error { e.Topic = "not a topic"; return nil },
	} {
		if err := op.Edit(t.Context(), 1, edit); !errors.Is(err, outbox.ErrInvalidEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.MustExec("update outbox_event set status = 'PUBLISHED'")
	if err := op.Edit(t.Context(), 1, func(*outbox.Event) error { return nil }); !errors.Is(err, outbox.ErrNoRow) {
		t.Errorf("an edit of what was sent: %v", err)
	}
}

// What somebody else decides about a row while an operator's function waits for its bucket stays as it is.
func TestOperatorSparesWhatOthersDecided(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	_, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	f.MustExec("insert into outbox_event (event_id, topic, status) values ('1', 't', 'BLOCKED')")
	op := outbox.NewOperator(deciding{db, func() {
		f.MustExec("update outbox_event set status = 'DEAD', last_error = 'ann: no' where event_id = '1'")
	}}, nil)
	if n, err := op.Retry(t.Context(), outbox.Filter{State: outbox.Blocked}); n != 0 || err != nil {
		t.Errorf("Retry() = %d, %v", n, err)
	}
	if n := tabletest.Value[int](f,
		"select count(*)::int from outbox_event where status = 'DEAD' and last_error = 'ann: no'"); n != 1 {
		t.Error("it is not as it was decided")
	}
}

// deciding is a Database in which decide is called before rows are changed.
type deciding struct {
	outbox.Database
	decide func()
}

func (d deciding) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return d.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, decidingTx{tx, d.decide}) })
}

type decidingTx struct {
	outbox.Tx
	decide func()
}

func (t decidingTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	t.decide()
	return t.Tx.Exec(ctx, sql, args...)
}

// A filter without states takes what failed, and nothing that is well or that a person has decided.
func TestOperatorTakesWhatFailed(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	_, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	op := outbox.NewOperator(db, nil)
	fill := func() {
		f.MustExec("truncate outbox_event")
		f.MustExec("insert into outbox_event (event_id, topic, status, last_error) select s, 't', s, 'ann: ' || s from unnest(array['PENDING', 'PUBLISHING', 'PUBLISHED', 'BLOCKED', 'DEAD']) s")
	}
	became := func() string {
		return tabletest.Value[string](f,
			"select string_agg(event_id || ' ' || status, ', ' order by event_id) from outbox_event where status <> event_id")
	}
	fill()
	if n, err := op.Discard(t.Context(), outbox.Filter{Topic: "t"}, "bob"); n != 1 || err != nil ||
		became() != "BLOCKED DEAD" {
		t.Errorf("Discard() = %d, %v: %s", n, err, became())
	}
	fill()
	if n, err := op.Retry(t.Context(), outbox.Filter{Topic: "t"}); n != 1 || err != nil || became() != "BLOCKED PENDING" {
		t.Errorf("Retry() = %d, %v: %s", n, err, became())
	}
	if reason := tabletest.Value[string](f,
		"select last_error from outbox_event where event_id = 'DEAD'"); reason != "ann: DEAD" {
		t.Errorf("the reason is %q", reason)
	}
	fill()
	if n, err := op.Retry(t.Context(), outbox.Filter{State: outbox.Dead}); n != 1 || err != nil ||
		became() != "DEAD PENDING" {
		t.Errorf("Retry() = %d, %v: %s", n, err, became())
	}
	fill()
	if n, err := op.Discard(t.Context(), outbox.Filter{State: outbox.Pending}, "bob"); n != 1 || err != nil ||
		became() != "PENDING DEAD" {
		t.Errorf("Discard() = %d, %v: %s", n, err, became())
	}
	for _, c := range []outbox.Change{outbox.ToRetry, outbox.ToDiscard} {
		groups, err := op.Preview(t.Context(), c, outbox.Filter{Topic: "t"})
		if err != nil || len(groups) != 1 || groups[0].State != outbox.Blocked || groups[0].Rows != 1 ||
			groups[0].Topic != "t" {
			t.Errorf("Preview(%s) = %+v, %v", c, groups, err)
		}
	}
	if _, err := op.Preview(t.Context(), "forget", outbox.Filter{Topic: "t"}); err == nil {
		t.Error("an unknown change")
	}
}

// Of however many rows, all are changed, or as many as Limit says, the first ones; and what comes meanwhile is left
// alone.
func TestOperatorChangesAll(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	_, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	const rows = 12_345
	f.MustExec("insert into outbox_event (event_id, topic, partition_key, status) select n::text, 't', (n % 100)::text::bytea, 'BLOCKED' from generate_series(1, $1::int) n", rows)
	var told []int64
	var meanwhile string
	op := outbox.NewOperator(db, nil).WithProgress(func(n int64) {
		told = append(told, n)
		if meanwhile != "" {
			f.MustExec(meanwhile)
			meanwhile = ""
		}
	})
	if n, err := op.Retry(t.Context(), outbox.Filter{State: outbox.Blocked, Limit: 7000}); n != 7000 || err != nil {
		t.Fatalf("Retry() = %d, %v", n, err)
	}
	if n := tabletest.Value[int](f,
		"select count(*) from outbox_event where status = 'PENDING' and id <= 7000"); n != 7000 {
		t.Errorf("%d of the first 7000 are sent again", n)
	}
	meanwhile = "insert into outbox_event (event_id, topic, partition_key, status) values ('late', 't', 'k', 'BLOCKED')"
	if n, err := op.Retry(t.Context(), outbox.Filter{State: outbox.Blocked}); n != rows-7000 || err != nil {
		t.Fatalf("Retry() = %d, %v", n, err)
	}
	if n := tabletest.Value[int](f,
		"select count(*) from outbox_event where event_id = 'late' and status = 'BLOCKED'"); n != 1 {
		t.Error("what has come meanwhile was changed too")
	}
	if len(told) < 4 || told[len(told)-1] != rows-7000 {
		t.Errorf("it has told %d times", len(told))
	}
}

// broken is a Database whose statement number at fails, counted from 0.
type broken struct {
	outbox.Database
	at   int
	seen int
}

var errBroken = errors.New("broken")

func (b *broken) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return b.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, brokenTx{tx, b}) })
}

func (b *broken) next() error {
	if b.seen++; b.seen == b.at+1 {
		return errBroken
	}
	return nil
}

type brokenTx struct {
	outbox.Tx
	b *broken
}

func (t brokenTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := t.b.next(); err != nil {
		return 0, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t brokenTx) Query(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	if err := t.b.next(); err != nil {
		return err
	}
	return t.Tx.Query(ctx, sql, args, row)
}

// Whichever statement of an operator's function fails: its error is told. What is one transaction changes nothing then.
func TestOperatorTellsEveryFailure(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, database := tabletest.Drivers[0].Open(t, f.URL, nil)
	must(t, write(t.Context(), tabletest.Commit, outbox.Event{ID: "1", Topic: "t", Key: []byte("k")}))
	f.MustExec("update outbox_event set status = 'BLOCKED', last_error = 'as it was'")
	number := tabletest.Value[int64](f, "select id from outbox_event")
	for name, call := range map[string]func(ctx context.Context, o *outbox.Operator) error{
		"List": func(ctx context.Context, o *outbox.Operator) error {
			_, err := o.List(ctx, outbox.Filter{})
			return err
		},
		"Show": func(ctx context.Context, o *outbox.Operator) error { _, err := o.Show(ctx, number); return err },
		"Mode": func(ctx context.Context, o *outbox.Operator) error { _, err := o.Mode(ctx); return err },
		"Preview": func(ctx context.Context, o *outbox.Operator) error {
			_, err := o.Preview(ctx, outbox.ToRetry, outbox.Filter{State: outbox.Blocked})
			return err
		},
		"Retry": func(ctx context.Context, o *outbox.Operator) error {
			_, err := o.Retry(ctx, outbox.Filter{State: outbox.Blocked})
			return err
		},
		"Discard": func(ctx context.Context, o *outbox.Operator) error {
			_, err := o.Discard(ctx, outbox.Filter{State: outbox.Blocked}, "a test")
			return err
		},
		"Edit": func(ctx context.Context, o *outbox.Operator) error {
			return o.Edit(ctx, number, func(e *outbox.Event) error { e.Value = []byte("new"); return nil })
		},
		"SwitchMode": func(ctx context.Context, o *outbox.Operator) error { return o.SwitchMode(ctx, outbox.TwoPhase) },
	} {
		db := &broken{Database: database}
		for ; ; db.at++ {
			if name == "SwitchMode" && db.at == 2 {
				db.at = outboxsql.Buckets - 1 // it locks one bucket after the other
			}
			db.seen = 0
			f.MustExec("update outbox_event set status = 'BLOCKED', last_error = 'as it was', payload = null")
			f.MustExec("delete from outbox_mode")
			err := call(t.Context(), outbox.NewOperator(db, nil))
			if db.seen <= db.at { // it has no more statements
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("%s: statement %d fails: %v", name, db.at, err)
			}
			batches := name == "Retry" || name == "Discard" // which look for more when the row is changed
			if n := tabletest.Value[int](f,
				"select count(*) from outbox_event where status = 'BLOCKED' and last_error = 'as it was' and payload is null"); n != 1 && !batches {
				t.Errorf("%s: statement %d fails, and the row is changed", name, db.at)
			}
		}
		if db.at == 0 {
			t.Errorf("%s has no statement", name)
		}
	}
}

// What the function of an Edit refuses is not edited.
func TestEditThatIsRefused(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	write, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	must(t, write(t.Context(), tabletest.Commit, outbox.Event{ID: "1", Topic: "t", Key: []byte("k")}))
	number := tabletest.Value[int64](f, "select id from outbox_event")
	err := outbox.NewOperator(db, nil).Edit(t.Context(), number, func(e *outbox.Event) error {
		e.Value = []byte("new")
		return errBroken
	})
	if n := tabletest.Value[int](f, "select count(*) from outbox_event where payload is null"); !errors.Is(err,
		errBroken) || n != 1 {
		t.Errorf("Edit() = %v, %d rows are as they were", err, n)
	}
}
