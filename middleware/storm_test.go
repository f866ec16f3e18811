package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

var stormFor = flag.Duration("middleware.storm", 3*time.Second, "how long every message fails in TestStormOnAConsumer")

const (
	stormPartitions = 4
	stormRate       = 10             // dead letters a second, the default of DeadLetterConfig.PerSecond
	stormBurst      = 10 * stormRate // dead letters that are written at once
	stormValue      = 200            // bytes
	stormLines      = 2 * 10 * 60    // lines of the log a minute: two kinds, each at LoggingConfig.PerSecond
)

// Every message fails, on a whole consumer: dead letters come at their rate and each once, no partition is lost, and
// neither memory, goroutines nor the log grow with the time that it takes.
//
//nolint:paralleltest // it looks at the memory and the goroutines of the process
func TestStormOnAConsumer(t *testing.T) {
	s := newStorm(t)
	warm := stormBurst + int(stormFor.Seconds()*stormRate)/5 // until everything has the size that it needs
	s.until(t, warm)
	before, most, began := s.usage(), stormUsage{}, time.Now()
	const looks = 20
	for look := range looks {
		s.until(t, warm+int(stormFor.Seconds()*stormRate)*(look+1)/looks)
		most = most.max(s.usage())
	}
	took, dead := time.Since(began), s.count(t)
	t.Logf("%d dead letters and %d lines in %v; before: %v; at most: %v", dead, s.lines.Load(), took.Round(time.Second),
		before, most)
	if limit := warm + stormRate*(1+int(took.Seconds()+1)); dead > limit+stormPartitions {
		t.Errorf("%d dead letters in %v, want at most %d", dead, took, limit)
	}
	if limit := int64(stormLines * (2 + took.Minutes())); s.lines.Load() > limit {
		t.Errorf("%d lines in the log, want at most %d", s.lines.Load(), limit)
	}
	if most.goroutines > before.goroutines+20 || most.heap > before.heap+8<<20 {
		t.Errorf("not flat: %v before, %v later", before, most)
	}
	if s.assigned.Load() != stormPartitions || s.revoked.Load() != 0 {
		t.Errorf("%d assigned, %d revoked: want each partition once, for good", s.assigned.Load(), s.revoked.Load())
	}
	if records := s.value(t, "select count(*) from processed_event"); records < dead {
		t.Errorf("%d dead letters, %d records", dead, records)
	}
	if twice := s.value(t, "select count(*) from (select 1 from dead_message group by topic, partition, kafka_offset having count(*) > 1) d"); twice > 0 {
		t.Errorf("%d messages are dead twice", twice)
	}
	s.stop(t)
}

// storm is a consumer of messages of which each fails, with default limits but for those of memory: its partitions are
// paused.
type storm struct {
	pool                     *pgxpool.Pool
	lines, assigned, revoked atomic.Int64
	stop                     func(t *testing.T)
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{pool: serverstest.Pool(t)}
	exec := func(ctx context.Context, sql string) error {
		_, err := s.pool.Exec(ctx, sql)
		return err
	}
	if err := schema.Postgres.Apply(t.Context(), exec, nil, schema.Dedup, schema.DeadLetter); err != nil {
		t.Fatal(err)
	}
	b := serverstest.InProcess(t)
	topic := b.Topic(t, stormPartitions)
	s.produce(t, b, topic)
	c, err := consumer.New(s.config(b, serverstest.Group(t), topic))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	s.stop = func(t *testing.T) {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(cancel)
	return s
}

// produce appends more messages than can die in time, before anything is measured: the log of the broker is in this
// process.
func (s *storm) produce(t *testing.T, b *serverstest.Broker, topic string) {
	t.Helper()
	const batch = 1000
	for n := 0; n < 2*stormBurst+8*batch+3*stormRate*int(stormFor.Seconds()); n += batch {
		var msgs []*sarama.ProducerMessage
		for i := n; i < n+batch; i++ {
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(i % stormPartitions), Value: sarama.ByteEncoder(make([]byte, stormValue)),
				Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, "event-", i)}},
			})
		}
		b.Produce(t, msgs...)
	}
}

func (s *storm) config(b *serverstest.Broker, group, topic string) consumer.Config {
	log := slog.New(slog.NewTextHandler(counter{&s.lines}, nil))
	store := pgxstore.New(s.pool, nil)
	return consumer.Config{
		Brokers: b.Addrs, Group: group, Logger: log,
		Limits: consumer.Limits{PartitionMessages: 1000},
		Hooks: consumer.Hooks{
			Assigned: func(string, int32) { s.assigned.Add(1) },
			Revoked:  func(string, int32, time.Duration) { s.revoked.Add(1) },
		},
		Middleware: []consumer.Middleware{
			middleware.Logging(log, nil),
			middleware.DeadLetter(store, pgxdeadletter.New(s.pool, nil), &middleware.DeadLetterConfig{Logger: log}),
			middleware.Retry(2, &middleware.RetryConfig{Base: time.Millisecond, Max: time.Millisecond}), middleware.Recover(),
		},
		Topics: map[string]consumer.Topic{topic: {
			Order: consumer.Unordered,
			Handler: middleware.Dedup(store, func(context.Context, pgx.Tx, *consumer.Message) error {
				return errors.New("the warehouse is closed")
			}, nil),
		}},
	}
}

// until waits for so many dead letters.
func (s *storm) until(t *testing.T, dead int) {
	t.Helper()
	for deadline := time.Now().Add(*stormFor + time.Minute); s.count(t) < dead; time.Sleep(max(20*time.Millisecond,
		*stormFor/2000)) {
		if time.Now().After(deadline) {
			t.Fatalf("%d dead letters, want %d", s.count(t), dead)
		}
	}
}

func (s *storm) count(t *testing.T) int {
	t.Helper()
	return s.value(t, "select count(*) from dead_message")
}

func (s *storm) value(t *testing.T, sql string) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// stormUsage is what the process holds.
type stormUsage struct {
	goroutines int
	heap       uint64
}

func (*storm) usage() stormUsage {
	runtime.GC()
	runtime.GC() // what pools hold survives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return stormUsage{runtime.NumGoroutine(), m.HeapAlloc}
}

func (u stormUsage) max(v stormUsage) stormUsage {
	return stormUsage{max(u.goroutines, v.goroutines), max(u.heap, v.heap)}
}

func (u stormUsage) String() string {
	return fmt.Sprintf("%d goroutines, %d KiB on the heap", u.goroutines, u.heap>>10)
}

// counter is a log of which only the number of lines is kept.
type counter struct{ lines *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}
