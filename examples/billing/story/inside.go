package story

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
)

// envRole holds, in a process that the story has started, what the story does inside of it.
const envRole = "BILLING_STORY"

// part is the text of envRole, in JSON.
type part struct {
	Name     string  `json:"name"`     // in the table delivery
	Database string  `json:"database"` // URL of the story's own schema
	Mode     Mode    `json:"mode"`
	Drop     float64 `json:"drop"` // how many of the answers are lost, from 0 to 1
	Brokers  string  `json:"brokers"`
}

// Inside is what the story does inside of a process: it counts, loses answers, hurries the group, and kills at the
// worst moments. A nil Inside does nothing: the process was started by somebody else.
type Inside struct {
	part
	out   io.Writer
	armed atomic.Bool
	pool  *pgxpool.Pool
}

// up is what a process writes to standard output when it is ready for signals.
const up = "up"

// dieAfterCommit is the line on standard input that arms a process: it kills itself after its next COMMIT.
const dieAfterCommit = "die after commit"

// Enter returns the story's Inside, nil if this process is in none. It reads standard input until the story is gone,
// and ends the process then.
func Enter(ctx context.Context, stdout io.Writer) (*Inside, error) {
	text := os.Getenv(envRole)
	if text == "" {
		return nil, nil //nolint:nilnil // nil does nothing
	}
	i := &Inside{out: stdout}
	if err := json.Unmarshal([]byte(text), &i.part); err != nil {
		return nil, fmt.Errorf("%s: %w: it is set by the story, unset it", envRole, err)
	}
	cfg, err := pgxpool.ParseConfig(i.Database)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 2
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off" // the counts survive this process, and need not survive the database
	if i.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	fmt.Fprintln(stdout, up)
	go i.listen(os.Stdin)
	return i, nil
}

// Leave ends the counting.
func (i *Inside) Leave() {
	if i != nil {
		i.pool.Close()
	}
}

// Is reports whether this process is to work as services of that kind do. One that is in no story works with einmal.
func (i *Inside) Is(mode Mode) bool { return i != nil && i.Mode == mode || i == nil && mode == Einmal }

// listen reads what the story says. At the end of it, the story is gone.
func (i *Inside) listen(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == dieAfterCommit {
			i.armed.Store(true)
		}
	}
	os.Exit(1)
}

// Committed kills this process if the story asked for it. It does not return then.
func (i *Inside) Committed(where string) {
	if i == nil || !i.armed.CompareAndSwap(true, false) {
		return
	}
	fmt.Fprintln(i.out, where)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Links are the outermost links of a chain: one counts what is delivered, the other one sees that an effect is
// committed when the runner does not know yet. No point is worse for a consumer to die at.
func (i *Inside) Links() []consumer.Middleware {
	if i == nil {
		return nil
	}
	return []consumer.Middleware{i.afterCommit, i.count}
}

func (i *Inside) afterCommit(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		err := next.Handle(ctx, msg)
		if err == nil && !msg.Result.Duplicate {
			i.Committed(BeforeMark(msg.Partition, msg.Offset))
		}
		return err
	})
}

// BeforeMark is the place of a message whose effect is committed, and whose offset is not.
func BeforeMark(partition int32, offset int64) string {
	return fmt.Sprintf("between COMMIT and mark, at partition %d offset %d", partition, offset)
}

func (i *Inside) count(next consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
		if err := i.Delivered(ctx, msg.Topic, msg.Partition, msg.Offset); err != nil {
			return err
		}
		return next.Handle(ctx, msg)
	})
}

// deliveryTable counts what consumers were given, and lostTable the answers that were not given. Both are written
// outside of the transactions that are under test.
const deliveryTable = `
CREATE TABLE delivery (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	process   text   NOT NULL,
	topic     text   NOT NULL,
	partition int    NOT NULL,
	"offset"  bigint NOT NULL
);
CREATE TABLE lost_answer (process text NOT NULL);`

// Delivered counts a delivery, before anything is done with it.
func (i *Inside) Delivered(ctx context.Context, topic string, partition int32, offset int64) error {
	if i == nil {
		return nil
	}
	_, err := i.pool.Exec(context.WithoutCancel(ctx),
		`INSERT INTO delivery (process, topic, partition, "offset") VALUES ($1, $2, $3, $4)`,
		i.Name, topic, partition, offset)
	if err != nil {
		return fmt.Errorf("count a delivery: %w", err)
	}
	return nil
}

// Answers stands around an HTTP service. Some answers never reach the client: the connection breaks when all is
// committed.
func (i *Inside) Answers(next http.Handler) http.Handler {
	if i == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := &heldAnswer{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(held, r)
		if held.status < http.StatusBadRequest {
			i.Committed("between COMMIT and answer")
		}
		if rand.Float64() < i.Drop { //nolint:gosec // not a secret
			_, _ = i.pool.Exec(context.WithoutCancel(r.Context()), `INSERT INTO lost_answer VALUES ($1)`, i.Name)
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(held.status)
		_, _ = w.Write(held.body.Bytes())
	})
}

// heldAnswer keeps an answer back.
type heldAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heldAnswer) Header() http.Header         { return h.header }
func (h *heldAnswer) WriteHeader(status int)      { h.status = status }
func (h *heldAnswer) Write(b []byte) (int, error) { return h.body.Write(b) }

// Hurry shortens the time-outs of a group. A rebalance waits for a member that was killed until Rebalance.Timeout is
// over; with the defaults the story would take minutes. 6 s is the shortest session that a Kafka cluster allows by
// default.
func (i *Inside) Hurry() func(*sarama.Config) {
	if i == nil {
		return nil
	}
	return func(c *sarama.Config) {
		c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
		c.Consumer.Group.Rebalance.Timeout = time.Second
		c.Net.ReadTimeout = 4 * time.Second
		c.Consumer.Group.Session.Timeout = 6 * time.Second
	}
}

// Addrs are the brokers, for those who publish without an outbox.
func (i *Inside) Addrs() []string { return strings.Split(i.Brokers, ",") }
