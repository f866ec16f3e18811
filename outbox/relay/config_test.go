package relay_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// Configuration errors are told all at once, and say what to do.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	_, err := relay.New(relay.Config{
		Brokers: []string{"user:s3cret@host:1", "http://x"}, Mode: "three-phase", Partitioner: "crc",
		Partitioners: map[string]relay.Partitioner{"a b": relay.HashPartitioner, "t": "fnv"}, Workers: -1, BatchRows: -1,
		LeaseTTL: -1, PollInterval: time.Hour, IdleInterval: time.Minute,
		Sarama: func(c *sarama.Config) {
			c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForLocal, false, 5
			c.Metadata.AllowAutoTopicCreation = true
			c.Producer.Partitioner = sarama.NewRandomPartitioner
			c.Producer.Retry.Max = 7
			c.Producer.Flush.Messages = 7
			c.Producer.Timeout = time.Hour
			c.Version = sarama.V1_0_0_0
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Config.Database: is nil", "Config.Brokers[0]: holds a user", "Config.Brokers[1]: \"http://x\" is not an address",
		"Config.Mode", "Config.Partitioner: is", `Config.Partitioners["t"]: is "fnv"`, `"a b" is not the name of a topic`,
		"Config.Workers", "Config.BatchRows", "Config.LeaseTTL", "Config.IdleInterval", "sets Producer.RequiredAcks",
		"sets Producer.Idempotent", "sets Net.MaxOpenRequests",
		"sets Metadata.AllowAutoTopicCreation", "sets Producer.Partitioner", "sets Producer.Retry", "sets Producer.Flush",
		"Producer.Timeout is 1h", "sets Version",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("it repeats the password")
	}
	if _, ok := errors.AsType[*relay.ConfigError](err); !ok {
		t.Error("no ConfigError")
	}
	_, err = relay.New(relay.Config{Database: pgxoutbox.NewDatabase(nil), Brokers: []string{"localhost:9092"},
		Mode: outbox.TwoPhase, LeaseTTL: 30 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "make it at least 40s") {
		t.Errorf("%v", err)
	}
	for _, timeouts := range [][2]time.Duration{{time.Minute, 59 * time.Second}, {time.Minute, time.Minute},
		{time.Minute, 0}, {time.Second, -1}} {
		_, err = relay.New(relay.Config{Database: pgxoutbox.NewDatabase(nil), Brokers: []string{"localhost:9092"},
			PublishTimeout: timeouts[0], OutcomeTimeout: timeouts[1]})
		if bad := timeouts[1] != 0 && timeouts[1] < timeouts[0]; bad != (err != nil &&
			strings.Contains(err.Error(), "Config.OutcomeTimeout: is")) {
			t.Errorf("%v: %v", timeouts, err)
		}
	}
}

func TestTablesMissing(t *testing.T) {
	t.Parallel()
	f := tabletest.Open(t)
	f.MustExec("drop table outbox_mode")
	_, db := tabletest.Drivers[0].Open(t, f.URL, nil)
	r, err := relay.New(relay.Config{Database: db, Brokers: []string{"localhost:1"}})
	must(t, err)
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "einmal schema print -db postgres outbox") {
		t.Errorf("Run() = %v", err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, relay.ErrRunTwice) {
		t.Errorf("Run() = %v", err)
	}
}

// A database that does not answer at the start is waited for, until ctx ends.
func TestDatabaseAwayAtTheStart(t *testing.T) {
	t.Parallel()
	r, err := relay.New(relay.Config{Database: refused{"postgres://nobody@127.0.0.1:1/none"},
		Brokers: []string{"localhost:1"}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	eventually(t, "Status tells", func() bool { return r.Status().Error != nil })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// refused is a Database without a server.
type refused struct{ url string }

func (r refused) InTx(ctx context.Context, _ func(ctx context.Context, tx outbox.Tx) error) error {
	_, err := pgx.Connect(ctx, r.url)
	return err
}

// A role that lacks a right on one of the tables: Run says at once what to grant.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	role := strings.ToLower("relay_" + rand.Text()[:10])
	b.MustExec("create role " + role)
	t.Cleanup(func() {
		_, _ = b.Exec(context.Background(), "drop owned by "+role)
		_, _ = b.Exec(context.Background(), "drop role "+role)
	})
	b.MustExec("grant usage on schema " + tabletest.Value[string](b.Fixture, "select quote_ident(current_schema())") +
		" to " + role)
	_, db := tabletest.Drivers[0].Open(t, b.URL+"&role="+role, nil)
	all := []string{"select on outbox_event", "insert on outbox_event", "update on outbox_event", "delete on outbox_event"}
	for i, missing := range []string{"outbox_event", "select on outbox_event", "update on outbox_event",
		"delete on outbox_event", "outbox_mode", "outbox_lease"} {
		b.MustExec("revoke all on outbox_event, outbox_lease, outbox_mode from " + role)
		for _, right := range append(all, "all on outbox_lease", "all on outbox_mode") {
			if !strings.Contains(right, missing) {
				b.MustExec("grant " + right + " to " + role)
			}
		}
		cfg := b.config(outbox.TwoPhase)
		cfg.Database = db
		r, err := relay.New(cfg)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := r.Run(ctx); err == nil ||
			!strings.Contains(err.Error(), "GRANT SELECT, INSERT, UPDATE, DELETE ON ") ||
			!strings.Contains(err.Error(), `"outbox_event"`) {
			t.Errorf("%d, without %s: Run() = %v", i, missing, err)
		}
		cancel()
	}
}

// A database that is read-only at the start, while another server takes over, is waited for.
func TestReadOnlyAtTheStart(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := newFaultyDatabase(t)
			f.readOnly.Store(true)
			f.insert("1")
			r := start(t, f.faultyConfig(mode))
			eventually(t, "it waits, and says for what",
				func() bool { return strings.Contains(r.Status().Problem(), "read-only") })
			f.readOnly.Store(false)
			eventually(t, "it is sent", func() bool { return f.rows("true") == 0 })
		})
	}
}
