package observetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// episode provokes a condition, for real, and with it the alerts that are about it. It returns the scrape before and
// that with the condition.
type episode struct {
	name   string
	alerts []string
	run    func(w *world) (before, after scrape)
}

var errNoStock = errors.New("no stock")

func write(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1)", msg.EventID)
	return err
}

// handled waits until the consumer has committed effects.
func (w *world) handled(n float64) {
	w.Helper()
	w.eventually("messages are handled",
		func() bool { return w.scrape().sum("einmal_attempts_total", `einmal_outcome="success"`) == n })
}

var episodes = []episode{
	{"a message that never succeeds", []string{"EinmalMessageStuck", "EinmalFailureRate"},
		func(w *world) (scrape, scrape) {
			cfg := w.config(func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
				if string(msg.Key) == "stuck" {
					return consumer.RetryAfter(300*time.Millisecond, errNoStock)
				}
				return write(ctx, tx, msg)
			})
			w.consume(cfg)
			w.produce(w.record("1", "a", "1"))
			w.handled(1)
			before := w.scrape()
			w.produce(w.record("2", "stuck", "2"), w.record("3", "stuck", "3"), w.record("4", "b", "4"))
			w.eventually("the frontier is held back", func() bool {
				s := w.scrape()
				return s.sum("einmal_consumer_frontier_gap") == 3 && s.sum("einmal_consumer_failing_age_seconds") > 0 &&
					s.sum("einmal_attempts_total", `einmal_outcome="retry"`) > 3 && s.sum("einmal_consumer_parked") == 1
			})
			return before, w.scrape()
		}},
	{"a handler that hangs", []string{"EinmalHandlerStalled", "EinmalLagGrows"}, func(w *world) (scrape, scrape) {
		release := make(chan struct{})
		w.Cleanup(func() { close(release) })
		cfg := w.config(func(context.Context, pgx.Tx, *consumer.Message) error { <-release; return nil })
		cfg.Limits.PartitionMessages = 1000
		var batch []*sarama.ProducerMessage
		for range 12_000 {
			batch = append(batch, w.record("same", "k", "1"))
		}
		before := w.scrape()
		w.produce(batch...) // before it is consumed: the end of the log is known as of the last fetch, and a paused partition is not fetched
		w.consume(cfg)
		w.eventually("the partition is paused", func() bool {
			s := w.scrape()
			return s.sum("einmal_consumer_paused") == 1 && s.sum("einmal_consumer_paused_time_seconds_total") > 0 &&
				s.sum("einmal_consumer_in_flight") > 0 &&
				s.sum("einmal_consumer_lag") > 10_000 && s.sum("einmal_consumer_held_size_bytes") > 0
		})
		return before, w.scrape()
	}},
	{"a handler that outlasts the drain", []string{"EinmalDrainsCut", "EinmalNotReady", "EinmalProcessNotReady"},
		func(w *world) (scrape, scrape) {
			started := make(chan struct{}, 100)
			cfg := w.config(func(ctx context.Context, _ pgx.Tx, _ *consumer.Message) error {
				started <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			cfg.DrainTimeout = 50 * time.Millisecond
			_, stop := w.consume(cfg)
			w.produce(w.record("1", "a", "1"))
			<-started
			before := w.scrape()
			stop()
			return before, w.scrape()
		}},
	{"events that cannot be handled", []string{"EinmalDeadLetters", "EinmalTooOld"}, func(w *world) (scrape, scrape) {
		w.consume(w.config(func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
			if string(msg.Key) == "bad" {
				return consumer.Permanent(errNoStock)
			}
			return write(ctx, tx, msg)
		}))
		w.produce(w.record("1", "a", "1"), w.record("1", "a", "1"))
		w.handled(1)
		before := w.scrape()
		old := w.record("3", "a", "3")
		old.Timestamp = time.Now().Add(-48 * time.Hour)
		w.produce(w.record("2", "bad", "2"), old)
		w.eventually("both are dead letters", func() bool { return w.scrape().sum("einmal_dead_letters_total") == 2 })
		return before, w.scrape()
	}},
	{"messages that share transactions", nil, func(w *world) (scrape, scrape) {
		const messages = 30 // three of them fail at first, of which two at most run by themselves
		var failed sync.Map
		all := make(chan struct{})
		h := func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
			select {
			case <-all: // those that run by themselves wait while the others gather
			case <-ctx.Done():
			}
			if _, again := failed.LoadOrStore(msg.EventID, true); !again && strings.HasSuffix(msg.EventID, "5") {
				return errNoStock
			}
			return write(ctx, tx, msg)
		}
		cfg := w.config(h)
		topic := cfg.Topics[w.topic]
		topic.Workers = 2 * messages
		topic.Handler = middleware.Dedup(pgxstore.New(w.pool, &pgxstore.Config{Group: messages}), txHandler(h),
			&middleware.DedupConfig{Window: 24 * time.Hour})
		cfg.Topics[w.topic] = topic
		c, _ := w.consume(cfg)
		before := w.scrape()
		var batch []*sarama.ProducerMessage
		for i := range messages {
			batch = append(batch, w.record(fmt.Sprint(i), fmt.Sprint(i), "1"))
		}
		w.produce(batch...) // together: a message that waits for longer than 10 s comes again
		w.eventually("all are in work", func() bool {
			p := c.Status().Partitions
			return len(p) == 1 &&
				p[0].Running == messages
		})
		close(all)
		w.handled(messages)
		s := w.scrape()
		if n := s.sum("einmal_groups_rolled_back_total", `einmal_group_failure="function"`); n < 1 {
			w.Errorf("%v groups were rolled back", n)
		}
		stats := c.Status().Totals.Topics[0].Groups
		if stats == nil || stats.Calls != messages || stats.RolledBack < 1 || stats.Transactions >= messages {
			w.Errorf("the status of the groups is %+v", stats)
		}
		return before, s
	}},
	{"connections that are lost during COMMIT", []string{"EinmalOutcomeUnknown"}, func(w *world) (scrape, scrape) {
		cut := w.cutCommits()
		w.consume(w.config(write))
		w.produce(w.record("1", "a", "1"))
		w.handled(1)
		before := w.scrape()
		cut.Store(7)
		for range 7 {
			w.produce(w.record(outbox.NewID(), "a", "2"))
		}
		w.eventually("outcomes are unknown", func() bool {
			s := w.scrape()
			return s.sum("einmal_transactions_total", `einmal_transaction_outcome="unknown"`) == 7
		})
		return before, w.scrape()
	}},
	{"memberships that end at once", []string{"EinmalRebalancesWithoutEnd"}, func(w *world) (scrape, scrape) {
		w.consume(w.config(write))
		w.eventually("it is ready", func() bool {
			return w.scrape().sum("einmal_consumer_ready") == 1
		})
		before := w.scrape()
		w.b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownServerError, Count: -1, Group: w.group,
			TopLevel: true})
		w.eventually("sessions are short", func() bool {
			return w.scrape().sum("einmal_consumer_short_sessions_total")-before.sum("einmal_consumer_short_sessions_total") > 6
		})
		return before, w.scrape()
	}},
	{"a partition that cannot be read", []string{"EinmalPartitionUnreadable"}, func(w *world) (scrape, scrape) {
		w.consume(w.config(write))
		w.produce(w.record("1", "a", "1"))
		w.handled(1)
		before := w.scrape()
		w.b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.CorruptMessage, Count: -1, Topic: w.topic,
			Partitions: []int32{0}})
		w.produce(w.record("2", "a", "2"))
		w.eventually("the partition cannot be read", func() bool { return w.scrape().sum("einmal_consumer_unreadable") == 1 })
		return before, w.scrape()
	}},
	{"commits that are refused", []string{"EinmalCommitsStopped"}, func(w *world) (scrape, scrape) {
		w.consume(w.config(write))
		w.produce(w.record("1", "a", "1"))
		w.handled(1)
		w.eventually("it is committed", func() bool {
			s := w.scrape()
			return s.sum("einmal_consumer_committed") == 1 && s.sum("einmal_consumer_uncommitted_age_seconds") == 0
		})
		before := w.scrape()
		w.b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.NotCoordinator, Count: -1})
		w.produce(w.record("2", "a", "2"))
		w.eventually("it is not committed",
			func() bool { return w.scrape().sum("einmal_consumer_uncommitted_age_seconds") > 3 })
		return before, w.scrape()
	}},
	{"an offset beyond the end", []string{"EinmalOffsetOutOfRange"}, func(w *world) (scrape, scrape) {
		w.produce(w.record("1", "a", "1"))
		first, err := consumer.New(w.config(write))
		w.must(err)
		stop := w.run(first.Run)
		w.handled(1)
		stop()
		w.commit(1000)
		c, _ := w.consume(w.config(write))
		before := w.scrape()
		w.eventually("it is told", func() bool { return c.Status().Totals.Topics[0].OutOfRange == 1 })
		return before, w.scrape()
	}},
	{"an event that nobody can send", []string{"EinmalOutboxBlocked", "EinmalOutboxLate"},
		func(w *world) (scrape, scrape) {
			r, _ := w.relay(func(*relay.Config) {})
			w.write(outbox.Event{ID: "1", Topic: w.topic, Key: []byte("k")})
			w.eventually("it is sent", func() bool { return w.scrape().sum("einmal_outbox_published_total") == 1 })
			w.eventually("the table was looked at", func() bool { return w.scrape().has("einmal_outbox_backlog") })
			before := w.scrape()
			w.exec("insert into outbox_event (event_id, topic, partition_key) values ('2', 'no such topic', 'k')")
			w.exec("insert into outbox_event (event_id, topic, partition_key) values ('3', 'no such topic', 'k')")
			w.eventually("it is blocked, and what is behind it waits", func() bool {
				s := r.Status()
				return s.Blocked > 0 &&
					s.Backlog > 0 && s.OldestAge > 0
			})
			return before, w.scrape()
		}},
	{"an outbox that is stopped", []string{"EinmalOutboxNotRunning", "EinmalOutboxUnseen", "EinmalRelayUnhealthy"},
		func(w *world) (scrape, scrape) {
			r, stop := w.relay(func(*relay.Config) {})
			w.eventually("the table was looked at", func() bool { return !r.Status().Seen.IsZero() })
			before := w.scrape()
			stop()
			return before, w.scrape()
		}},
	{"a relay that loses its lease", []string{"EinmalOutboxLeaseLost"}, func(w *world) (scrape, scrape) {
		w.write(outbox.Event{ID: "1", Topic: w.topic, Key: []byte("k")})
		w.exec(`update outbox_event set status = 'PUBLISHING', claims = 1, claim_epoch = 1, claimed_until = clock_timestamp() + interval '1 hour'`)
		w.exec(`insert into outbox_lease (bucket, owner, epoch, leased_until) select distinct bucket, 'dead', 1, now() - interval '1 second' from outbox_event`)
		db := &losing{w: w}
		w.relay(func(c *relay.Config) {
			db.Database = c.Database
			c.Database, c.Mode = db, outbox.TwoPhase
		})
		w.write(outbox.Event{ID: "2", Topic: w.topic, Key: []byte("k")})
		w.eventually("rows of the dead one are taken back and sent", func() bool {
			s := w.scrape()
			return s.sum("einmal_outbox_returned_total") == 1 && s.sum("einmal_outbox_published_total") == 2
		})
		before := w.scrape()
		db.armed.Store(true)
		w.write(outbox.Event{ID: "3", Topic: w.topic, Key: []byte("k")})
		w.eventually("the lease is lost", func() bool { return w.scrape().sum("einmal_outbox_lease_lost_total") == 1 })
		after := w.scrape()
		w.eventually("claimed rows are seen", func() bool { return w.scrape().sum("einmal_outbox_in_flight") == 1 })
		return before, after
	}},
	{"processes that are gone", []string{"EinmalConsumerGone", "EinmalOutboxGone", "EinmalNothingExported"},
		func(w *world) (scrape, scrape) {
			_, stopConsumer := w.consume(w.config(write))
			_, stopRelay := w.relay(func(*relay.Config) {})
			w.eventually("both run", func() bool {
				s := w.scrape()
				return s.sum("einmal_consumer_ready") == 1 && s.sum("einmal_outbox_running") == 1
			})
			before := w.scrape()
			stopConsumer()
			stopRelay()
			return before, scrape{} // nobody answers
		}},
	{"an outbox without Kafka", nil, func(w *world) (scrape, scrape) {
		w.write(outbox.Event{ID: "1", Topic: w.topic, Key: []byte("k")})
		w.relay(func(c *relay.Config) { c.Brokers = []string{"127.0.0.1:1"} })
		before := w.scrape()
		w.eventually("it is paused", func() bool {
			s := w.scrape()
			return s.sum("einmal_outbox_paused") == 1 && s.sum("einmal_outbox_errors_total") > 0
		})
		return before, w.scrape()
	}},
	{"a table that cannot be swept", []string{"EinmalJanitorFails"}, func(w *world) (scrape, scrape) {
		const day = 24 * time.Hour
		w.exec("insert into processed_event (event_id, consumer_id, processed_at) select n::text, 'c', now() - interval '9 days' from generate_series(1, 10) n")
		w.exec(`create table ranges (event_id uuid not null, consumer_id text collate "C" not null, primary key (event_id, consumer_id)) partition by range (event_id)`)
		w.exec("create table ranges_old partition of ranges for values from ('01800000-0000-0000-0000-000000000000') to ('01800001-0000-0000-0000-000000000000')")
		j := w.janitor(
			janitor.Table{Name: "processed_event", Column: "processed_at", Keep: 3 * day},
			janitor.Table{Name: "ranges", Keep: 3 * day, Partitions: &janitor.Partitions{}},
		)
		_, err := j.Sweep(w.Context())
		w.must(err)
		before := w.scrape()
		w.exec("drop table processed_event")
		for range 3 {
			if _, err := j.Sweep(w.Context()); err == nil {
				w.Fatal("a table that is not there was swept")
			}
		}
		return before, w.scrape()
	}},
	{"requests whose COMMIT is lost", []string{"EinmalRequestsUnavailable"}, func(w *world) (scrape, scrape) {
		cut := w.cutCommits()
		pay := w.served()
		for range 2 {
			if status := pay("first", "{}"); status != http.StatusOK {
				w.Fatalf("answered %d", status)
			}
		}
		before := w.scrape()
		for outcome, n := range map[string]float64{"first": 1, "replayed": 1, "unavailable": 0, "other_request": 0} {
			if got := before.sum("einmal_idempotency_requests_total", `http_route="/orders/{id}/pay"`,
				`einmal_idempotency_outcome="`+outcome+`"`); got != n {
				w.Errorf("%s: %v, want %v", outcome, got, n)
			}
		}
		cut.Store(3)
		for i := range 3 {
			if status := pay(fmt.Sprint(i), "{}"); status != http.StatusServiceUnavailable {
				w.Errorf("answered %d", status)
			}
		}
		return before, w.scrape()
	}},
}

// TestEpisodes: each condition is provoked, each instrument of docs/metrics.md moves in one of them, with the
// attributes that stand there, each alert of docs/alerts fires at one, and each panel of docs/dashboards shows
// something.
func TestEpisodes(t *testing.T) { //nolint:tparallel // the subtest "each" waits for those that are parallel in it
	t.Parallel()
	seen := newMovements()
	var rules ruleTest
	var exported allSeries
	t.Run("each", func(t *testing.T) {
		for _, e := range episodes {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				before, after := e.run(w)
				seen.add(w.seen.all)
				exported.add(before, after)
				for _, alert := range e.alerts {
					rules.add(alert, before, after)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	seen.check(t)
	rules.check(t)
	exported.checkDashboard(t)
}
