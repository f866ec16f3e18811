package rolestest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/rolestest"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
)

// right is an operation on a kind of resource, as docs/security.md has it.
type right struct{ resource, operation string }

var (
	aclRow   = regexp.MustCompile(`(?m)^\| (consumer|relay|replay|audit|group|message) \|[^|]*\|([^|]*)\|([^|]*)\|$`)
	aclNames = map[string]sarama.AclOperation{"Read": sarama.AclOperationRead, "Write": sarama.AclOperationWrite,
		"Describe": sarama.AclOperationDescribe}
)

// documentedACLs are the rights of the page, by who needs them.
func documentedACLs(t *testing.T) map[string][]right {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	must(t, err)
	found := map[string][]right{}
	for _, m := range aclRow.FindAllStringSubmatch(string(text), -1) {
		for i, resource := range []string{"topic", "group"} {
			if operation := strings.TrimSpace(m[2+i]); operation != "" {
				found[m[1]] = append(found[m[1]], right{resource, operation})
			}
		}
	}
	return found
}

// cluster is a real Kafka with ACLs, and what is done with it.
type cluster struct {
	*servers.GuardedKafka

	admin sarama.ClusterAdmin
	users []string
	used  atomic.Int32
	cli   string
}

const aclUsers = 40

// guardedKafka starts one, with three records in the topic, and a group that has committed.
func guardedKafka(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv(servers.EnvKafkaJars) == "" {
		if os.Getenv(serverstest.EnvRequireKafka) == "1" {
			t.Fatalf("%s=1 demands a Kafka with ACLs: set %s to a directory with Kafka's jars", serverstest.EnvRequireKafka,
				servers.EnvKafkaJars)
		}
		t.Skipf("%s is not set", servers.EnvKafkaJars)
	}
	c := &cluster{cli: filepath.Join(t.TempDir(), "einmal")}
	for i := range aclUsers {
		c.users = append(c.users, fmt.Sprintf("user%d", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var err error
	c.GuardedKafka, err = servers.StartGuardedKafka(ctx, password, c.users...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_6_0_0
	conf.Producer.Return.Successes = true
	c.admin, err = sarama.NewClusterAdmin(c.Addrs, conf)
	must(t, err)
	t.Cleanup(func() { _ = c.admin.Close() })
	must(t, c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	producer, err := sarama.NewSyncProducer(c.Addrs, conf)
	must(t, err)
	defer producer.Close()
	for _, id := range []string{"1", "2", "3"} {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder(id),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}},
		})
		must(t, err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.cli,
		"../../cmd/einmal").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return c
}

// user returns one that has these rights, on resources of these names.
func (c *cluster) user(t *testing.T, rights []right, names map[string]string) string {
	t.Helper()
	user := c.users[c.used.Add(1)-1]
	for _, r := range rights {
		kind := sarama.AclResourceTopic
		if r.resource == "group" {
			kind = sarama.AclResourceGroup
		}
		must(t, c.admin.CreateACLs([]*sarama.ResourceAcls{{
			Resource: sarama.Resource{ResourceType: kind, ResourceName: names[r.resource],
				ResourcePatternType: sarama.AclPatternLiteral},
			Acls: []*sarama.Acl{{Principal: "User:" + user, Host: "*", Operation: aclNames[r.operation],
				PermissionType: sarama.AclPermissionAllow}},
		}}))
	}
	return user
}

// command runs the operators' binary as the user. What it says must have the text.
func (c *cluster) command(ctx context.Context, user, url, says string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.cli, args...)
	cmd.Env = append(cmd.Environ(), "EINMAL_DATABASE_URL="+url, "EINMAL_KAFKA_BROKERS="+c.Guarded[0], "EINMAL_KAFKA_USER="+
		user, "EINMAL_KAFKA_PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(out), says) {
		err = errors.New("it does not say " + says)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// consume has a Consumer handle all messages and commit.
func (c *cluster) consume(ctx context.Context, user, group string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var handled atomic.Int32
	cons, err := consumer.New(consumer.Config{
		Brokers: c.Guarded, Group: group, Logger: quiet(), Sarama: as(user), StartTimeout: 15 * time.Second,
		Topics: map[string]consumer.Topic{topic: {Handler: middleware.Dedup(memstore.New(),
			func(context.Context, *memstore.Tx, *consumer.Message) error {
				handled.Add(1)
				return nil
			}, nil)}},
	})
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cons.Run(ctx) }()
	for {
		if p := cons.Status().Partitions; handled.Load() >= 3 && len(p) == 1 && p[0].Committed >= 3 { // the relay of another row may have added one
			cancel()
			return <-done
		}
		select {
		case err := <-done:
			return errors.Join(errors.New("it did not handle and commit three messages"), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// relay has a Relay send an event.
func (c *cluster) relay(ctx context.Context, t *testing.T, user string) error {
	t.Helper()
	admin := tables(t)
	writer, pool := rolestest.New(t, admin, "writer").Pool(t), rolestest.New(t, admin, "relay").Pool(t)
	must(t, pgx.BeginFunc(ctx, writer, func(tx pgx.Tx) error {
		return pgxoutbox.NewWriter(nil).Write(ctx, tx, outbox.Event{ID: "sent", Topic: topic, Key: []byte("k"),
			Value: []byte("v")})
	}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := relay.New(relay.Config{Database: pgxoutbox.NewDatabase(pool), Brokers: c.Guarded, Logger: quiet(),
		Sarama: as(user)})
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for {
		switch s := r.Status(); {
		case s.Published == 1:
			cancel()
			return <-done
		case s.Blocked > 0, s.Error != nil && strings.Contains(s.Error.Error(), "not authorized"): // others pass: a coordinator that starts
			cancel()
			return errors.Join(errors.New("the event was not sent"), s.Error, <-done)
		}
		select {
		case err := <-done:
			return errors.Join(errors.New("it ended"), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestKafkaACLs does what each row of the page is about, on a real Kafka, with exactly the rights of the row, and then
// without each of them.
func TestKafkaACLs(t *testing.T) {
	t.Parallel()
	c := guardedKafka(t)
	admin := tables(t)
	reader := rolestest.New(t, admin, "reader").URL
	must(t, c.consume(t.Context(), c.user(t, []right{{"topic", "Read"}, {"group", "Read"}},
		map[string]string{"topic": topic, "group": group}), group))
	sasl := []string{"-sasl", "PLAIN"}
	of := func(command ...string) []string { return append(command, sasl...) }
	jobs := map[string]func(ctx context.Context, t *testing.T, user, group string) error{
		"consumer": func(ctx context.Context, _ *testing.T, user, group string) error { return c.consume(ctx, user, group) },
		"relay": func(ctx context.Context, t *testing.T, user, _ string) error {
			t.Helper()
			return c.relay(ctx, t, user)
		},
		"replay": func(ctx context.Context, _ *testing.T, user, _ string) error {
			return errors.Join(
				c.command(ctx, user, reader, "", of("replay", "check", "-topic", topic, "-consumer", "c", "-all")...),
				c.command(ctx, user, reader, "", of("audit", "outbox", "-topic", topic)...),
			)
		},
		"audit": func(ctx context.Context, _ *testing.T, user, _ string) error {
			err := c.command(ctx, user, reader, "", of("audit", "-topic", topic, "-group", group, "-to",
				"2020-01-01T00:00:00Z")...)
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
				err = nil // it has looked: nothing is recorded
			}
			return err
		},
		"group": func(ctx context.Context, _ *testing.T, user, _ string) error {
			return c.command(ctx, user, "", topic, append(of("group"), group)...)
		},
		"message": func(ctx context.Context, _ *testing.T, user, _ string) error {
			return c.command(ctx, user, "", "event-id", append(of("message"), topic+"/0@1")...)
		},
	}
	for who, rights := range documentedACLs(t) {
		do := jobs[who]
		if do == nil {
			t.Errorf("nobody is %s", who)
			continue
		}
		delete(jobs, who)
		for without := -1; without < len(rights); without++ {
			name, has := who, rights
			if without >= 0 {
				name += " without " + rights[without].operation + " of the " + rights[without].resource
				has = append(append([]right{}, rights[:without]...), rights[without+1:]...)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				own := group
				if who == "consumer" {
					own = serverstest.Group(t)
				}
				user := c.user(t, has, map[string]string{"topic": topic, "group": own})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				switch err := do(ctx, t, user, own); {
				case without < 0 && err != nil:
					t.Error(err)
				case without >= 0 && (err == nil || ctx.Err() != nil):
					t.Errorf("it did not fail: %v", err)
				default:
					t.Log(err)
				}
			})
		}
	}
	for who := range jobs {
		t.Errorf("docs/security.md does not say what %s needs", who)
	}
}
