package settingstest

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

type order struct {
	ID    string `einmal:"required" json:"id"`
	Cents int64  `einmal:"required" json:"cents"`
}

func charge(context.Context, pgx.Tx, order) error { return nil }

// service is the one of README. What is wrong with it is set before it runs.
type service struct {
	broker *serverstest.Broker
	topic  string // on the broker
	event  *sarama.ProducerMessage

	sql     string   // what has been migrated
	owner   string   // the URL for that
	url     *url.URL // the service's
	connect func(context.Context, *pgx.Conn) error
	store   pgxstore.Config
	chain   middleware.StandardConfig[pgx.Tx]
	handler consumer.TxHandler[pgx.Tx]

	patience time.Duration // of the start; 0 is the default

	before func(pool *pgxpool.Pool) // for what stands in the chain
	change func(s *pgxstore.Store, pool *pgxpool.Pool, cfg *consumer.Config)
}

// newService returns one in which nothing is wrong.
func newService(t *testing.T, broker *serverstest.Broker) *service {
	t.Helper()
	at, err := url.Parse(serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	topic := broker.Topic(t, 1)
	return &service{
		broker: broker, topic: topic,
		event: &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("A-1"), Value: sarama.StringEncoder(`{"id": "A-1", "cents": 1250}`),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("confirmed-A-1")}},
		},
		sql: schema.Postgres.SQL(nil, schema.Dedup), owner: at.String(), url: at, handler: consumer.JSONTx(charge),
	}
}

// run runs the service until it ends, or says one of the texts, or has handled its event, and returns what it has said.
func (s *service) run(t *testing.T, until []string) (said string, err error) {
	t.Helper()
	s.migrate(t)
	conf, err := pgxpool.ParseConfig(s.url.String())
	if err != nil {
		t.Fatal(err)
	}
	conf.AfterConnect = s.connect
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	var log lines
	handled := make(chan struct{})
	var once sync.Once
	handler := s.handler
	store := pgxstore.New(pool, &s.store)
	if s.before != nil {
		s.before(pool)
	}
	s.chain.Logger = slog.New(slog.NewTextHandler(&log, nil))
	chain := middleware.Standard(store, &s.chain)
	topic := chain.Topic(func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		err := handler(ctx, tx, msg)
		if err == nil {
			once.Do(func() { close(handled) })
		}
		return err
	})
	cfg := consumer.Config{
		Brokers: s.broker.Addrs, Group: serverstest.Group(t), Topics: map[string]consumer.Topic{s.topic: topic},
		Logger: s.chain.Logger, StartTimeout: s.patience,
	}
	if s.change != nil {
		s.change(store, pool, &cfg)
	}
	if s.event != nil {
		s.broker.Produce(t, s.event)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-handled:
				stop()
			case <-tick.C:
				if len(until) > 0 && has(log.String(), until) {
					stop()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err = consumer.Run(ctx, cfg)
	select {
	case <-handled:
		return log.String() + "\nhandled", err
	default:
		return log.String(), err
	}
}

// migrate runs the service's SQL.
func (s *service) migrate(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), s.sql); err != nil {
		t.Fatal(err)
	}
}

// has reports whether all texts are in one.
func has(text string, all []string) bool {
	for _, one := range all {
		if !strings.Contains(text, one) {
			return false
		}
	}
	return true
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
