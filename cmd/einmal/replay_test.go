package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// withEnv runs a command with these variables in its environment.
func withEnv(t *testing.T, vars map[string]string, args ...string) result {
	t.Helper()
	return withEnvFor(t.Context(), vars, args...)
}

// withEnvFor runs it until ctx ends, as by a signal.
func withEnvFor(ctx context.Context, vars map[string]string, args ...string) result {
	var out, errs bytes.Buffer
	env := &environment{&out, &errs, func(name string) string { return vars[name] }, nil}
	return result{run(ctx, env, args), out.String(), errs.String()}
}

// row fails the test unless the call went well and its table has this row.
func (r result) row(t *testing.T, want string) {
	t.Helper()
	r.want(t, exitOK)
	for line := range strings.Lines(r.out) {
		if strings.Join(strings.Fields(line), " ") == want {
			return
		}
	}
	t.Errorf("there is no row %q:\n%s", want, r.out)
}

func event(topic string, partition int32, id string, at time.Time) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: topic, Partition: partition, Timestamp: at,
		Key: sarama.StringEncoder("planted-" + id), Value: sarama.StringEncoder(`{"meta":{"id":"planted-` + id + `"}}`)}
	if id != "" {
		m.Headers = []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("planted-" + id)}}
	}
	return m
}

// What the dry run counts is what a replay then does.
func TestReplayCheck(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		pool := serverstest.Pool(t)
		url, now := pool.Config().ConnString(), time.Now()
		einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		var msgs []*sarama.ProducerMessage
		for i := range 1500 { // more than a batch
			msgs = append(msgs, event(topic, 0, fmt.Sprint(i), now))
		}
		b.Produce(t, msgs...)
		b.Produce(t, event(topic, 1, "old", now.Add(-48*time.Hour)), event(topic, 1, "", now), event(topic, 1, "young", now))

		cfg := consumer.Config{Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler),
			Topics: map[string]consumer.Topic{topic: {
				Handler: middleware.Dedup(pgxstore.New(pool, nil),
					func(context.Context, pgx.Tx, *consumer.Message) error { return nil }, nil),
			}}}
		rc := consumer.ReplayConfig{Topic: topic, Offsets: map[int32]consumer.OffsetRange{0: {From: 0, To: 20}},
			Keep: consumer.KeptForever, PerSecond: -1}
		if report, err := consumer.Replay(t.Context(), cfg, rc); err != nil || report.Processed != 20 {
			t.Fatalf("%v, %+v", err, report)
		}
		vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
		check := func(args ...string) result {
			r := withEnv(t, vars, append([]string{"replay", "check", "-topic", topic, "-consumer", group + "/" + topic},
				args...)...)
			if strings.Contains(r.out+r.errors, "planted") {
				t.Errorf("it shows ids: %s%s", r.out, r.errors)
			}
			return r
		}
		total := func(r result) (c messageCounts) {
			r.want(t, exitOK)
			if err := json.Unmarshal([]byte(r.out), &struct{ Total *messageCounts }{&c}); err != nil {
				t.Fatalf("%v: %s", err, r.out)
			}
			return c
		}
		if got := total(check("-all", "-json")); got != (messageCounts{Read: 1503, Recorded: 20, NotRecorded: 1482,
			WithoutID: 1}) {
			t.Errorf("all: %+v", got)
		}
		if got := total(check("-all", "-json", "-keep", "24h")); got != (messageCounts{Read: 1503, Recorded: 20,
			NotRecorded: 1481, WithoutID: 1, TooOld: 1}) {
			t.Errorf("with -keep: %+v", got)
		}
		if got := total(check("-offsets", "0=10:30", "-json")); got != (messageCounts{Read: 20, Recorded: 10,
			NotRecorded: 10}) {
			t.Errorf("offsets: %+v", got)
		}
		if got := total(check("-offsets", "1=1:", "-json")); got != (messageCounts{Read: 2, NotRecorded: 1, WithoutID: 1}) {
			t.Errorf("to the end: %+v", got)
		}
		if got := total(check("-to", "24h", "-json")); got.Read != 1 {
			t.Errorf("to: %+v", got)
		}
		for _, id := range []string{"json:meta.id", "key"} { // the same ids, elsewhere
			if got := total(check("-all", "-json", "-id", id)); got.Recorded != 20 {
				t.Errorf("-id %s: %+v", id, got)
			}
		}
		if got := total(check("-all", "-json", "-id", "place")); got.Recorded != 0 || got.NotRecorded != 1503 {
			t.Errorf("-id place: %+v", got)
		}
		check("-offsets", "0=0:30").row(t, "partition from to read recorded not recorded without id too old")
		check("-offsets", "0=0:30").row(t, "0 0 30 30 20 10 0 0")
		mistyped := withEnv(t, vars, "replay", "check", "-topic", topic, "-consumer", group+"/"+topic+"s", "-offsets",
			"0=0:30")
		mistyped.want(t, exitOK, "check -consumer", group+"/"+topic+" (20 of 30)")
		check("-offsets", "0=20:30").row(t, "all 10 0 10 0 0") // nobody has these
		check("-offsets", "7=0:30").want(t, exitNo, "has no partition 7: it has 2")
		if n := b.Committed(t, group, topic)[0]; n != -1 {
			t.Errorf("it committed %d", n)
		}
		withEnv(t, vars, "replay", "check", "-topic", topic+"x", "-consumer", "c", "-all").want(t, exitNo, topic+"x")
		var stored int
		if err := pool.QueryRow(t.Context(), "select count(*) from processed_event").Scan(&stored); err != nil ||
			stored != 20 {
			t.Errorf("%v: %d records", err, stored)
		}
	})
}

// The column can be a uuid, and stand elsewhere: then the index must serve the look-up too.
func TestReplayCheckOfUUIDs(t *testing.T) {
	t.Parallel()
	pool, b := serverstest.Pool(t), serverstest.InProcess(t)
	url := pool.Config().ConnString()
	exec(t, url, `create table "seen ""by"" us" (event_id uuid not null, consumer_id text collate "C" not null, primary key (event_id, consumer_id));
		insert into "seen ""by"" us" values ('018cc251-f400-7000-8000-00000000000a', 'c')`)
	topic := b.Topic(t, 1)
	for _, id := range []string{"018CC251-F400-7000-8000-00000000000A", "018cc251-f400-7000-8000-00000000000b",
		"no uuid"} {
		b.Produce(t, &sarama.ProducerMessage{Topic: topic,
			Headers: []sarama.RecordHeader{{Key: []byte("ce_id"), Value: []byte(id)}}})
	}
	vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
	args := []string{"replay", "check", "-topic", topic, "-consumer", "c", "-all", "-id", "header:ce_id"}
	withEnv(t, vars, append(args, "-table", `processed_event=seen "by" us`)...).row(t, "all 3 1 1 1 0")
	withEnv(t, vars, args...).want(t, exitNo, `there is no table "processed_event"`, "-table")
}

// Brokers that ask for a user get one from the environment, and no output has the password.
func TestReplayCheckWithSASL(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	b := serverstest.InProcess(t, kfake.NumBrokers(1), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-512", "billing", "hunter2"), kfake.SeedTopics(1, "orders"))
	vars := map[string]string{envURL: url, envBrokers: b.Addrs[0], envKafkaUser: "billing", envKafkaPassword: "hunter2"}
	args := []string{"replay", "check", "-topic", "orders", "-consumer", "c", "-all", "-sasl", "SCRAM-SHA-512"}
	r := withEnv(t, vars, args...)
	r.row(t, "all 0 0 0 0 0")
	if r.errors != "" {
		t.Errorf("it says %s", r.errors)
	}
	withEnv(t, vars, append(args[:len(args)-1:len(args)-1], "PLAIN", "-timeout", "1s")...).want(t, exitNo,
		"PLAIN without TLS sends the password of Kafka's user in clear text")
	vars[envKafkaPassword] = "hunter3"
	r = withEnv(t, vars, append(args, "-timeout", "1s")...)
	r.want(t, exitNo)
	if strings.Contains(r.out+r.errors, "hunter") {
		t.Errorf("it shows the password: %s%s", r.out, r.errors)
	}
}

func TestReplayCheckUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const complete = "replay check -topic t -consumer c -all "
	for args, says := range map[string]string{
		"replay check":                                       "which topic?",
		"replay check orders":                                "orders is one",
		"replay check -topic t":                              "whose records?",
		"replay check -topic t -consumer c":                  "which window?",
		complete + "-from 1h":                                "exclude each other",
		complete + "-offsets 1=2:3":                          "exclude each other",
		"replay check -topic t -consumer c -from 1h -to 2h":  "-from is not before -to",
		"replay check -topic t -consumer c -offsets 1=3:2":   "want partition=from:to",
		"replay check -topic t -consumer c -offsets hunter2": "want partition=from:to",
		complete + "-id xml:id":                              "-id is header:NAME",
		complete + "-id json":                                "-id is header:NAME",
		complete + "-keep -1h":                               "-keep is -1h",
		complete:                                             "EINMAL_KAFKA_BROKERS",
		complete + "-brokers me:hunter2@localhost:9092":      "without a scheme, a user or a password",
		complete + "-brokers localhost:9092":                 "-db",
		complete + "-brokers localhost:9092 -db sqlite":      "needs PostgreSQL",
	} {
		r := withEnv(t, nil, strings.Fields(args)...)
		r.want(t, exitUsage, says)
		if strings.Contains(strings.ReplaceAll(r.errors, "-offsets: hunter2", ""), "me:hunter2") {
			t.Errorf("%s: it shows the password: %s", args, r.errors)
		}
	}
	var f kafkaFlags
	f.ca = file
	if _, err := f.security(&environment{}); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("%v", err)
	}
	f = kafkaFlags{sasl: "GSSAPI"}
	if _, err := f.security(&environment{}); err == nil || !strings.Contains(err.Error(), "PLAIN, SCRAM") {
		t.Errorf("%v", err)
	}
	f = kafkaFlags{sasl: "PLAIN"}
	if _, err := f.security(&environment{getenv: func(string) string { return "" }}); err == nil ||
		!strings.Contains(err.Error(), envKafkaPassword) {
		t.Errorf("%v", err)
	}
}

// What producers have aborted is not read, nor what they may commit later; both are on demand, as a service's isolation
// level can be.
func TestReplayCheckOfTransactions(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		url := serverstest.Pool(t).Config().ConnString()
		einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
		topic, group, now := b.Topic(t, 1), serverstest.Group(t), time.Now()
		c := sarama.NewConfig()
		c.Version, c.Producer.Return.Successes, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.V3_6_0_0, true, true, 1
		c.Producer.RequiredAcks, c.Producer.Transaction.ID = sarama.WaitForAll, topic
		p, err := sarama.NewSyncProducer(b.Addrs, c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for i, end := range []func() error{p.CommitTxn, p.AbortTxn, nil} {
			err := p.BeginTxn()
			if err == nil {
				_, _, err = p.SendMessage(event(topic, 0, fmt.Sprint(i), now))
			}
			if err == nil && end != nil {
				err = end()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
		for _, test := range []struct {
			args []string
			row  string
			told string
		}{
			{nil, "0 0 4 1 0 1 0 0", "partition 0 was read up to offset 4, and 1 offsets behind it were not"},
			{[]string{"-uncommitted"}, "0 0 5 3 0 3 0 0", ""},
		} {
			r := withEnv(t, vars, append([]string{"replay", "check", "-topic", topic, "-consumer", group + "/" + topic, "-all"},
				test.args...)...)
			r.row(t, test.row)
			if !strings.Contains(r.errors, test.told) || test.told == "" && r.errors != "" {
				t.Errorf("%v: it says %q", test.args, r.errors)
			}
		}
		if err := p.AbortTxn(); err != nil {
			t.Fatal(err)
		}
	})
}
