package audit_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// A test, or a job every night, audits what a service has done. Here somebody has charged an order once more by hand.
func ExampleRun() {
	shop := openShop()
	defer shop.close()
	shop.sell("o-1", "o-2", "o-3")
	shop.exec("insert into charge (event_id) values ('o-2')")

	report, err := audit.Run(context.Background(), audit.Kafka{Brokers: shop.brokers}, shop.db, audit.Config{
		Topic: "orders", Group: "billing", Effects: "select event_id from charge", Dialect: schema.SQLite,
	})
	if err != nil {
		fmt.Println("it could not look:", err)
		return
	}
	fmt.Println("events", report.Events, "recorded", report.Recorded, "effects", report.Effects)
	for _, kind := range audit.Findings() {
		for _, e := range report.Found[kind].Examples {
			fmt.Println(kind, e.Event, e.Times, "times")
		}
	}
	fmt.Println("clean:", report.Clean())
	// Output:
	// events 3 recorded 3 effects 4
	// doubled_effects o-2 2 times
	// clean: false
}

// shop is a service with a database and a Kafka of its own.
type shop struct {
	dir     string
	kafka   *servers.Kafka
	brokers []string
	db      *sql.DB
}

func openShop() *shop {
	dir, err := os.MkdirTemp("", "einmal-example-*")
	must(err)
	kafka, err := servers.InProcessKafka()
	must(err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop")+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	must(err)
	s := &shop{dir, kafka, kafka.Addrs, db}
	s.exec(schema.SQLite.SQL(nil, schema.Dedup))
	s.exec("create table charge (event_id text not null)")
	return s
}

func (s *shop) close() {
	must(s.db.Close())
	must(s.kafka.Close())
	must(os.RemoveAll(s.dir))
}

func (s *shop) exec(query string) {
	_, err := s.db.ExecContext(context.Background(), query)
	must(err)
}

// sell has the service charge orders, and stops it.
func (s *shop) sell(orders ...string) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Producer.Return.Successes = true
	admin, err := sarama.NewClusterAdmin(s.brokers, cfg)
	must(err)
	must(admin.CreateTopic("orders", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	must(admin.Close())
	producer, err := sarama.NewSyncProducer(s.brokers, cfg)
	must(err)
	for _, id := range orders {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders",
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}}})
		must(err)
	}
	must(producer.Close())
	ctx, stop := context.WithCancel(context.Background())
	charge := func(ctx context.Context, tx *sql.Tx, msg *consumer.Message) error {
		if msg.EventID == orders[len(orders)-1] {
			defer stop() // what is in work is finished
		}
		_, err := tx.ExecContext(ctx, "insert into charge (event_id) values (?)", msg.EventID)
		return err
	}
	must(consumer.Run(ctx, consumer.Config{
		Brokers: s.brokers, Group: "billing", Logger: slog.New(slog.DiscardHandler),
		Topics: map[string]consumer.Topic{"orders": {Handler: middleware.Dedup(sqlstore.New(s.db, schema.SQLite, nil), charge,
			nil)}},
	}))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
