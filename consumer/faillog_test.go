package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/errtype"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// journal keeps the lines of a log.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

// with returns the lines whose text has the part.
func (j *journal) with(part string) (lines []map[string]any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for text := range strings.SplitSeq(strings.TrimSpace(j.b.String()), "\n") {
		var l map[string]any
		if json.Unmarshal([]byte(text), &l) == nil && strings.Contains(l["msg"].(string), part) {
			lines = append(lines, l)
		}
	}
	return lines
}

// outageStore is a store whose database can be switched off.
type outageStore struct {
	*memstore.Store
	err atomic.Pointer[error]
}

func (s *outageStore) Once(ctx context.Context, key dedupstore.Key, f func(context.Context, *memstore.Tx) error) (bool,
	error) {
	if err := s.err.Load(); err != nil {
		return false, *err
	}
	return s.Store.Once(ctx, key, f)
}

// README's chain, with its database down: the outage is a line when it begins and one when it ends, whatever the number
// of messages, and Status says the same in the same words.
func TestAnOutageIsTwoLines(t *testing.T) {
	t.Parallel()
	for class, text := range map[dedupstore.Class][2]string{
		dedupstore.Unavailable:   {"the database is away", "the database is back"},
		dedupstore.Misconfigured: {"the database lacks something", "the database has what it lacked"},
	} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 2), serverstest.Group(t)
			b.Produce(t, records(topic, 2, 20)...)
			var log journal
			store := &outageStore{Store: memstore.New()}
			away := fmt.Errorf("insert: %w", dedupstore.WithClass(class, errors.New("connection refused")))
			store.err.Store(&away)
			var s seen
			cfg := config(b, group, topic,
				middleware.Dedup(store, func(ctx context.Context, _ *memstore.Tx, msg *consumer.Message) error {
					return s.Handle(ctx, msg)
				}, nil))
			tp := cfg.Topics[topic]
			tp.EventID = place
			cfg.Topics[topic] = tp
			cfg.Logger = log.logger()
			cfg.Middleware = []consumer.Middleware{middleware.Retry(3, &middleware.RetryConfig{Base: 10 * time.Millisecond,
				Max: 20 * time.Millisecond}), middleware.Recover()}
			m := start(t, cfg)
			eventually(t, "Status says so", func() bool {
				d := m.Status().Degraded
				return len(d) == 1 && d[0].ErrorType == class.String() && d[0].Failures >= 20 && !d[0].Since.IsZero() &&
					m.Ready() && m.Status().Problem() != ""
			})
			store.err.Store(nil)
			eventually(t, "it ends", func() bool {
				return s.len() == 40 && len(m.Status().Degraded) == 0 &&
					m.Status().Problem() == ""
			})
			begins, ends := log.with(text[0]), log.with(text[1])
			if len(begins) != 1 || begins[0]["error.type"] != class.String() || begins[0]["level"] != "ERROR" ||
				!strings.Contains(begins[0]["error"].(string), "connection refused") {
				t.Errorf("it begins with %v", begins)
			}
			if len(ends) != 1 || ends[0]["outage_seconds"].(float64) <= 0 || ends[0]["failures"].(float64) < 20 {
				t.Errorf("it ends with %v", ends)
			}
			if lines := log.with("a message failed"); len(lines) > 0 {
				t.Errorf("%d lines about single messages, the first is %v", len(lines), lines[0])
			}
			if lines := log.with("the start is done"); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0]["topics"]),
				"store:*consumer_test.outageStore") {
				t.Errorf("the first line is %v", lines)
			}
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A message that fails again and again has a line for the attempts 1, 2, 4, 8..., whether or not Retry asks for the
// next one.
func TestAFailureIsLogged(t *testing.T) {
	t.Parallel()
	for _, logging := range []bool{false, true} {
		t.Run(fmt.Sprintf("Logging %v", logging), func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			b.Produce(t, records(topic, 1, 1)...)
			var log journal
			var attempts atomic.Int64
			cfg := config(b, group, topic, consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
				if attempts.Add(1) <= 9 {
					return errtype.New("out_of_stock", "none is left")
				}
				return nil
			}))
			cfg.Logger = log.logger()
			if logging {
				cfg.Middleware = append(cfg.Middleware, middleware.Logging(cfg.Logger, nil))
			}
			cfg.Middleware = append(cfg.Middleware,
				middleware.Retry(20, &middleware.RetryConfig{Base: 10 * time.Millisecond, Max: 10 * time.Millisecond}),
				middleware.Recover())
			m := start(t, cfg)
			eventually(t, "it takes effect", func() bool { p := m.Status().Partitions; return len(p) == 1 && p[0].Next == 1 })
			own, links := log.with("a message failed, another attempt follows"), log.with("an attempt has failed")
			if logging {
				if len(own) != 0 || len(links) != 9 {
					t.Errorf("%d lines of the runner and %d of Logging, want 0 and 9", len(own), len(links))
				}
			} else if len(own) != 4 || own[0]["error.type"] != "out_of_stock" || own[3]["einmal.attempt"] != 8.0 ||
				own[0]["einmal.delay_seconds"] == nil || own[0]["retry_at"] == nil {
				t.Errorf("%d lines, want those of the attempts 1, 2, 4 and 8: %v", len(own), own)
			}
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The line of Logging about a message that no attempt can handle says what is wrong. That the message stays, and when
// the next attempt is, is a line of the runner behind it, without a second copy of the error.
func TestWhatFollowsOnAnErrorForGoodIsLogged(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]consumer.HandlerFunc{
		"permanent": func(context.Context, *consumer.Message) error {
			return consumer.Permanent(errtype.New("refused", "it cannot be"))
		},
		"panic": func(context.Context, *consumer.Message) error { panic("refused") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			b.Produce(t, records(topic, 1, 1)...)
			var log journal
			cfg := config(b, group, topic, handler)
			cfg.Logger = log.logger()
			cfg.Middleware = []consumer.Middleware{middleware.Logging(cfg.Logger, nil), middleware.Recover()}
			m := start(t, cfg)
			const waits = "a message failed, what is ordered behind it waits"
			eventually(t, "the second attempt", func() bool { return len(log.with(waits)) == 2 })
			line := log.with(waits)[1]
			next, err := time.Parse(time.RFC3339Nano, fmt.Sprint(line["retry_at"]))
			written, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(line["time"]))
			wait := next.Sub(written)
			if err != nil || wait < time.Second || wait > 3*time.Second || line["einmal.delay_seconds"] != 2.0 ||
				line["einmal.attempt"] != 2.0 || line["level"] != "WARN" {
				t.Errorf("the second attempt: %v, %v", line, err)
			}
			if line["error"] != nil || line["error.type"] != nil || line["exception.stacktrace"] != nil {
				t.Errorf("it repeats the error: %v", line)
			}
			if err := m.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// deadTable takes every dead letter.
type deadTable struct{}

func (deadTable) Write(context.Context, *memstore.Tx, *deadletter.Record) error { return nil }

// The chain of docs/failures.md: each dead letter is a line, as far as the rate goes, and the rest are counted.
func TestDeadLettersAreLogged(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 30)...)
	var log journal
	store := memstore.New()
	cfg := config(b, group, topic, middleware.Dedup(store, func(context.Context, *memstore.Tx, *consumer.Message) error {
		return consumer.Permanent(errtype.New("refused", "it cannot be"))
	}, nil))
	tp := cfg.Topics[topic]
	tp.EventID = place
	cfg.Topics[topic] = tp
	cfg.Logger = log.logger()
	cfg.Middleware = []consumer.Middleware{middleware.DeadLetter(store, deadTable{},
		&middleware.DeadLetterConfig{PerSecond: -1}), middleware.Retry(3, nil), middleware.Recover()}
	m := start(t, cfg)
	eventually(t, "all are counted", func() bool {
		n := 0
		for _, l := range append(log.with("wrote a dead letter"), log.with("were left out")...) {
			if l["msg"] == "einmal: wrote a dead letter" {
				n++
				if l["error.type"] != "refused" {
					t.Fatalf("a line is %v", l)
				}
			}
			if more, ok := l["einmal.suppressed"].(float64); ok {
				n += int(more)
			}
		}
		return n == 30
	})
	if n := len(log.with("wrote a dead letter")); n < 10 || n >= 30 {
		t.Errorf("%d lines for 30 dead letters", n)
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}

// place is an event's id where a message is known by its place.
func place(msg *consumer.Message) (string, error) {
	return fmt.Sprintf("%s-%d-%d", msg.Topic, msg.Partition, msg.Offset), nil
}
