package crashtest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// looping makes a topic in which one event ends the process. Its dead letter is an effect, too, for the world's
// watchers.
func (c *child) looping(pool *pgxpool.Pool, t *consumer.Topic) {
	table, plain := pgxdeadletter.New(pool, nil), pgxstore.New(pool, nil)
	write := deadletter.WriterFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, rec *deadletter.Record) error {
		return errors.Join(table.Write(ctx, tx, rec), takeEffect(ctx, tx, rec.Message(), c.Name))
	})
	t.Middleware = append([]consumer.Middleware{middleware.DeadLetter(plain, write, nil),
		middleware.CrashLoop(table.Starts(), nil)}, t.Middleware...)
	event := c.Event
	c.Event = "" // it is not to be struck
	t.Handler = middleware.Dedup(plain, func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		if msg.EventID == event {
			time.Sleep(10 * time.Millisecond) // for others to be in work
			os.Exit(exitStatus)
		}
		return c.handle(ctx, tx, msg)
	}, nil)
}

// A handler that ends the process each time is given up after some restarts, whatever the order; what was in work
// beside it is not.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	for _, order := range []consumer.Order{consumer.PartitionOrder, consumer.KeyOrder, consumer.Unordered} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
				w := newWorld(t, b, 1)
				w.exec(schema.Postgres.SQL(nil, schema.DeadLetter, schema.CrashLoop))
				w.produceMany(3 * inAll)
				const most = 5 // the first end is not counted unless the message was among the first ones
				ends := 0
				for ; ends <= most; ends++ {
					o := w.member("process" + strconv.Itoa(ends))
					o.CrashLoop, o.Event, o.Order, o.Work = true, event5, order, 20*time.Millisecond
					p := start(t, o)
					eventually(t, "the process ends, or the end of the topic is committed", func() bool {
						return p.Ended() || w.check()[0] == 3*inAll
					})
					if !p.Ended() {
						p.Stop()
						break
					}
					if code := p.Cmd.ProcessState.ExitCode(); code != exitStatus {
						t.Fatalf("%s ended with %d", p.Name, code)
					}
					w.awaitNoSession(p.Name)
				}
				if ends < 3 || ends > 4 {
					t.Errorf("the process has ended %d times, want 3 or 4", ends)
				}
				w.wantOnce()
				if dead := query[string](w, "select string_agg(event_id || ' ' || kind, ', ') from dead_message"); dead != event5+
					" crash_loop" {
					t.Errorf("dead letters: %s", dead)
				}
				if left := query[string](w, "select string_agg(event_id || ' ' || starts, ', ') from started_message"); left != event5+" 3" {
					t.Errorf("counted: %s", left)
				}
			})
		})
	}
}
