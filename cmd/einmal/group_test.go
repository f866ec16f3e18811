package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// A group is shown from Kafka alone, and with what its database has; a record of it with its value only if that is
// asked for.
func TestGroup(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		pool := serverstest.Pool(t)
		url := pool.Config().ConnString()
		einmal(t, url, "schema", "apply", "dedup", "deadletter", "outbox").want(t, exitOK)
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		for _, id := range []string{"a", "b"} {
			b.Produce(t, event(topic, 0, id, time.Now()))
		}
		exec(t, url, `insert into dead_message (consumer_id, event_id, group_id, topic, partition, kafka_offset, kind) values ('c', 'e', '`+group+`', 't', 0, 1, 'gave_up')`)
		vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
		withEnv(t, vars, "group", group).want(t, exitNo, "einmal: there is no such group", group)

		stop := consume(t, consumer.Config{Brokers: b.Addrs, Group: group, Topics: map[string]consumer.Topic{topic: {
			Handler: middleware.Dedup(pgxstore.New(pool, nil),
				func(context.Context, pgx.Tx, *consumer.Message) error { return nil }, nil),
		}}})
		eventually(t, "all is committed", func() bool {
			return withEnv(t, vars, "group", "-max-lag", "0", group).code == exitOK
		})
		r := withEnv(t, vars, "group", "-db", "postgres", "-max-lag", "0", group)
		r.want(t, exitOK, "Stable, members 1", "lag 0 messages in 2 partitions", group+"/"+topic, "gave_up",
			"outbox, what was not published: none")
		stop()
		b.Produce(t, event(topic, 0, "c", time.Now()))
		eventually(t, "its member is gone", func() bool {
			return strings.Contains(withEnv(t, vars, "group", group).out, "no members")
		})
		withEnv(t, vars, "group", "-max-lag", "0", group).want(t, exitNo, "the lag is 1 messages",
			"2 of 2 partitions have no member")
		var view struct {
			Lag        int64
			Partitions []struct {
				Committed *int64     `json:"committed_offset"`
				End       *int64     `json:"end_offset"`
				At        *time.Time `json:"committed_at"`
			}
			Database *struct{ Records []recordCount }
		}
		r = withEnv(t, vars, "group", "-json", "-url", url, group)
		if err := json.Unmarshal([]byte(r.out), &view); err != nil || view.Lag != 1 || len(view.Partitions) != 2 ||
			*view.Partitions[0].Committed != 2 || *view.Partitions[0].End != 3 ||
			len(view.Database.Records) != 1 || view.Database.Records[0].Records != 2 {
			t.Errorf("%v: %s%s", err, r.out, r.errors)
		}
		if known := view.Partitions[0].At != nil; known != (b.Fake == nil) {
			t.Errorf("when it was committed is known: %v\n%s", known, r.out)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if watched := withEnvFor(ctx, vars, "group", "-watch", "100ms", group); watched.code != exitOK ||
			strings.Count(watched.out, "group "+group) < 2 {
			t.Errorf("-watch: %d, %s%s", watched.code, watched.out, watched.errors)
		}
	})
}

// consume runs a group until stop is called.
func consume(t *testing.T, cfg consumer.Config) (stop func()) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx, cfg) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestGroupUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"group":                          "name one consumer group",
		"group a b":                      "name one consumer group",
		"group a":                        "EINMAL_KAFKA_BROKERS",
		"group -watch -1s a":             "-watch is -1s",
		"group -max-lag -2 a":            "-max-lag is -2",
		"group -timeout 0 a":             "-timeout is 0s",
		"group -brokers u:hunter2@h:1 a": "without a scheme, a user or a password",
		"message":                        "name one record",
		"message orders":                 "no place of a record",
		"message orders@1":               "no place of a record",
		"message orders/x@1":             "are numbers",
		"message orders/0@-1":            "are numbers",
		"message orders/0@1":             "EINMAL_KAFKA_BROKERS",
	} {
		r := withEnv(t, nil, strings.Fields(args)...)
		r.want(t, exitUsage, says)
		if strings.Contains(r.errors, "hunter2") {
			t.Errorf("%s: it shows the password: %s", args, r.errors)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic := b.Topic(t, 2)
		at := time.Now()
		b.Produce(t,
			&sarama.ProducerMessage{
				Topic: topic, Partition: 1, Timestamp: at, Key: sarama.StringEncoder("k\x1b[2Jey\nvalue: forged"),
				Value: sarama.StringEncoder("sec\x1bret"),
				Headers: []sarama.RecordHeader{{Key: []byte("event\u202eid"), Value: []byte("e-1")},
					{Key: []byte("bin"), Value: []byte{0xff, 0}}},
			},
			&sarama.ProducerMessage{Topic: topic, Partition: 1, Timestamp: at},
		)
		vars := map[string]string{envBrokers: strings.Join(b.Addrs, ",")}
		show := func(args ...string) result {
			r := withEnv(t, vars, append([]string{"message"}, args...)...)
			if strings.ContainsAny(r.out+r.errors, "\x1b\u202e") || strings.Contains(r.out, "\nvalue: forged") {
				t.Errorf("it moves the terminal: %q", r.out+r.errors)
			}
			return r
		}
		r := show(topic + "/1@0")
		r.want(t, exitOK, topic+"/1@0, of ", `key: "k\x1b[2Jey\nvalue: forged"`, `header "event\u202eid": "e-1"`,
			`header "bin": base64 /wA=`, "value: 7 bytes; -value shows it")
		if strings.Contains(r.out, "sec") {
			t.Errorf("it shows the value: %s", r.out)
		}
		show("-value", topic+"[1]@0").want(t, exitOK, `value: "sec\x1bret"`)
		show("-value", topic+"/1@1").want(t, exitOK, "key: none", "headers: none", "value: none, a tombstone")
		var rec recordFacts
		r = show("-value", "-json", topic+"/1@0")
		if err := json.Unmarshal([]byte(r.out), &rec); err != nil || rec.Value == nil || *rec.Value.Text != "sec\x1bret" ||
			*rec.Headers[1].Base64 != "/wA=" || rec.Size != 7 {
			t.Errorf("%v: %s", err, r.out)
		}
		if r = show("-json", topic+"/1@0"); strings.Contains(r.out, "sec") {
			t.Errorf("it shows the value: %s", r.out)
		}
		show(topic+"/1@2").want(t, exitNo, "there is no record", "the log is 0 to 2")
		show(topic+"/2@0").want(t, exitNo, "has no partition 2: it has 2")
		show(topic+"x/0@0").want(t, exitNo, topic+"x")
	})
}
