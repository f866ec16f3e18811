package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/internal/rolestest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/schema"
)

// contents is all that tables hold.
func contents(t *testing.T, db *sql.DB, tables ...string) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tables {
		rows, err := db.QueryContext(t.Context(), "select * from "+table+" order by 1, 2, 3") //nolint:unqueryvet // all columns there are
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&all, table, values)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// The role that docs/security.md has for those who look may audit, in sessions that cannot write: as on a replica.
// Nothing is changed.
func TestReaderSuffices(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	s := newService(t, b, schema.Postgres)
	s.finished(t)
	admin, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	sent := &sender{Broker: b, topic: b.Topic(t, 2), pool: admin,
		cfg: audit.OutboxConfig{Keep: time.Hour, TempDir: t.TempDir()}}
	sent.cfg.Topic = sent.topic
	sent.finished(t, outbox.TwoPhase)
	role := rolestest.New(t, admin, "reader", "grant select on charge to %s")
	reader, err := sql.Open("pgx", role.URL+"&default_transaction_read_only=on")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tables := []string{"processed_event", "outbox_event", "outbox_lease", "dead_message"}
	before := contents(t, s.db, tables...)
	for _, refused := range []string{"delete from processed_event", "delete from outbox_event",
		"create temporary table x (y int)"} {
		if _, err := reader.ExecContext(t.Context(), refused); err == nil {
			t.Fatalf("the role may %s", refused)
		}
	}
	r, err := audit.Run(t.Context(), audit.Kafka{Brokers: b.Addrs}, reader, s.cfg)
	if err != nil || !r.Clean() || r.Recorded != 10 || r.Effects != 10 {
		t.Errorf("%+v, %v", r, err)
	}
	o, err := audit.Outbox(t.Context(), audit.Kafka{Brokers: b.Addrs}, reader, sent.cfg)
	if err != nil || !o.Clean() || o.Sent != 40 {
		t.Errorf("%+v, %v", o, err)
	}
	if after := contents(t, s.db, tables...); after != before {
		t.Errorf("they were changed:\n%s\n%s", before, after)
	}
}

// A SQLite file that is opened to be read can be audited.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	s := newService(t, serverstest.InProcess(t), schema.SQLite)
	s.finished(t)
	before := contents(t, s.db, "processed_event")
	reader, err := sql.Open("sqlite", strings.Split(s.url, "?")[0]+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.ExecContext(t.Context(), "delete from processed_event"); err == nil {
		t.Fatal("the file can be written")
	}
	if r, err := audit.Run(t.Context(), audit.Kafka{Brokers: s.Addrs}, reader, s.cfg); err != nil || !r.Clean() ||
		r.Recorded != 10 {
		t.Errorf("%+v, %v", r, err)
	}
	if after := contents(t, s.db, "processed_event"); after != before {
		t.Error("it was changed")
	}
}

// With a rate, what is read takes its time: 10 messages, 20 records and 10 effects at 20 a second, and 40 rows and 40
// messages at 40.
func TestRate(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	atLeast := func(t *testing.T, d time.Duration, run func(rate float64) error) {
		t.Helper()
		for _, rate := range []float64{0, 1} {
			began := time.Now()
			if err := run(rate); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); rate > 0 && took < d {
				t.Errorf("with a rate it took %v, want at least %v", took, d)
			}
		}
	}
	t.Run("audit", func(t *testing.T) {
		t.Parallel()
		s := newService(t, b, schema.SQLite)
		s.finished(t)
		atLeast(t, 1900*time.Millisecond, func(rate float64) error {
			s.cfg.Rate = 20 * rate
			_, err := audit.Run(t.Context(), audit.Kafka{Brokers: b.Addrs}, s.db, s.cfg)
			return err
		})
	})
	t.Run("outbox", func(t *testing.T) {
		t.Parallel()
		s := newSender(t, b)
		s.finished(t, outbox.SinglePhase)
		atLeast(t, 1900*time.Millisecond, func(rate float64) error {
			s.cfg.Rate = 40 * rate
			s.audit(t)
			return nil
		})
	})
	t.Run("ends with its context", func(t *testing.T) {
		t.Parallel()
		s := newService(t, b, schema.SQLite)
		s.finished(t)
		s.cfg.Rate = 0.001
		ctx, stop := context.WithCancelCause(t.Context())
		why := errors.New("it takes too long")
		s.cfg.Progress = func(p audit.Progress) {
			if p.Step == "messages" {
				stop(why)
			}
		}
		if r, err := audit.Run(ctx, audit.Kafka{Brokers: b.Addrs}, s.db, s.cfg); r != nil || !errors.Is(err, why) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Progress is told of each step in its order, and nothing is left in the directory of the sorted files.
func TestSteps(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	s := newService(t, b, schema.SQLite)
	s.finished(t)
	var steps []string
	s.cfg.Progress = func(p audit.Progress) { steps = append(steps, fmt.Sprint(p.Step, " ", p.Total)) }
	s.audit(t)
	if got, want := strings.Join(steps, ", "),
		"messages 10, records 0, dead letters 0, effects 0, records 0, what comes again 0, comparing 40"; got != want {
		t.Errorf("steps: %s\nwant:  %s", got, want)
	}
	if left, err := filepath.Glob(filepath.Join(s.cfg.TempDir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
