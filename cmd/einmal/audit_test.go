package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
)

// The command says what was found by its table, by JSON and by its exit code, shows no value unless it is told to, and
// does not say that all is well where it could not look.
func TestAudit(t *testing.T) {
	t.Parallel()
	b, pool := serverstest.InProcess(t), serverstest.Pool(t)
	url := pool.Config().ConnString()
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	exec(t, url, "create table charge (event_id text not null)")
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	for n := range 3 {
		b.Produce(t, &sarama.ProducerMessage{
			Topic: topic, Value: sarama.StringEncoder("secret value"),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, "e", n)}},
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	handled := make(chan struct{}, 3)
	done := make(chan error, 1)
	go func() {
		done <- consumer.Run(ctx, consumer.Config{Brokers: b.Addrs, Group: group, Logger: slog.New(slog.DiscardHandler),
			Topics: map[string]consumer.Topic{topic: {
				Handler: middleware.Dedup(pgxstore.New(pool, nil),
					func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
						_, err := tx.Exec(ctx, "insert into charge values ($1)", msg.EventID)
						handled <- struct{}{}
						return err
					}, nil),
			}}})
	}()
	for range 3 {
		<-handled
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
	check := func(args ...string) result {
		return withEnv(t, vars, append([]string{"audit", "-topic", topic, "-group", group, "-effects",
			"select event_id from charge"}, args...)...)
	}
	check().want(t, exitOK, "lost", "undecided")
	exec(t, url, "delete from charge where event_id = 'e1'")
	exec(t, url, "insert into charge values ('e2')")
	r := check()
	r.want(t, exitNo, "doubled effects", `"e2", partition 0 offset 2`, `"e1", partition 0 offset 1`, "2 times")
	if strings.Contains(r.out+r.errors, "secret") {
		t.Errorf("it shows a value:\n%s", r.out)
	}
	check("-value").want(t, exitNo, "secret value")
	var report audit.Report
	if r := check("-json"); json.Unmarshal([]byte(r.out), &report) != nil ||
		report.Found[audit.DoubledEffects].Count != 1 || report.Messages != 3 {
		t.Errorf("%s", r.out)
	}
	for _, c := range []struct{ args, says string }{
		{"-group other", "has committed no offset"},
		{"-topic " + topic + "x", topic + "x"},
		{"-effects delete_from", "query of effects"},
		{"-table processed_event=nothing", "there is no table"},
		{"-keep -1h", "-keep"},
		{"-filter x", "-filter is header=value"},
		{"-id nowhere", "-id is"},
	} {
		check(strings.Fields(c.args)...).want(t, exitUsage, c.says)
	}
	check("-effects", "delete from charge returning event_id").want(t, exitUsage, "query of effects", "read-only")
}
