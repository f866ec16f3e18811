package console_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/childtest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/status"
)

// orders are what a process of the fleet is told.
type orders struct {
	Brokers      []string
	Topic, Group string
	At           string // host:port of its status
}

// consume is a process of the fleet: it consumes, and serves its status.
func consume(ctx context.Context, o orders) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // it ends with its parent
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	c, err := consumer.New(consumer.Config{Brokers: o.Brokers, Group: o.Group, Topics: map[string]consumer.Topic{o.Topic: {
		Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
			if string(msg.Key) == "bad" {
				return errors.New("it is bad")
			}
			return nil
		}),
	}}})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.At)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: status.Handler(status.Sections{
		"consumer": func(context.Context) (any, error) { return c.Status(), nil },
	}, nil)}
	go func() { _ = server.Serve(l) }()
	return errors.Join(c.Run(ctx), server.Close())
}

// A fleet of three processes: what they hold is seen, and when one is killed that is the first thing seen, with nothing
// of what it told.
func TestFleet(t *testing.T) {
	t.Parallel()
	broker := serverstest.InProcess(t)
	topic, group := broker.Topic(t, 3), serverstest.Group(t)
	var list []console.Process
	var fleet []*childtest.Process
	for i := range 3 {
		at := freePort(t)
		fleet = append(fleet, childtest.Start(t, envProcess, fmt.Sprintf("process %d", i+1),
			orders{broker.Addrs, topic, group, at}))
		list = append(list, console.Process{Name: fmt.Sprintf("billing-%d", i+1), URL: "http://" + at})
	}
	kafka, err := consumer.NewCluster(broker.Addrs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kafka.Close() })
	s := serve(t, func(cfg *console.Config) { cfg.Processes, cfg.Kafka, cfg.Title = list, kafka, "fleet" })
	b := open(t)
	b.visit(s.at)
	b.await("All is well", "3 processes answered", topic)
	broker.Produce(t, &sarama.ProducerMessage{Topic: topic, Partition: 1, Key: sarama.StringEncoder("bad"),
		Value: sarama.StringEncoder("{}")})
	b.await(topic+"[1] @0 fails", "One thing to look at")
	b.visit(s.at + "partitions")
	b.await("billing-1", "billing-2", "billing-3", "Messages that fail now")

	holder := 0
	for i := range 3 {
		if strings.Contains(value[string](b, `document.getElementById("p1").innerText`), list[i].Name) {
			holder = i
		}
	}
	fleet[holder].Kill()
	b.visit(s.at)
	b.eventually("its end is the first thing", func() bool {
		return strings.Contains(value[string](b, `document.querySelector(".problems li")?.innerText ?? ""`),
			list[holder].Name+" does not answer")
	})
	b.visit(s.at + "process?name=" + list[holder].Name)
	b.await("It has not answered for", "what it told then is not shown")
	// its successor takes over, with the failure's age: what was known is known again, from who knows it now
	b.visit(s.at + "partitions")
	b.eventually("another process has the partition", func() bool {
		row := value[string](b, `document.getElementById("p1")?.innerText ?? ""`)
		return !strings.Contains(row, list[holder].Name) && strings.Contains(row, "billing-") &&
			strings.Contains(row, "@0 fails")
	})
}

// freePort is an address at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
