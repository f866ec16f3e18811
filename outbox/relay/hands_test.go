package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/outboxtest"
)

// meddler is a Database that calls a func once, before a relay reads the values of the rows that it has chosen (fetch),
// or marks what it has sent (mark).
type meddler struct {
	outbox.Database
	fetch, mark func()
}

func (m *meddler) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	return m.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, meddlingTx{tx, m}) })
}

type meddlingTx struct {
	outbox.Tx
	m *meddler
}

func (t meddlingTx) Query(ctx context.Context, sql string, args []any,
	row func(scan func(dest ...any) error) error) error {
	if strings.Contains(sql, "o.payload, o.headers") {
		t.m.fetch()
	}
	return t.Tx.Query(ctx, sql, args, row)
}

func (t meddlingTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if strings.Contains(sql, "delete from") && !strings.Contains(sql, "where false") { // which only asks for the privilege
		t.m.mark()
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func nothing() {}

// Somebody changes rows by hand after the relay has chosen them, and before it has them: they are sent as they are
// then, in the order of the key that they are then of, and the rest of their old key is not harmed.
func TestRowsChangedByHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, left, want string }{
		"another key": {"update outbox_event set partition_key = 'l' where event_id = '2'", "false",
			"map[k:[1 3] l:[2]]"},
		"no key": {"update outbox_event set partition_key = null where event_id = '2'", "false",
			"map[:[2] k:[1 3]]"},
		"deleted":  {"delete from outbox_event where event_id = '2'", "false", "map[k:[1 3]]"},
		"given up": {"update outbox_event set status = 'DEAD' where event_id = '2'", "event_id = '2'", "map[k:[1 3]]"},
		"blocked": {"update outbox_event set status = 'BLOCKED' where event_id = '2'", "event_id in ('2', '3')",
			"map[k:[1]]"},
		"said to be sent": {"update outbox_event set status = 'PUBLISHED', published_at = 'infinity' where event_id = '2'",
			"event_id = '2'", "map[k:[1 3]]"},
	} {
		for _, mode := range modes {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 1)
				b.insert("1", "2", "3")
				cfg := b.config(mode)
				cfg.Database = &meddler{b.db, sync.OnceFunc(func() { b.MustExec(c.change) }), nothing}
				cfg.PublishTimeout, cfg.LeaseTTL = time.Second, 12*time.Second
				cfg.Sarama = func(c *sarama.Config) { c.Producer.Timeout = time.Second }
				r := start(t, cfg)
				eventually(t, "the rest is sent", func() bool { return b.rows("not ("+c.left+")") == 0 })
				if n := b.rows("true"); n != b.rows(c.left) {
					t.Errorf("%d rows are left", n)
				}
				list, err := outboxtest.Records(b.b.Addrs, b.topic)
				must(t, err)
				if got, repeated := outboxtest.FirstCopies(list); fmt.Sprint(got) != c.want || repeated > 0 {
					t.Errorf("the topic has %v, %d sent twice, want %s", got, repeated, c.want)
				}
				if s := r.Status(); s.BlockedHere != 0 || s.LeaseLost != 0 {
					t.Errorf("Status tells of %d blocked and %d lost", s.BlockedHere, s.LeaseLost)
				}
			})
		}
	}
}

// A row that is deleted by hand while a two-phase relay sends it is told as lost, and nothing else happens.
func TestRowDeletedWhileItIsSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	cfg := b.config(outbox.TwoPhase)
	cfg.Database = &meddler{b.db, nothing,
		sync.OnceFunc(func() { b.MustExec("delete from outbox_event where event_id = '2'") })}
	r := start(t, cfg)
	eventually(t, "the others are marked", func() bool { return b.rows("true") == 0 && r.Status().Published == 2 })
	if s := r.Status(); s.LeaseLost != 1 || b.topicHas() != "1 2 3" {
		t.Errorf("%d lost, the topic has %s", s.LeaseLost, b.topicHas())
	}
}

// A row that is changed by hand while a two-phase relay sends it, so that it stands elsewhere in the table, is marked
// all the same, once; another row that stands in its place by then is not.
func TestRowMovedWhileItIsSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.insert("1", "2", "3")
	cfg := b.config(outbox.TwoPhase)
	cfg.Keep = time.Hour
	cfg.Database = &hooked{Database: b.db, once: true, before: func(string) {
		b.MustExec("update outbox_event set created_at = created_at where event_id = '2'")
	}}
	r := start(t, cfg)
	eventually(t, "all are marked", func() bool {
		return b.rows("status = 'PUBLISHED'") == 3 &&
			r.Status().Published == 3
	})
	if s := r.Status(); s.LeaseLost != 0 || b.topicHas() != "1 2 3" {
		t.Errorf("%d lost, the topic has %s", s.LeaseLost, b.topicHas())
	}
}

// Write refuses 10,000 headers. A row that has them all the same, written by other hands, is sent as it is: Kafka's
// limit is in bytes.
func TestRowOfTenThousandHeaders(t *testing.T) {
	t.Parallel()
	headers := make([]outbox.Header, 10_000)
	for i := range headers {
		headers[i] = outbox.Header{Key: "h", Value: []byte{byte(i)}}
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1)
			err := b.write(t.Context(), tabletest.Commit, outbox.Event{Topic: b.topic, Headers: headers})
			if err == nil || !strings.Contains(err.Error(), "10000 headers") {
				t.Errorf("Write: %v", err)
			}
			b.MustExec("insert into outbox_event (event_id, topic, headers) values ('1', $1, $2)", b.topic,
				outbox.EncodeHeaders(headers))
			start(t, b.config(mode))
			eventually(t, "it is sent", func() bool { return b.rows("true") == 0 })
			list, err := outboxtest.Records(b.b.Addrs, b.topic)
			must(t, err)
			if n := len(list[0].Headers); n != len(headers)+1 {
				t.Errorf("the record has %d headers", n)
			}
		})
	}
}
