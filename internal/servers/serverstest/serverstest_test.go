package serverstest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func TestSchemasAreApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := serverstest.Pool(t), serverstest.Pool(t)
	if _, err := a.Exec(ctx, "CREATE TABLE thing (id int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(ctx, "CREATE TABLE thing (name text)"); err != nil {
		t.Fatalf("the second schema sees the first one's table: %v", err)
	}
	var path, schema string
	if err := a.QueryRow(ctx, "SELECT current_setting('search_path'), current_schema()").Scan(&path, &schema); err != nil {
		t.Fatal(err)
	}
	if path != schema {
		t.Errorf("search_path = %q, want the schema %q alone", path, schema)
	}
	if len(schema) > 40 || schema != strings.ToLower(schema) {
		t.Errorf("schema %q: want a short name in lower case", schema)
	}
}

func TestCommitsAreDurable(t *testing.T) {
	t.Parallel()
	var on string
	if err := serverstest.Pool(t).QueryRow(context.Background(), "SHOW synchronous_commit").Scan(&on); err != nil {
		t.Fatal(err)
	}
	if on != "on" {
		t.Errorf("synchronous_commit = %s", on)
	}
}

func TestSchemaIsDroppedUnderAnOpenTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	outside := serverstest.Pool(t)
	var schema string
	var leaked *pgx.Conn // kept here: a connection that nobody refers to is closed by the garbage collector
	t.Run("leaky", func(t *testing.T) {
		var err error
		if leaked, err = pgx.Connect(ctx, serverstest.DatabaseURL(t)); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"CREATE TABLE thing (id int PRIMARY KEY)", "BEGIN", "INSERT INTO thing VALUES (1)"} {
			if _, err := leaked.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		if err := leaked.QueryRow(ctx, "SELECT current_schema()").Scan(&schema); err != nil {
			t.Fatal(err)
		}
	})
	if err := leaked.Ping(ctx); err == nil {
		t.Error("the session that held the lock lives on")
	}
	var left int
	if err := outside.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE nspname = $1",
		schema).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("schema %s is still there", schema)
	}
}

func TestEachBroker(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		if (b.Kind == "in-process") != (b.Fake != nil) {
			t.Errorf("kind %q with faults %v", b.Kind, b.Fake != nil)
		}
		topic, group := b.Topic(t, 3), serverstest.Group(t)
		b.Produce(t,
			&sarama.ProducerMessage{Topic: topic, Partition: 0, Value: sarama.StringEncoder("a")},
			&sarama.ProducerMessage{Topic: topic, Partition: 2, Value: sarama.StringEncoder("b")},
			&sarama.ProducerMessage{Topic: topic, Partition: 2, Value: sarama.StringEncoder("c")})

		client, err := sarama.NewClient(b.Addrs, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for partition, want := range []int64{1, 0, 2} {
			got, err := client.GetOffset(topic, int32(partition), sarama.OffsetNewest)
			if err != nil || got != want {
				t.Errorf("end of partition %d = %d, %v; want %d", partition, got, err, want)
			}
		}

		if got := b.Committed(t, group, topic); got[0] != -1 || got[1] != -1 || got[2] != -1 || len(got) != 3 {
			t.Errorf("committed before any commit: %v", got)
		}
		commit(t, client, group, topic, 2, 1)
		if got := b.Committed(t, group, topic); got[0] != -1 || got[1] != -1 || got[2] != 1 {
			t.Errorf("committed: %v, want partition 2 at 1 and no other", got)
		}
	})
}

// commit writes an offset as a program without a group membership does.
func commit(t *testing.T, client sarama.Client, group, topic string, partition int32, offset int64) {
	t.Helper()
	coordinator, err := client.Coordinator(group)
	if err != nil {
		t.Fatal(err)
	}
	req := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: group,
		ConsumerGroupGeneration: sarama.GroupGenerationUndefined, RetentionTime: -1}
	req.AddBlock(topic, partition, offset, 0, "")
	res, err := coordinator.CommitOffset(req)
	if err != nil {
		t.Fatal(err)
	}
	if code := res.Errors[topic][partition]; code != sarama.ErrNoError {
		t.Fatal(code)
	}
}

func TestTopicIsNotCreatedByAskingForIt(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	client, err := sarama.NewClient(b.Addrs, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if partitions, err := client.Partitions("no-such-topic"); err == nil {
		t.Errorf("partitions of a topic that nobody created: %v", partitions)
	}
}

func TestInProcessInjectsFaults(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(1))
	if len(b.Addrs) != 1 {
		t.Errorf("brokers: %v, want the one that was asked for", b.Addrs)
	}
	fault := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.NotController})
	topic := b.Topic(t, 1) // sarama's admin asks again
	if fault.Hits() == 0 {
		t.Errorf("topic %s was created without meeting the fault", topic)
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	if a, b := serverstest.Group(t), serverstest.Group(t); a == b {
		t.Errorf("two groups named %s", a)
	}
}

// runTest runs one test of this binary in a process of its own, with the variables set, and answers with what it said.
func runTest(name string, env ...string) (output string, err error) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestARequiredKafkaMustBeThere(t *testing.T) {
	t.Parallel()
	out, err := runTest("TestEachBroker", "EINMAL_KAFKA_BROKERS=", "EINMAL_REQUIRE_KAFKA=1")
	if err == nil || !strings.Contains(out, "--- FAIL: TestEachBroker/kafka") ||
		!strings.Contains(out, "set EINMAL_KAFKA_BROKERS") {
		t.Errorf("a missing Kafka: %v\n%s", err, out)
	}
	out, err = runTest("TestEachBroker", "EINMAL_KAFKA_BROKERS=", "EINMAL_REQUIRE_KAFKA=")
	if err != nil || !strings.Contains(out, "--- PASS: TestEachBroker/in-process") {
		t.Errorf("without a demand for Kafka: %v\n%s", err, out)
	}
}

func TestWhatServedIsLoggedOnce(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "servers.log")
	if out, err := runTest("Test(EachBroker|SchemasAreApart|InProcessInjectsFaults)", "EINMAL_KAFKA_BROKERS=",
		"EINMAL_REQUIRE_KAFKA=", "EINMAL_SERVERS_LOG="+log); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\tdatabase\tPostgreSQL ", "\tbroker\tin-process Kafka"} {
		if n := strings.Count(string(text), want); n != 1 {
			t.Errorf("%q is there %d times in\n%s", want, n, text)
		}
	}
}

func TestARequiredInstanceMustBeThere(t *testing.T) {
	t.Parallel()
	nowhere := "EINMAL_POSTGRES_BIN=" + t.TempDir()
	out, err := runTest("TestInstance", nowhere, "EINMAL_REQUIRE_INSTANCE=1")
	if err == nil || !strings.Contains(out, "--- FAIL: TestInstance") ||
		!strings.Contains(out, "install the package postgresql") {
		t.Errorf("a missing PostgreSQL: %v\n%s", err, out)
	}
	out, err = runTest("TestInstance", nowhere, "EINMAL_REQUIRE_INSTANCE=")
	if err != nil || !strings.Contains(out, "--- SKIP: TestInstance") ||
		!strings.Contains(out, "install the package postgresql") {
		t.Errorf("without a demand for it: %v\n%s", err, out)
	}
}

func TestInstance(t *testing.T) {
	t.Parallel()
	primary := serverstest.Instance(t)
	replica := serverstest.Replica(t, primary, primary.Addr())
	if err := errors.Join(primary.Start(t.Context()), replica.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	var follows bool
	if err := connect(t, replica.URL()).QueryRow(t.Context(), "select pg_is_in_recovery()").Scan(&follows); err != nil ||
		!follows {
		t.Errorf("the replica is one: %v, %v", follows, err)
	}
}
