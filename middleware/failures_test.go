package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// The kinds of failure, as docs/failures.md has them.
const (
	failsTransient   = "transient"
	failsPermanent   = "permanent"
	failsUndecodable = "undecodable"
	failsTombstone   = "tombstone"
	failsNoID        = "no id"
	failsInvalidID   = "invalid id"
	failsTooOld      = "too old"
	failsPanic       = "panic"
	failsTimeout     = "timeout"
	failsForEver     = "for ever"
	failsEnded       = "ended transaction"
	failsOnce        = "once"
)

// The policies.
const (
	keepTrying = "KeepTrying"
	stop       = "Stop"
	buries     = "DeadLetter"
	excepted   = "DeadLetter but for this kind, Stop"
)

const window = time.Hour

type paid struct {
	Fails string `json:"fails"`
}

// failing is the function of a user that fails as the event says, after a write.
func failing(ctx context.Context, tx pgx.Tx, event paid) error {
	key, _ := dedupstore.KeyFrom(ctx)
	msg, _ := consumer.MessageFrom(ctx)
	if _, err := tx.Exec(ctx, "insert into effect values ($1)", key.Event); err != nil {
		return err
	}
	switch event.Fails {
	case failsTransient:
		_, err := tx.Exec(ctx, "do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$")
		return err
	case failsPermanent:
		return consumer.Permanent(errBase)
	case failsPanic:
		panic(errBase)
	case failsTimeout:
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return err
	case failsForEver:
		return errBase
	case failsEnded:
		_, err := tx.Exec(ctx, "commit")
		return err
	case failsOnce:
		if msg.Attempt == 1 {
			return errBase
		}
	}
	return nil
}

// cells are those of docs/failures.md, which names them.
var cells = []struct {
	name, kind, policy string
	dead               deadletter.Kind // "" for what never makes a dead letter
	tries              int             // attempts until it is given up
}{
	{"transient, KeepTrying", failsTransient, keepTrying, "", 0},
	{"transient, Stop", failsTransient, stop, "", 0},
	{"transient, DeadLetter", failsTransient, buries, "", 0},
	{"transient, DeadLetter but for it", failsTransient, excepted, "", 0},
	{"once, KeepTrying", failsOnce, keepTrying, "", 0},
	{"once, Stop", failsOnce, stop, "", 0},
	{"once, DeadLetter", failsOnce, buries, "", 0},
	{"once, DeadLetter but for it", failsOnce, excepted, "", 0},
	{"permanent, KeepTrying", failsPermanent, keepTrying, deadletter.KindPermanent, 1},
	{"permanent, Stop", failsPermanent, stop, deadletter.KindPermanent, 1},
	{"permanent, DeadLetter", failsPermanent, buries, deadletter.KindPermanent, 1},
	{"permanent, DeadLetter but for it", failsPermanent, excepted, deadletter.KindPermanent, 1},
	{"undecodable, KeepTrying", failsUndecodable, keepTrying, deadletter.KindUndecodable, 1},
	{"undecodable, Stop", failsUndecodable, stop, deadletter.KindUndecodable, 1},
	{"undecodable, DeadLetter", failsUndecodable, buries, deadletter.KindUndecodable, 1},
	{"undecodable, DeadLetter but for it", failsUndecodable, excepted, deadletter.KindUndecodable, 1},
	{"tombstone, KeepTrying", failsTombstone, keepTrying, deadletter.KindUndecodable, 1},
	{"tombstone, Stop", failsTombstone, stop, deadletter.KindUndecodable, 1},
	{"tombstone, DeadLetter", failsTombstone, buries, deadletter.KindUndecodable, 1},
	{"tombstone, DeadLetter but for it", failsTombstone, excepted, deadletter.KindUndecodable, 1},
	{"no id, KeepTrying", failsNoID, keepTrying, deadletter.KindNoEventID, 1},
	{"no id, Stop", failsNoID, stop, deadletter.KindNoEventID, 1},
	{"no id, DeadLetter", failsNoID, buries, deadletter.KindNoEventID, 1},
	{"no id, DeadLetter but for it", failsNoID, excepted, deadletter.KindNoEventID, 1},
	{"invalid id, KeepTrying", failsInvalidID, keepTrying, deadletter.KindNoEventID, 1},
	{"invalid id, Stop", failsInvalidID, stop, deadletter.KindNoEventID, 1},
	{"invalid id, DeadLetter", failsInvalidID, buries, deadletter.KindNoEventID, 1},
	{"invalid id, DeadLetter but for it", failsInvalidID, excepted, deadletter.KindNoEventID, 1},
	{"too old, KeepTrying", failsTooOld, keepTrying, deadletter.KindTooOld, 1},
	{"too old, Stop", failsTooOld, stop, deadletter.KindTooOld, 1},
	{"too old, DeadLetter", failsTooOld, buries, deadletter.KindTooOld, 1},
	{"too old, DeadLetter but for it", failsTooOld, excepted, deadletter.KindTooOld, 1},
	{"panic, KeepTrying", failsPanic, keepTrying, deadletter.KindPanicked, 3},
	{"panic, Stop", failsPanic, stop, deadletter.KindPanicked, 3},
	{"panic, DeadLetter", failsPanic, buries, deadletter.KindPanicked, 3},
	{"panic, DeadLetter but for it", failsPanic, excepted, deadletter.KindPanicked, 3},
	{"timeout, KeepTrying", failsTimeout, keepTrying, deadletter.KindTimedOut, 3},
	{"timeout, Stop", failsTimeout, stop, deadletter.KindTimedOut, 3},
	{"timeout, DeadLetter", failsTimeout, buries, deadletter.KindTimedOut, 3},
	{"timeout, DeadLetter but for it", failsTimeout, excepted, deadletter.KindTimedOut, 3},
	{"for ever, KeepTrying", failsForEver, keepTrying, deadletter.KindGaveUp, 3},
	{"for ever, Stop", failsForEver, stop, deadletter.KindGaveUp, 3},
	{"for ever, DeadLetter", failsForEver, buries, deadletter.KindGaveUp, 3},
	{"for ever, DeadLetter but for it", failsForEver, excepted, deadletter.KindGaveUp, 3},
	{"ended transaction, KeepTrying", failsEnded, keepTrying, deadletter.KindTxEnded, 1},
	{"ended transaction, Stop", failsEnded, stop, deadletter.KindTxEnded, 1},
	{"ended transaction, DeadLetter", failsEnded, buries, deadletter.KindTxEnded, 1},
	{"ended transaction, DeadLetter but for it", failsEnded, excepted, deadletter.KindTxEnded, 1},
}

// Each kind of failure under each policy: what becomes of the message, and of the database. A message that is done lets
// its offset be committed and what is ordered behind it run; any other holds both.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, cell := range cells {
		t.Run(cell.name, func(t *testing.T) {
			t.Parallel()
			f := newFailureCase(t, cell.kind, cell.policy, cell.dead)
			out := f.chains.Deliver(t.Context(), f.msg)
			f.check(t, out, cell.dead, cell.tries)
		})
	}
}

type failureCase struct {
	kind, policy string
	pool         *pgxpool.Pool
	chains       *consumertest.Chains
	msg          *consumer.Message
}

func newFailureCase(t *testing.T, kind, policy string, dead deadletter.Kind) *failureCase {
	t.Helper()
	f := &failureCase{kind: kind, policy: policy, pool: serverstest.Pool(t)}
	for _, text := range []string{schema.Postgres.SQL(nil), "create table effect (name text)"} {
		if _, err := f.pool.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.Minute
	if kind == failsTimeout {
		limit = 100 * time.Millisecond
	}
	store := pgxstore.New(f.pool, nil)
	topic := consumer.Topic{
		Consumer:   "c",
		Middleware: []consumer.Middleware{middleware.Retry(3, nil), middleware.Recover(), middleware.Timeout(limit)},
		Handler:    middleware.Dedup(store, consumer.JSONTx(failing), &middleware.DedupConfig{Window: window}),
	}
	if policy == stop || policy == excepted {
		topic.OnFailure = consumer.Stop
	}
	cfg := &middleware.DeadLetterConfig{}
	if policy == excepted && dead != "" {
		cfg.Except = []deadletter.Kind{dead}
	}
	if policy == buries || policy == excepted {
		topic.Middleware = append([]consumer.Middleware{middleware.DeadLetter(store, pgxdeadletter.New(f.pool, nil), cfg)},
			topic.Middleware...)
	}
	f.msg = &consumer.Message{
		Topic: "t", Partition: 1, Offset: 7, TopicID: consumer.TopicID{1}, Value: []byte(fmt.Sprintf(`{"fails": %q}`, kind)),
		Headers: []consumer.Header{{Key: "event-id", Value: []byte("e1")}}, Timestamp: time.Now(),
	}
	switch kind {
	case failsUndecodable:
		f.msg.Value = []byte("{")
	case failsTombstone:
		f.msg.Value = nil
	case failsNoID:
		f.msg.Headers = nil
	case failsInvalidID:
		f.msg.Headers[0].Value = []byte("a\x00b")
	case failsTooOld:
		f.msg.Timestamp = time.Now().Add(-2 * window)
	}
	f.chains = consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"t": topic}},
		&consumertest.Config{Attempts: 6})
	return f
}

// state is what is in the database.
type state struct {
	effects, records int
	dead             []*deadletter.Record
}

func (f *failureCase) state(t *testing.T) state {
	t.Helper()
	s := state{f.count(t, "effect"), f.count(t, "processed_event"), f.dead(t)}
	if f.kind == failsEnded { // what it committed itself is there, and its record
		s.effects, s.records = s.effects-1, s.records-1
	}
	return s
}

func (s state) empty() bool { return s.effects == 0 && s.records == 0 && len(s.dead) == 0 }

func (s state) String() string {
	return fmt.Sprintf("%d effects, %d records, %d dead letters", s.effects, s.records, len(s.dead))
}

// check compares with what docs/failures.md says.
func (f *failureCase) check(t *testing.T, out *consumertest.Outcome, kind deadletter.Kind, tries int) {
	t.Helper()
	s := f.state(t)
	switch {
	case f.kind == failsOnce:
		if out.End != consumertest.Done || s.effects != 1 || len(s.dead) != 0 {
			t.Errorf("%v\n%v", out, s)
		}
	case f.kind == failsEnded && f.policy == keepTrying: // the next attempt finds the record
		if out.End != consumertest.Done || !out.Result.Duplicate || len(out.Attempts) != 2 {
			t.Errorf("%v", out)
		}
	case kind == "" || f.policy == keepTrying: // for ever
		if out.End != consumertest.Limit || !s.empty() {
			t.Errorf("%v\n%v", out, s)
		}
	case f.policy == buries:
		f.checkDead(t, out, s, kind, tries)
	default:
		if out.End != consumertest.Stopped || len(out.Attempts) != tries || !s.empty() {
			t.Errorf("%v\n%v; want that it stops after %d attempts", out, s, tries)
		}
	}
}

// checkDead is check for what is a dead letter now.
func (f *failureCase) checkDead(t *testing.T, out *consumertest.Outcome, s state, kind deadletter.Kind, tries int) {
	t.Helper()
	if out.End != consumertest.Done || len(out.Attempts) != tries || !out.Result.Dead || s.effects != 0 || s.records != 1 {
		t.Errorf("%v\n%v; want a dead letter after %d attempts", out, s, tries)
	}
	if len(s.dead) != 1 || s.dead[0].Kind != kind || s.dead[0].Offset != 7 || s.dead[0].Attempts != tries ||
		s.dead[0].Consumer != "c" {
		t.Errorf("dead letters: %+v, want one of the kind %s after %d attempts", s.dead, kind, tries)
	}
	if again := f.chains.Deliver(t.Context(), f.msg); again.End != consumertest.Done || !again.Result.Duplicate ||
		len(f.dead(t)) != 1 {
		t.Errorf("delivered again: %v, %v", again, f.state(t))
	}
}

func (f *failureCase) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (f *failureCase) dead(t *testing.T) []*deadletter.Record {
	t.Helper()
	list, err := pgxdeadletter.New(f.pool, nil).List(t.Context(), deadletter.Filter{}, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A step of a Sequence that is given up has its own dead letter, and the next one runs.
func TestDeadLetterInASequence(t *testing.T) {
	t.Parallel()
	pool := serverstest.Pool(t)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil)); err != nil {
		t.Fatal(err)
	}
	store, table := pgxstore.New(pool, nil), pgxdeadletter.New(pool, nil)
	var ran []string
	step := func(name string, err error) middleware.Step {
		return middleware.Step{
			Name:       name,
			Middleware: []consumer.Middleware{middleware.DeadLetter(store, table, nil), middleware.Retry(2, nil)},
			Handler: middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error {
				ran = append(ran, name)
				return err
			}, nil),
		}
	}
	topic := consumer.Topic{Consumer: "c", Handler: middleware.Sequence(step("first", nil), step("second", errBase),
		step("third", nil))}
	msg := &consumer.Message{Topic: "t", Headers: []consumer.Header{{Key: "event-id", Value: []byte("e1")}}}
	out := consumertest.Run(t, topic, msg)
	if out.End != consumertest.Done || !out.Result.Dead || !errors.Is(out.Result.DeadErr, errBase) ||
		!slices.Equal(ran, []string{"first", "second", "second", "third"}) {
		t.Errorf("%v, %v", out, ran)
	}
	list, err := table.List(t.Context(), deadletter.Filter{Consumer: "c/second"}, 0, 10)
	if err != nil || len(list) != 1 || list[0].Attempts != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}
