package consumer_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// readiness provokes what a row of docs/status.md is about, and returns the Consumer.
var readiness = []struct {
	row     string
	ready   bool
	says    string // in Status.NotReady
	provoke func(t *testing.T) *consumer.Consumer
}{
	{"it was not run yet", false, "created", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 0)
		return quiet(t, config(b, group, topic, nothing))
	}},
	{"it starts, and a server does not answer", false, "starting: waits for", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 0)
		cfg := config(b, group, topic, nothing)
		cfg.Brokers = []string{"127.0.0.1:1"} // nobody listens there
		return start(t, cfg).Consumer
	}},
	{"it has partitions", true, "", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 3)
		return start(t, config(b, group, topic, nothing)).Consumer
	}},
	{"it has none, because others have them all", true, "", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 0)
		first := start(t, config(b, group, topic, nothing))
		eventually(t, "one has it", func() bool { return len(first.Status().Partitions) == 1 })
		second := start(t, config(b, group, topic, nothing))
		eventually(t, "one is without", func() bool {
			return second.Ready() && first.Ready() && len(first.Status().Partitions)+len(second.Status().Partitions) == 1
		})
		if len(first.Status().Partitions) == 0 {
			return first.Consumer
		}
		return second.Consumer
	}},
	{"the group cannot be joined", false, "no coordinator since", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 0)
		b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.CoordinatorNotAvailable, Count: -1,
			TopLevel: true})
		return start(t, config(b, group, topic, nothing)).Consumer
	}},
	{"the brokers do not know one of its topics", false, "is not read for", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 3)
		m := start(t, config(b, group, topic, nothing))
		eventually(t, "it is ready", m.Ready)
		unknownTopic(b, topic)
		rebalance(b, group)
		return m.Consumer
	}},
	{"a partition has no leader for longer than StallTimeout", false, "it has no leader",
		func(t *testing.T) *consumer.Consumer {
			b, topic, group := backlog(t, 2, 0)
			leaderless(t, b, topic, 2)
			cfg := config(b, group, topic, nothing)
			cfg.StallTimeout = 200 * time.Millisecond
			return start(t, cfg).Consumer
		}},
	{"a partition cannot be fetched for longer than StallTimeout", false, "cannot be read for",
		func(t *testing.T) *consumer.Consumer {
			b, topic, group := backlog(t, 1, 3)
			b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.CorruptMessage, Count: -1, Topic: topic,
				Partitions: []int32{0}})
			cfg := config(b, group, topic, nothing)
			cfg.StallTimeout = 200 * time.Millisecond
			return start(t, cfg).Consumer
		}},
	{"a partition holds messages that are due, and none has finished for StallTimeout", false,
		"has messages, and none has finished for", func(t *testing.T) *consumer.Consumer {
			b, topic, group := backlog(t, 1, 3)
			cfg := config(b, group, topic,
				consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return ctx.Err() }))
			cfg.StallTimeout = 200 * time.Millisecond
			return start(t, cfg).Consumer
		}},
	{"a message fails, and others finish", true, "", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 3)
		cfg := ordered(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			if msg.Offset == 0 {
				return consumer.RetryAfter(time.Minute, errHandler)
			}
			return nil
		}), consumer.Unordered, 2)
		m := start(t, cfg)
		eventually(t, "one is parked", func() bool { p := m.Status().Partitions; return len(p) == 1 && p[0].Parked == 1 })
		return m.Consumer
	}},
	{"the database is away", true, "", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 3)
		cfg := config(b, group, topic, consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			return dedupstore.WithClass(dedupstore.Unavailable, errHandler)
		}))
		cfg.StallTimeout = 200 * time.Millisecond
		m := start(t, cfg)
		eventually(t, "it is degraded for longer than StallTimeout", func() bool {
			d := m.Status().Degraded
			return len(d) == 1 && d[0].Need == consumer.NeedDatabase && time.Since(d[0].Since) > 2*cfg.StallTimeout
		})
		return m.Consumer
	}},
	{"it drains", false, "draining", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 3)
		started := make(chan struct{}, 10)
		cfg := config(b, group, topic, consumer.HandlerFunc(func(ctx context.Context, _ *consumer.Message) error {
			started <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}))
		cfg.DrainTimeout = 5 * time.Second
		m := start(t, cfg)
		<-started
		m.cancel()
		return m.Consumer
	}},
	{"Run has returned", false, "stopped", func(t *testing.T) *consumer.Consumer {
		b, topic, group := backlog(t, 1, 0)
		m := start(t, config(b, group, topic, nothing))
		eventually(t, "it is ready", m.Ready)
		must(t, m.stop())
		return m.Consumer
	}},
}

var nothing = consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })

func quiet(t *testing.T, cfg consumer.Config) *consumer.Consumer {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := consumer.New(cfg)
	must(t, err)
	return c
}

// Each row of the table in docs/status.md is provoked, and nothing is that has no row.
func TestReadiness(t *testing.T) {
	t.Parallel()
	rows := readyRows(t)
	for _, r := range readiness {
		t.Run(r.row, func(t *testing.T) {
			t.Parallel()
			c := r.provoke(t)
			var s consumer.Status
			eventually(t, "Ready is as the row says", func() bool {
				s = c.Status()
				return (s.NotReady == "") == r.ready && strings.Contains(s.NotReady, r.says)
			})
		})
		want, listed := rows[r.row]
		if !listed {
			t.Errorf("docs/status.md has no row %q", r.row)
		} else if want != r.ready {
			t.Errorf("docs/status.md says of %q that Ready is %v", r.row, want)
		}
		delete(rows, r.row)
	}
	for row := range rows {
		t.Errorf("no test provokes the row %q of docs/status.md", row)
	}
}

// readyRows are those of the table of Ready's rules.
func readyRows(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../docs/status.md")
	must(t, err)
	_, section, ok := strings.Cut(string(text), "\n| `Ready` | when |")
	if !ok {
		t.Fatal("docs/status.md has no table of Ready's rules")
	}
	rows := map[string]bool{}
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if line == "" && len(rows) > 0 {
			break
		}
		if len(cells) >= 2 && (cells[0] == "true" || cells[0] == "false") {
			rows[strings.TrimSpace(cells[1])] = cells[0] == "true"
		}
	}
	return rows
}
