package janitor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/janitor"
	"github.com/einmal-go/einmal/middleware"
)

// Beside a consumer that works, with three janitors, a backlog goes away; no attempt fails for it, each event takes
// effect once, and no young record is lost.
func TestBesideAConsumer(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		const events, backlog = 500, 10_000
		db := open(t)
		db.run("create table effect (name text not null)")
		topic, group := b.Topic(t, 4), serverstest.Group(t)
		db.fill(group+"/"+topic, backlog, 9*day)
		var msgs []*sarama.ProducerMessage
		for i := range events * 2 { // each comes twice
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(i % 4), Value: sarama.StringEncoder("x"),
				Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(fmt.Sprint(i % events))}},
			})
		}
		b.Produce(t, msgs...)

		janitors := make([]*janitor.Janitor, 3)
		for i := range janitors {
			janitors[i] = db.newJanitor(func(cfg *janitor.Config) { cfg.Batch = 100 })
			_ = start(t, janitors[i].Run)
		}
		var handled, again atomic.Int32
		effect := func(ctx context.Context, tx pgx.Tx, _ *consumer.Message) error {
			_, err := tx.Exec(ctx, "insert into effect values ('x')")
			return err
		}
		counting := func(next consumer.Handler) consumer.Handler {
			return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
				if msg.Attempt > 1 {
					again.Add(1)
					t.Log("attempt", msg.Attempt, "after", msg.LastError)
				}
				err := next.Handle(ctx, msg)
				if err == nil {
					handled.Add(1)
				}
				return err
			})
		}
		end := start(t, func(ctx context.Context) error {
			return consumer.Run(ctx, consumer.Config{
				Brokers: b.Addrs, Group: group,
				Topics: map[string]consumer.Topic{topic: {
					Middleware: []consumer.Middleware{counting, middleware.Retry(5, nil), middleware.Recover()},
					Handler:    middleware.Dedup(pgxstore.New(db.Pool, nil), effect, &middleware.DedupConfig{Window: day}),
				}},
			})
		})
		eventually(t, "all are handled", func() bool { return handled.Load() == events*2 })
		deleted := func() (n int64) {
			for _, j := range janitors {
				n += j.Status().Tables[0].Deleted
			}
			return n
		}
		eventually(t, "the backlog is gone", func() bool { return deleted() == backlog })
		if err := end(); err != nil {
			t.Error(err)
		}
		if effects, records := value[int](db, "select count(*) from effect"),
			value[int](db, "select count(*) from processed_event"); effects != events || records != events {
			t.Errorf("%d effects and %d records of %d events", effects, records, events)
		}
		if n := again.Load(); n > 0 {
			t.Errorf("%d attempts were not the first", n)
		}
		for _, j := range janitors {
			if s := j.Status().Tables[0]; s.Failures > 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// A record is not deleted before an event with its time is refused, whatever the two clocks and the margin are.
func TestWhatIsDeletedIsRefused(t *testing.T) {
	t.Parallel()
	db := open(t)
	handler := middleware.Dedup(pgxstore.New(db.Pool, nil),
		func(context.Context, pgx.Tx, *consumer.Message) error { return nil }, &middleware.DedupConfig{Window: day})
	j := db.newJanitor(nil)
	for name, c := range map[string]struct {
		age     time.Duration
		deleted int64
	}{
		"within the window": {day - time.Minute, 0},
		"beyond it":         {day + time.Minute, 0},
		"beyond the margin": {day + janitor.DefaultMargin + time.Minute, 1},
	} {
		db.run("delete from processed_event")
		db.run("insert into processed_event (event_id, consumer_id, processed_at) values ('e', 'c', now() - $1::bigint * interval '1 microsecond')", c.age.Microseconds())
		if r := sweep(t, j); r.Deleted != c.deleted {
			t.Errorf("%s: %+v", name, r)
		}
		msg := &consumer.Message{Consumer: "c", EventID: "e", Timestamp: time.Now().Add(-c.age)}
		err := handler.Handle(t.Context(), msg)
		if ran := err == nil && !msg.Result.Duplicate; ran {
			t.Errorf("%s: the event took effect again", name)
		}
	}
}
