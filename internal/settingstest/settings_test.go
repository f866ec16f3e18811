package settingstest

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter/pgxdeadletter"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/forward"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/schema"
)

// secret stands where a password is set: nothing may repeat it.
const secret = "hunter2-of-einmal"

// wrong is one setting that is wrong, and what the service says of it.
type wrong struct {
	set  func(t *testing.T, s *service)
	says []string
	logs bool // it may be meant, or waiting may cure it: the service runs, and its log says so
}

// conf changes the configuration of the consumer.
func conf(change func(cfg *consumer.Config)) func(*testing.T, *service) {
	return func(_ *testing.T, s *service) {
		s.change = func(_ *pgxstore.Store, _ *pgxpool.Pool, cfg *consumer.Config) { change(cfg) }
	}
}

// client changes the configuration of the Kafka client.
func client(change func(c *sarama.Config)) func(*testing.T, *service) {
	return conf(func(cfg *consumer.Config) { cfg.Sarama = change })
}

// topic changes the only topic.
func topic(change func(topic *consumer.Topic)) func(*testing.T, *service) {
	return conf(func(cfg *consumer.Config) {
		for name, topic := range cfg.Topics {
			change(&topic)
			cfg.Topics[name] = topic
		}
	})
}

// at changes where the database is.
func at(change func(u *url.URL)) func(*testing.T, *service) {
	return func(_ *testing.T, s *service) {
		u := *s.url
		change(&u)
		s.url = &u
	}
}

// migrated has other SQL run.
func migrated(sql string) func(*testing.T, *service) {
	return func(_ *testing.T, s *service) { s.sql = sql }
}

// store changes the configuration of the store.
func store(change func(cfg *pgxstore.Config)) func(*testing.T, *service) {
	return func(_ *testing.T, s *service) { change(&s.store) }
}

// chain changes the configuration of the chain.
func chain(change func(cfg *middleware.StandardConfig[pgx.Tx])) func(*testing.T, *service) {
	return func(_ *testing.T, s *service) { change(&s.chain) }
}

// inVain is a start that waits for what does not come.
func inVain(set func(*testing.T, *service)) func(*testing.T, *service) {
	return func(t *testing.T, s *service) {
		set(t, s)
		s.patience = 5 * time.Second
	}
}

var dedup = schema.Postgres.SQL(nil, schema.Dedup)

var ofTheDatabase = map[string]wrong{
	"another port": {inVain(at(func(u *url.URL) { u.Host = "127.0.0.1:1" })),
		[]string{"127.0.0.1", "connection refused", "check the host and the port"}, false},
	"another user": {at(func(u *url.URL) { u.User = url.UserPassword("nobody", secret) }),
		[]string{"nobody", "check the user and the password"}, false},
	"another database": {at(func(u *url.URL) { u.Path = "/nowhere" }),
		[]string{"nowhere", "check the name of the database, or create it"}, false},
	"a read-only one": {at(func(u *url.URL) { setting(u, "default_transaction_read_only", "on") }),
		[]string{"read-only", "connect to the primary"}, false},
	"another schema": {at(func(u *url.URL) { setting(u, "search_path", "elsewhere") }),
		[]string{"processed_event", "einmal schema print -db postgres dedup"}, false},
	"no table": {migrated(""), []string{"processed_event", "einmal schema print -db postgres dedup"}, false},
	"the table's name": {store(func(cfg *pgxstore.Config) { cfg.Table = "processed_events" }),
		[]string{"processed_events", "einmal schema print -db postgres -table processed_event=processed_events dedup"},
		false},
	"no unique index": {migrated(dedup + "; alter table processed_event drop constraint processed_event_pkey"),
		[]string{"no unique index on exactly (event_id, consumer_id)", "create unique index"}, false},
	"a column is wanted": {migrated(dedup + "; alter table processed_event add tenant text not null"),
		[]string{"column tenant", "must have a value"}, false},
	"too narrow an id": {migrated(dedup + "; alter table processed_event alter consumer_id type varchar(4)"),
		[]string{"column consumer_id", "alter table"}, false},
	"no privilege": {asARole, []string{"may not insert", "grant "}, false},
	"a closed pool": {inVain(func(_ *testing.T, s *service) {
		s.change = func(_ *pgxstore.Store, pool *pgxpool.Pool, _ *consumer.Config) { pool.Close() }
	}), []string{"close it after Run has returned"}, false},
	"no pool": {topic(func(topic *consumer.Topic) {
		topic.Handler = middleware.Dedup(pgxstore.New(nil, nil), consumer.JSONTx(charge), nil)
	}), []string{"the pool is nil", "make one with pgxpool.New"}, false},
	"a lock time-out of nothing": {store(func(cfg *pgxstore.Config) { cfg.LockTimeout = time.Microsecond }),
		[]string{"Config.LockTimeout", "set it between"}, false},
	"groups of all": {store(func(cfg *pgxstore.Config) { cfg.Group = 1_000_000 }),
		[]string{"Config.Group", "set it between 2 and"}, false},
	"no table of dead letters": {func(_ *testing.T, s *service) {
		s.before = func(pool *pgxpool.Pool) { s.chain.DeadLetters = pgxdeadletter.New(pool, nil) }
	}, []string{"dead_message", "einmal schema print -db postgres deadletter"}, false},
	"no table of starts": {func(_ *testing.T, s *service) {
		s.before = func(pool *pgxpool.Pool) {
			s.chain.CrashLoop = middleware.CrashLoop(pgxdeadletter.New(pool, nil).Starts(), nil)
		}
	}, []string{"started_message", "einmal schema print -db postgres crashloop"}, false},
	"no outbox": {retryTopics("billing", true),
		[]string{"outbox_event", "einmal schema print -db postgres outbox"}, false},
	"no retry topics": {retryTopics("billing", false), []string{"topics that do not exist", ".retry.1m",
		"create them first"}, false},
	"a nameless effect of retry topics": {retryTopics("", false),
		[]string{"Topic.Consumer is empty", "set it to the name of the effect"}, false},
}

func setting(u *url.URL, name, value string) {
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
}

// asARole has the service be a role that may do nothing but look into the schema.
func asARole(t *testing.T, s *service) {
	role := pgx.Identifier{"einmal_" + strings.ToLower(rand.Text())}.Sanitize()
	s.sql = dedup + "; create role " + role + "; do $$ begin execute format('grant usage on schema %I to " + role +
		"', current_schema()); end $$"
	s.connect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set role "+role)
		return err
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), s.owner)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
}

// retryTopics are those of a service whose outbox, or whose topics, are not there.
func retryTopics(consumerName string, topics bool) func(*testing.T, *service) {
	return func(t *testing.T, s *service) {
		if !topics {
			s.sql += "; " + schema.Postgres.SQL(nil, schema.Outbox)
		}
		s.change = func(store *pgxstore.Store, _ *pgxpool.Pool, cfg *consumer.Config) {
			own := cfg.Topics[s.topic]
			own.Consumer = consumerName
			retry := &forward.RetryTopicsConfig{}
			if topics {
				names := map[time.Duration]string{}
				for _, d := range forward.DefaultDelays() {
					names[d] = s.broker.Topic(t, 1)
				}
				retry.Name = func(_ string, d time.Duration) string { return names[d] }
			}
			cfg.Topics = forward.RetryTopics(store, pgxoutbox.NewWriter(nil), s.topic, own, retry)
		}
	}
}

var ofKafka = map[string]wrong{
	"no brokers": {conf(func(cfg *consumer.Config) { cfg.Brokers = nil }),
		[]string{"Config.Brokers", "give at least one address"}, false},
	"a URL": {conf(func(cfg *consumer.Config) { cfg.Brokers = []string{"kafka://localhost:9092"} }),
		[]string{"Config.Brokers[0]", `write "host:port", without a scheme`}, false},
	"no port": {conf(func(cfg *consumer.Config) { cfg.Brokers = []string{"localhost"} }),
		[]string{"Config.Brokers[0]", `write "host:port"`}, false},
	"a password in it": {conf(func(cfg *consumer.Config) { cfg.Brokers = []string{"me:" + secret + "@localhost:9092"} }),
		[]string{"Config.Brokers[0]", "set Net.SASL in Config.Sarama"}, false},
	"another port": {inVain(conf(func(cfg *consumer.Config) { cfg.Brokers = []string{"127.0.0.1:1"} })),
		[]string{"127.0.0.1:1", "connection refused", "check Config.Brokers, the network"}, false},
	"another host": {conf(func(cfg *consumer.Config) { cfg.Brokers = []string{"no-such-host.invalid:9092"} }),
		[]string{"no-such-host.invalid", "correct the brokers' addresses"}, false},
	"no SASL": {inVain(onSASL(nil)), []string{"check Config.Brokers", "TLS or SASL (Config.Sarama)"}, false},
	"another password": {onSASL(serverstest.WithSASL(secret)),
		[]string{"credentials", "correct Net.SASL in Config.Sarama"}, false},
	"no TLS": {inVain(onTLS(func(func(*sarama.Config)) func(*sarama.Config) { return serverstest.WithSASL(serverstest.SASLPassword) })), []string{"check Config.Brokers", "TLS or SASL (Config.Sarama)"}, false},
	"no certificate's root": {onTLS(func(func(*sarama.Config)) func(*sarama.Config) {
		return func(c *sarama.Config) { c.Net.TLS.Enable = true }
	}), []string{"certificate", "correct RootCAs or ServerName of Net.TLS in Config.Sarama"}, false},
	"TLS on a port without": {inVain(client(func(c *sarama.Config) { c.Net.TLS.Enable = true })),
		[]string{"127.0.0.1", "TLS"}, false},
	"no group": {conf(func(cfg *consumer.Config) { cfg.Group = "" }),
		[]string{"Config.Group", "name the consumer group"}, false},
	"a group of a file": {conf(func(cfg *consumer.Config) { cfg.Group = "billing\n" }),
		[]string{`Config.Group: is "billing\n"`, "a line break", "correct it"}, false},
	"no topics": {conf(func(cfg *consumer.Config) { cfg.Topics = nil }),
		[]string{"Config.Topics", "name at least one topic and its Handler"}, false},
	"another topic": {conf(func(cfg *consumer.Config) {
		for _, topic := range cfg.Topics {
			cfg.Topics = map[string]consumer.Topic{"orders.confirmd": topic}
		}
	}), []string{`"orders.confirmd"`, "create them first", "or correct the names in Config.Topics"}, false},
	"a topic's name": {conf(func(cfg *consumer.Config) { cfg.Topics["orders confirmed"] = consumer.Topic{} }),
		[]string{`"orders confirmed"`, "no topic of Kafka has such a name", "correct it"}, false},
	"an old version": {client(func(c *sarama.Config) { c.Version = sarama.V0_10_0_0 }),
		[]string{"sets Version to 0.10.0", "set at least 0.11.0"}, false},
	"commits by hand": {client(func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false }),
		[]string{"Consumer.Offsets.AutoCommit.Enable", "leave it out"}, false},
	"the newest": {client(func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest }),
		[]string{"Consumer.Offsets.Initial", "use Topic.Start"}, false},
	"a short session": {client(func(c *sarama.Config) { c.Consumer.Group.Session.Timeout = 6 * time.Second }),
		[]string{"Net.ReadTimeout", "Consumer.Group.Session.Timeout", "make the first smaller"}, false},
	"a slow heartbeat": {client(func(c *sarama.Config) { c.Consumer.Group.Heartbeat.Interval = 6 * time.Second }),
		[]string{"Heartbeat.Interval", "make the first smaller"}, false},
	"metadata all the time": {client(func(c *sarama.Config) { c.Metadata.RefreshFrequency = 0 }),
		[]string{"Metadata.RefreshFrequency", "set at least 100ms"}, false},
	"large fetches": {client(func(c *sarama.Config) { c.Consumer.Fetch.MaxBytes = 200 << 20 }),
		[]string{"Consumer.Fetch.MaxBytes", "sarama.MaxResponseSize", "keep their sum below it"}, false},
	"the newest in a cooperative group": {conf(func(cfg *consumer.Config) {
		cfg.Rebalance = consumer.Cooperative
		for name, topic := range cfg.Topics {
			topic.Start = consumer.FromNewest()
			cfg.Topics[name] = topic
		}
	}), []string{"Config.Rebalance is Cooperative", "use Eager"}, false},
	"leaves, and is not static": {conf(func(cfg *consumer.Config) { cfg.LeaveOnStop = true }),
		[]string{"Config.LeaveOnStop", "Config.InstanceID is not", "remove it"}, false},
}

// onSASL has the service meet a cluster that asks for SASL.
func onSASL(configured func(*sarama.Config)) func(*testing.T, *service) {
	return func(t *testing.T, s *service) {
		secured := serverstest.SASL(t, s.topic)
		secured.RefuseCredentials()
		s.change = func(_ *pgxstore.Store, _ *pgxpool.Pool, cfg *consumer.Config) {
			cfg.Brokers, cfg.Sarama = secured.Addrs, configured
		}
	}
}

// onTLS has the service meet a cluster that asks for TLS and SASL. The configuration is made of the right one.
func onTLS(configured func(right func(*sarama.Config)) func(*sarama.Config)) func(*testing.T, *service) {
	return func(t *testing.T, s *service) {
		secured, trust := serverstest.TLS(t, s.topic)
		s.change = func(_ *pgxstore.Store, _ *pgxpool.Pool, cfg *consumer.Config) {
			cfg.Brokers, cfg.Sarama = secured.Addrs, configured(trust)
		}
	}
}

var ofTheChain = map[string]wrong{
	"no handler": {topic(func(topic *consumer.Topic) { topic.Handler = nil }),
		[]string{"Handler is missing", "set Topic.Handler"}, false},
	"a nil link": {topic(func(topic *consumer.Topic) { topic.Middleware = append(topic.Middleware, nil) }),
		[]string{"is nil: remove it"}, false},
	"Retry twice": {conf(func(cfg *consumer.Config) {
		cfg.Middleware = []consumer.Middleware{middleware.Retry(3,
			nil)}
	}), []string{"two Retry links", "remove one of them"}, false},
	"Recover outside": {conf(func(cfg *consumer.Config) { cfg.Middleware = []consumer.Middleware{middleware.Recover()} }),
		[]string{"Retry stands inside Recover", "put it outside"}, false},
	"a dead letter within Retry": {func(_ *testing.T, s *service) {
		s.sql += "; " + schema.Postgres.SQL(nil, schema.DeadLetter)
		s.change = func(store *pgxstore.Store, pool *pgxpool.Pool, cfg *consumer.Config) {
			for name, topic := range cfg.Topics {
				topic.Middleware = append(topic.Middleware, middleware.DeadLetter(store, pgxdeadletter.New(pool, nil), nil))
				cfg.Topics[name] = topic
			}
		}
	}, []string{"DeadLetter stands inside", "put it outside"}, false},
	"no attempts": {chain(func(cfg *middleware.StandardConfig[pgx.Tx]) { cfg.Attempts = -1 }),
		[]string{"middleware.Retry: attempts is -1"}, false},
	"a negative window": {chain(func(cfg *middleware.StandardConfig[pgx.Tx]) { cfg.Dedup = &middleware.DedupConfig{Window: -time.Hour} }), []string{"DedupConfig.Window is -1h0m0s"}, false},
	"a time-out beyond the limit": {chain(func(cfg *middleware.StandardConfig[pgx.Tx]) { cfg.Timeout = time.Hour }),
		[]string{"middleware.Timeout is 1h0m0s", "Topic.ProcessingLimit", "make the first shorter or the second longer"},
		false},
	"an id of nothing": {topic(func(topic *consumer.Topic) { topic.EventID = consumer.JSONID() }),
		[]string{"EventID: JSONID has no name"}, false},
	"no workers": {topic(func(topic *consumer.Topic) { topic.Workers = -1 }),
		[]string{"Workers is -1", "give a positive number"}, false},
	"an order of its own": {topic(func(topic *consumer.Topic) { topic.Order = 7 }),
		[]string{"Order is 7", "use PartitionOrder, KeyOrder or Unordered"}, false},
	"two topics under one name": {func(t *testing.T, s *service) {
		other := s.broker.Topic(t, 1)
		s.change = func(_ *pgxstore.Store, _ *pgxpool.Pool, cfg *consumer.Config) {
			topic := cfg.Topics[s.topic]
			topic.Consumer = "billing"
			cfg.Topics[s.topic], cfg.Topics[other] = topic, topic
		}
	}, []string{"billing", "SameEventsAs"}, false},

	"no Dedup": {topic(func(topic *consumer.Topic) {
		topic.Handler = consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })
	}), []string{"no chain has a Dedup", "put them into middleware.Dedup"}, true},
	"a drain of ten minutes": {conf(func(cfg *consumer.Config) { cfg.DrainTimeout = 10 * time.Minute }),
		[]string{"Config.DrainTimeout is 10m0s", "make it shorter, or give the process more time"}, true},
	"a time-out beyond the drain": {chain(func(cfg *middleware.StandardConfig[pgx.Tx]) { cfg.Timeout = time.Minute }),
		[]string{"middleware.Timeout is 1m0s", "Config.DrainTimeout is 8s", "make the first shorter, or the second longer"},
		true},
	"a limit beyond the idle time": {func(_ *testing.T, s *service) {
		s.store.IdleTimeout = 10 * time.Second
		topic(func(topic *consumer.Topic) { topic.ProcessingLimit = time.Minute })(nil, s)
	}, []string{"Topic.ProcessingLimit is 1m0s", "IdleTimeout is 10s", "make the first shorter, or the second longer"},
		true},
	"an order by keys that are not there": {func(_ *testing.T, s *service) {
		s.event.Key = nil
		topic(func(topic *consumer.Topic) { topic.Order = consumer.KeyOrder })(nil, s)
	}, []string{"Topic.Order is KeyOrder", "let the producer set keys"}, true},
	"ids elsewhere": {func(_ *testing.T, s *service) { s.event.Headers = nil },
		[]string{"is missing: let the producer set it, or set Topic.EventID"}, true},
	"ids in another spelling": {func(_ *testing.T, s *service) { s.event.Headers[0].Key = []byte("Event-Id") },
		[]string{"in case only", "pass this one to HeaderID"}, true},
	"events of another codec": {func(_ *testing.T, s *service) { s.event.Value = sarama.ByteEncoder("\x00\x00\x00\x00\x07binary") }, []string{"no JSON", "wire format", "codec/avrocodec or codec/protocodec"}, true},
	"events in an envelope": {func(_ *testing.T, s *service) {
		s.event.Value = sarama.StringEncoder(`{"schema": {"type": "struct"}, "payload": {"id": "A-1", "cents": 1250}}`)
	}, []string{"envelope"}, true},
	"a field of another name": {func(_ *testing.T, s *service) {
		s.event.Value = sarama.StringEncoder(`{"orderId": "A-1", "cents": 1250}`)
	}, []string{"id", "required"}, true},
}

// A service in which one thing is wrong says what it is and what to do, whatever it is, and repeats no password. One in
// which nothing is wrong handles its event.
func TestEachWrongSettingIsExplained(t *testing.T) {
	t.Parallel()
	broker := serverstest.InProcess(t)
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		if said, err := newService(t, broker).run(t, nil); err != nil || !strings.Contains(said, "handled") {
			t.Errorf("%v; %s", err, said)
		}
	})
	total := 0
	for part, cases := range map[string]map[string]wrong{"database": ofTheDatabase, "kafka": ofKafka,
		"chain": ofTheChain} {
		total += len(cases)
		for name, c := range cases {
			t.Run(part+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newService(t, broker)
				c.set(t, s)
				var until []string // of what runs on
				if c.logs {
					until = c.says
				}
				said, err := s.run(t, until)
				if strings.Contains(said, secret) || err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("a password shows: %v; %s", err, said)
				}
				switch {
				case c.logs && (err != nil || !has(said, c.says)):
					t.Errorf("%v; it logs:\n%s\nwithout %q", err, said, c.says)
				case !c.logs && (err == nil || !has(err.Error(), c.says)):
					t.Errorf("%v, without %q", err, c.says)
				}
			})
		}
	}
	if total < 50 {
		t.Errorf("%d settings", total)
	}
}
