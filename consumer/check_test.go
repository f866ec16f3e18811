package consumer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// checked is a link that can tell whether it will work.
type checked struct {
	consumer.Handler
	check func(ctx context.Context) error
}

func (c *checked) Check(ctx context.Context) error { return c.check(ctx) }

func checking(check func(ctx context.Context) error) consumer.Handler { return &checked{nop, check} }

var errTable = errors.New("table processed_event is missing")

// Missing topics and a link that would fail are one error.
func TestAllThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	failing := checking(func(context.Context) error { return errTable })
	errIsolation := errors.New("isolation is serializable")
	cfg := config(b, serverstest.Group(t), topic, failing)
	cfg.Middleware = []consumer.Middleware{func(next consumer.Handler) consumer.Handler {
		return &checked{next, func(context.Context) error { return errIsolation }}
	}}
	cfg.Topics["missing-b"] = consumer.Topic{Handler: failing}
	cfg.Topics["missing-a"] = consumer.Topic{Handler: nop}
	err := startError(t, cfg, 5*time.Second)
	says(t, err, `topics that do not exist: "missing-a", "missing-b"`, `topics "`+topic+`", "missing-a", "missing-b": `+
		errIsolation.Error(),
		`topics "`+topic+`", "missing-b": `+errTable.Error())
	if !errors.Is(err, errTable) || !errors.Is(err, errIsolation) {
		t.Errorf("the causes are lost: %v", err)
	}
	if n := strings.Count(err.Error(), errTable.Error()); n != 1 {
		t.Errorf("the table is named %d times, want once for all topics: %v", n, err)
	}
}

func TestCheckThatFailsIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	var asked atomic.Int32
	err := startError(t, config(b, serverstest.Group(t), b.Topic(t, 1), checking(func(context.Context) error {
		asked.Add(1)
		return errTable
	})), 0)
	if !errors.Is(err, errTable) || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// A database that starts beside the service: the check asks for a delay until it is there.
func TestCheckIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	b.Produce(t, records(topic, 1, 1)...)
	var s seen
	var asked atomic.Int32
	m := start(t, config(b, serverstest.Group(t), topic, &checked{&s, func(context.Context) error {
		if asked.Add(1) <= 2 {
			return consumer.RetryAfter(10*time.Millisecond, errors.New("the database system is starting up"))
		}
		return nil
	}}))
	eventually(t, "a message is handled", func() bool { return s.len() == 1 })
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// What does not come up within StartTimeout is the error.
func TestCheckThatNeverSucceeds(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	for name, delay := range map[string]time.Duration{"short": time.Millisecond, "longer than StartTimeout": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := b.Topic(t, 1)
			errDown := errors.New("the database is down")
			cfg := config(b, serverstest.Group(t), topic,
				checking(func(context.Context) error { return consumer.RetryAfter(delay, errDown) }))
			cfg.StartTimeout = brief
			err := startError(t, cfg, cfg.StartTimeout)
			says(t, err, topic)
			if !errors.Is(err, errDown) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}

// An answer that the end of StartTimeout cuts short tells less than the one before it, which is the error.
func TestCheckThatIsCutShort(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	errDown := errors.New("the database is down")
	var asked atomic.Int32
	cfg := config(b, serverstest.Group(t), b.Topic(t, 1), checking(func(ctx context.Context) error {
		if asked.Add(1) == 1 {
			return consumer.RetryAfter(time.Millisecond, errDown)
		}
		<-ctx.Done()
		return consumer.RetryAfter(time.Millisecond, ctx.Err())
	}))
	cfg.StartTimeout = brief
	if err := startError(t, cfg, cfg.StartTimeout); !errors.Is(err, errDown) {
		t.Errorf("Run returned %v", err)
	}
}

// Check has a context that ends with StartTimeout.
func TestCheckThatHangs(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	cfg := config(b, serverstest.Group(t), b.Topic(t, 1), checking(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	cfg.StartTimeout = brief
	if err := startError(t, cfg, cfg.StartTimeout); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run returned %v", err)
	}
}

// The links of branches are asked too.
func TestChecksOfBranches(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	cfg := config(b, serverstest.Group(t), b.Topic(t, 1), nop)
	cfg.Middleware = []consumer.Middleware{branchesOf(nil, []consumer.Handler{nop, &branching{nop, [][]consumer.Handler{
		{checking(func(context.Context) error { return errTable })},
	}}})}
	if err := startError(t, cfg, 0); !errors.Is(err, errTable) {
		t.Errorf("Run returned %v", err)
	}
}

// The check that matters most: the table of a real store. The error is a line that names the command that prints the
// SQL, after which the next start succeeds.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	b, pool := serverstest.InProcess(t), serverstest.Pool(t)
	topic := b.Topic(t, 1)
	b.Produce(t, records(topic, 1, 2)...)
	var s seen
	charge := func(ctx context.Context, _ pgx.Tx, msg *consumer.Message) error { return s.Handle(ctx, msg) }
	h := middleware.Dedup(pgxstore.New(pool, nil), charge, nil)
	cfg := config(b, serverstest.Group(t), topic, h)
	cfg.Middleware = []consumer.Middleware{middleware.Retry(3, nil), middleware.Recover()}
	cfg.Topics["missing"] = consumer.Topic{Handler: h}

	err := startError(t, cfg, 5*time.Second)
	sql := schema.Postgres.SQL(&schema.Config{Tables: map[string]string{"processed_event": "processed_event"}},
		schema.Dedup)
	says(t, err, `topics that do not exist: "missing"`, `topics "`+topic+`", "missing": `, `table "processed_event"`)
	const hint = "does not exist; run: what this prints: einmal schema print -db postgres dedup"
	if n := strings.Count(err.Error(), hint); n != 1 || strings.Contains(err.Error(), "create table") {
		t.Errorf("%q has %d times %q, want once, and no statement", err, n, hint)
	}

	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	delete(cfg.Topics, "missing")
	m := start(t, cfg)
	eventually(t, "the messages are handled", func() bool { return s.len() == 2 })
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// A database that does not answer yet is waited for.
func TestDatabaseThatStartsLater(t *testing.T) {
	t.Parallel()
	conf, err := pgxpool.ParseConfig(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	var up atomic.Bool
	var refused atomic.Int32
	dial := conf.ConnConfig.DialFunc
	conf.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !up.Load() {
			refused.Add(1)
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	b.Produce(t, records(topic, 1, 1)...)
	var s seen
	charge := func(ctx context.Context, _ pgx.Tx, msg *consumer.Message) error { return s.Handle(ctx, msg) }
	m := start(t, config(b, serverstest.Group(t), topic, middleware.Dedup(pgxstore.New(pool, nil), charge, nil)))
	eventually(t, "the check is repeated", func() bool { return refused.Load() > 1 })
	if p := m.Status().Phase; p != consumer.Starting {
		t.Errorf("phase %s, want starting", p)
	}
	up.Store(true)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Dedup)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is handled", func() bool { return s.len() == 1 })
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

// What waiting does not cure is told at once, although another link of the topic asks for a delay.
func TestCheckThatFailsBesideOneThatWaits(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	errDown := errors.New("the database is down")
	waits := checking(func(context.Context) error { return consumer.RetryAfter(10*time.Millisecond, errDown) })
	cfg := config(b, serverstest.Group(t), b.Topic(t, 1), waits)
	cfg.Middleware = []consumer.Middleware{func(next consumer.Handler) consumer.Handler {
		return &checked{next, func(context.Context) error { return errTable }}
	}}
	if err := startError(t, cfg, 0); !errors.Is(err, errTable) || !errors.Is(err, errDown) {
		t.Errorf("Run returned %v", err)
	}
}

// Topics are asked side by side: the one that waits leaves the others their time.
func TestCheckOfOneTopicDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := b.Topic(t, 1)
	cfg := config(b, serverstest.Group(t), topic,
		checking(func(context.Context) error { return consumer.RetryAfter(time.Hour, errors.New("down")) }))
	var ended atomic.Bool
	last := topic + "-last"
	cfg.Topics[last] = consumer.Topic{Handler: checking(func(ctx context.Context) error {
		ended.Store(ctx.Err() != nil)
		return ctx.Err()
	})}
	cfg.StartTimeout = brief
	err := startError(t, cfg, cfg.StartTimeout)
	if ended.Load() || strings.Contains(err.Error(), `topic "`+last+`": `) {
		t.Errorf("the last topic was asked when the time was over: %v", err)
	}
}

// A link that asks for no delay makes no hot loop.
func TestCheckThatAsksForNoDelay(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	var asked atomic.Int64
	cfg := config(b, serverstest.Group(t), b.Topic(t, 1), checking(func(context.Context) error {
		asked.Add(1)
		return consumer.RetryAfter(-time.Hour, errTable)
	}))
	cfg.StartTimeout = brief
	says(t, startError(t, cfg, cfg.StartTimeout), errTable.Error())
	if n := asked.Load(); n < 2 || n > 10*int64(brief/time.Second) {
		t.Errorf("asked %d times in %v", n, brief)
	}
}

func TestCheckThatPanics(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	err := startError(t, config(b, serverstest.Group(t), b.Topic(t, 1),
		checking(func(context.Context) error { panic("no pool") })), 0)
	says(t, err, "check: panic: no pool")
}

// A Check that ignores its context keeps neither the error nor the end from coming.
func TestCheckThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	release, asked := make(chan struct{}), make(chan struct{}, 2)
	defer close(release)
	cfg := config(b, serverstest.Group(t), b.Topic(t, 1), checking(func(context.Context) error {
		asked <- struct{}{}
		<-release
		return nil
	}))
	m := start(t, cfg)
	receive(t, asked)
	m.cancel()
	receive(t, m.done)
	if m.err != nil {
		t.Errorf("Run returned %v", m.err)
	}
	cfg.StartTimeout = 100 * time.Millisecond
	if err := startError(t, cfg, cfg.StartTimeout); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run returned %v", err)
	}
}
