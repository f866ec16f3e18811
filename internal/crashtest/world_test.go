package crashtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// world is a topic, a group and a database, and all that a test knows of them.
type world struct {
	t          testing.TB
	b          *serverstest.Broker
	id         string
	topic      string
	group      string
	partitions int32
	database   string
	pool       *pgxpool.Pool
	admin      sarama.ClusterAdmin

	mu       sync.Mutex
	watched  string          // the group whose offsets are watched
	events   [][]string      // ids, by partition and offset
	ids      map[string]bool // all of them
	verified []int           // of each partition, so many events have been seen to have taken effect
	reported bool
	again    bool // the topic was created again, and the offset of the old one may still be committed
}

// effectTable would take an effect twice: nothing in it is unique.
const effectTable = `
create table effect (event text not null, partition int not null, "offset" bigint not null, by text not null);
create index on effect (event)`

// newWorld makes the tables and the topic, and watches until the test ends.
func newWorld(t testing.TB, b *serverstest.Broker, partitions int32) *world {
	t.Helper()
	w := &world{
		t: t, b: b, id: strings.ToLower(rand.Text()[:8]), topic: b.Topic(t, partitions), group: serverstest.Group(t),
		partitions: partitions,
		database:   serverstest.DatabaseURL(t), events: make([][]string, partitions), ids: map[string]bool{},
		verified: make([]int, partitions),
	}
	cfg, err := pgxpool.ParseConfig(w.database)
	must(t, err)
	cfg.MaxConns = 2
	w.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(w.pool.Close)
	must(t, schema.Postgres.Apply(t.Context(), func(ctx context.Context, sql string) error {
		_, err := w.pool.Exec(ctx, sql)
		return err
	}, nil, schema.Dedup))
	w.exec(effectTable)
	w.admin, err = sarama.NewClusterAdmin(b.Addrs, clientConfig())
	must(t, err)
	t.Cleanup(func() { _ = w.admin.Close() })
	w.regroup(w.group)
	w.watch()
	return w
}

// regroup has another group watched.
func (w *world) regroup(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched = group
}

func (w *world) watchedGroup() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watched
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), sql, args...)
	must(w.t, err)
}

// query returns the one value that sql selects.
func query[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), sql, args...)
	must(w.t, err)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	must(w.t, err)
	return value
}

// produce appends events to a partition, one message for each id. There are some keys.
func (w *world) produce(partition int32, ids ...string) {
	w.t.Helper()
	w.produceTo(map[int32][]string{partition: ids})
}

// produceTo does that for several partitions at once.
func (w *world) produceTo(partitions map[int32][]string) {
	w.t.Helper()
	var msgs []*sarama.ProducerMessage
	w.mu.Lock() // before they can be seen, so that a watcher that sees their offsets knows them
	for p, ids := range partitions {
		w.events[p] = append(w.events[p], ids...)
		for _, id := range ids {
			w.ids[id] = true
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: w.topic, Partition: p, Key: sarama.StringEncoder(keyOf(id)), Value: sarama.StringEncoder("{}"),
				Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)},
					{Key: []byte("id"), Value: []byte("another-" + id)}},
			})
		}
	}
	w.mu.Unlock()
	w.send(msgs)
}

// send returns when all messages are in the log, each of them once and in their order: the producer is idempotent,
// since a message that it sent again after a broken connection would shift all offsets.
func (w *world) send(msgs []*sarama.ProducerMessage) {
	w.t.Helper()
	cfg := clientConfig()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Retry.Max = 20
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(w.b.Addrs, cfg)
	must(w.t, err)
	defer producer.Close()
	must(w.t, producer.SendMessages(msgs))
}

// keyOf is the key of an event's messages: its last digit.
func keyOf(id string) string { return id[len(id)-1:] }

// produceMany appends n events, id "0", "1" and so on, to partition 0.
func (w *world) produceMany(n int) {
	w.t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint("event-", i))
	}
	w.produce(0, ids...)
}

// member returns what every member of the group is told.
func (w *world) member(name string) orders {
	return orders{Name: name + "-" + w.id, Database: w.database, Brokers: w.b.Addrs, Group: w.group, Topic: w.topic}
}

// watch looks from outside until the test ends: is a committed offset ahead of the effects?
func (w *world) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	watchers.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(15 * time.Millisecond):
				w.check()
			}
		}
	})
	if w.b.Fake != nil {
		watchers.Go(func() { servers.ExpireGhosts(ctx, w.b.Fake, w.group) })
	}
	w.t.Cleanup(func() {
		cancel()
		watchers.Wait()
	})
}

// check looks once, and reports at most once. It returns the committed offsets, -1 for none.
func (w *world) check() []int64 {
	w.t.Helper()
	committed, err := w.committed()
	if err != nil {
		return committed // a coordinator that moves or loads; the next look will tell
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, offset := range committed {
		if int(offset) <= w.verified[p] {
			continue
		}
		if int(offset) > len(w.events[p]) && w.again {
			continue
		}
		if int(offset) > len(w.events[p]) {
			w.report("partition %d: %d is committed, it has %d messages", p, offset, len(w.events[p]))
			continue
		}
		if missing := w.missing(w.events[p][w.verified[p]:offset]); missing != "" {
			w.report("partition %d: %d is committed, but %s, at an offset before it, has no effect yet", p, offset, missing)
			continue
		}
		w.verified[p] = int(offset)
	}
	return committed
}

func (w *world) report(format string, args ...any) {
	if !w.reported {
		w.reported = true
		w.t.Errorf("the offset is ahead of the effects: "+format, args...)
	}
}

// missing returns one of the events that has no effect.
func (w *world) missing(events []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var id string
	err := w.pool.QueryRow(ctx, `select id from unnest($1::text[]) id where id <> '' and not exists (select from effect where event = id) limit 1`, events).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		w.t.Errorf("look for effects: %v", err)
	}
	return id
}

func (w *world) committed() ([]int64, error) {
	var all []int32
	offsets := make([]int64, w.partitions)
	for p := range w.partitions {
		all, offsets[p] = append(all, p), -1
	}
	answer, err := w.admin.ListConsumerGroupOffsets(w.watchedGroup(), map[string][]int32{w.topic: all})
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		return offsets, nil
	}
	if err != nil {
		return offsets, err
	}
	for p := range w.partitions {
		block := answer.GetBlock(w.topic, p)
		if block == nil || block.Err != sarama.ErrNoError {
			return offsets, errors.New("no offset in the answer")
		}
		offsets[p] = block.Offset
	}
	return offsets, nil
}

// awaitAll waits until the group has committed the end of every partition.
func (w *world) awaitAll() {
	w.t.Helper()
	eventually(w.t, "the end of every partition is committed", func() bool {
		committed := w.check()
		w.mu.Lock()
		defer w.mu.Unlock()
		for p, offset := range committed {
			if int(max(0, offset)) != len(w.events[p]) {
				return false
			}
		}
		return true
	})
}

// lose says that messages were deleted before anybody has seen them.
func (w *world) lose(partition int32, from, to int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for offset := from; offset < to; offset++ {
		delete(w.ids, w.events[partition][offset])
		w.events[partition][offset] = lost
	}
}

const lost = ""

// createTopicAgain deletes the topic and creates it under the same name, with something in between. All its events have
// taken effect.
func (w *world) createTopicAgain(between func()) {
	w.t.Helper()
	w.mu.Lock()
	w.events, w.verified, w.again = make([][]string, w.partitions), make([]int, w.partitions), true
	w.mu.Unlock()
	must(w.t, w.admin.DeleteTopic(w.topic))
	between()
	eventually(w.t, "the topic is created again", func() bool {
		err := w.admin.CreateTopic(w.topic, &sarama.TopicDetail{NumPartitions: w.partitions, ReplicationFactor: -1}, false)
		return err == nil
	})
}

// wantOnce checks that every event has taken effect once.
func (w *world) wantOnce() {
	w.t.Helper()
	w.wantAudited()
	rows, err := w.pool.Query(w.t.Context(), `select event, count(*) from effect group by event`)
	must(w.t, err)
	effects := map[string]int{}
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		effects[id] = n
		return nil
	})
	must(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []string
	for id := range w.ids {
		if effects[id] != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %d", id, effects[id]))
		}
		delete(effects, id)
	}
	if len(wrong) > 0 || len(effects) > 0 {
		w.t.Errorf("of %d events %d have not taken effect once: %v; unknown events: %v", len(w.ids), len(wrong),
			wrong[:min(10, len(wrong))], effects)
	}
	if recorded := query[int](w, `select count(*) from processed_event`); recorded != len(w.ids) {
		w.t.Errorf("%d events are recorded, want %d", recorded, len(w.ids))
	}
}

// audited has package audit judge beside the watcher: from what Kafka and the database have, and nothing that the test
// knows. It works also beside members that come and go; what it cannot look at then is no answer.
func (w *world) audited() (*audit.Report, error) {
	w.t.Helper()
	db := stdlib.OpenDBFromPool(w.pool)
	defer db.Close()
	r, err := audit.Run(w.t.Context(), audit.Kafka{Brokers: w.b.Addrs}, db, audit.Config{
		Topic: w.topic, Group: w.watchedGroup(), Effects: "select event from effect", TempDir: w.t.TempDir(),
	})
	if err == nil && !r.Clean() {
		for _, kind := range audit.Findings() {
			if found := r.Found[kind]; found.Count > 0 {
				w.t.Errorf("the audit has found %d %s: %+v", found.Count, kind, found.Examples)
			}
		}
	}
	return r, err
}

// wantAudited checks that the audit finds nothing, and that each event of the topic has its fate.
func (w *world) wantAudited() {
	w.t.Helper()
	r, err := w.audited()
	must(w.t, err)
	if r.Undecided != 0 || r.Recorded+r.Dead != r.Events ||
		r.Effects != int64(query[int](w, `select count(*) from effect`)) {
		w.t.Errorf("the audit is not sure: %+v", r)
	}
}

// duplicates is how many deliveries of the event were recognised as repetitions.
func (w *world) duplicates(event string) int {
	w.t.Helper()
	return query[int](w, `select coalesce(max(duplicates), 0) from processed_event where event_id = $1`, event)
}

// by returns who made the effect of the struck event: "" if there is none yet.
func (w *world) by() string {
	w.t.Helper()
	return query[string](w, `select coalesce(max(by), '') from effect where event = $1`, event5)
}

// awaitNoSession waits until the server has noticed that a process is gone. What it had sent has been worked off then.
func (w *world) awaitNoSession(name string) {
	w.t.Helper()
	eventually(w.t, "the sessions of "+name+" are gone", func() bool {
		return query[int](w, `select count(*) from pg_stat_activity where application_name = $1`, name) == 0
	})
}

// preparing is the state of a group that waits for its members to join again.
const preparing = "PreparingRebalance"

func clientConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "einmal-crashtest"
	c.Version = sarama.V3_6_0_0
	c.Metadata.AllowAutoTopicCreation = false
	return c
}
