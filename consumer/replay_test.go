package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/schema"
)

// effects is a database in which each event leaves a row.
func effects(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := serverstest.Pool(t)
	execute(t, pool, schema.Postgres.SQL(nil, schema.Dedup))
	execute(t, pool, "create table effect (event_id text not null)")
	return pool
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func rows(t *testing.T, pool *pgxpool.Pool, of string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "select count(*) from "+of).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func effect(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
	_, err := tx.Exec(ctx, "insert into effect values ($1)", msg.EventID)
	return err
}

// replay runs a replay that must end without an error, and returns its report.
func replay(t *testing.T, cfg consumer.Config, rc consumer.ReplayConfig) *consumer.ReplayReport {
	t.Helper()
	cfg.Logger = logger(t)
	report, err := consumer.Replay(t.Context(), cfg, rc)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// whole is the window of all there is, as fast as it goes.
func whole(topic string) consumer.ReplayConfig {
	return consumer.ReplayConfig{Topic: topic, All: true, Keep: consumer.KeptForever, PerSecond: -1}
}

// What a database has lost comes back by a replay, nothing twice, and no group moves.
func TestReplay(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		pool := effects(t)
		topic, group := b.Topic(t, 6), serverstest.Group(t)
		b.Produce(t, records(topic, 6, 10)...)
		cfg := config(b, group, topic, middleware.Dedup(pgxstore.New(pool, nil), effect, nil))

		if got := replay(t, cfg, whole(topic)).ReplayCounts; got != (consumer.ReplayCounts{Read: 60, Processed: 60}) {
			t.Errorf("the first replay: %+v", got)
		}
		execute(t, pool, "with lost as (delete from effect where event_id like '%-3-%' returning event_id) delete from processed_event using lost where processed_event.event_id = lost.event_id")
		report := replay(t, cfg, whole(topic))
		if got := report.ReplayCounts; got != (consumer.ReplayCounts{Read: 60, Processed: 10, Duplicates: 50}) {
			t.Errorf("after a loss: %+v", got)
		}
		if n := rows(t, pool, "effect"); n != 60 || rows(t, pool, "(select distinct event_id from effect) as ids") != 60 {
			t.Errorf("%d effects", n)
		}
		if len(report.Next) > 0 {
			t.Errorf("it is to go on at %+v", report.Next)
		}
		for p := range int32(6) {
			if c := b.Committed(t, group, topic)[p]; c != -1 {
				t.Errorf("offset %d of partition %d is committed", c, p)
			}
		}
	})
}

// The handler sees what Run would show it, and nothing of the message is in the log.
func TestReplayedMessage(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		b.Produce(t, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("planted key"), Value: sarama.StringEncoder("planted value"),
			Timestamp: time.UnixMilli(1_700_000_000_123),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("e1")},
				{Key: []byte("h"), Value: []byte("planted header")}},
		})
		var got consumer.Message
		var log lines
		cfg := config(b, group, topic,
			middleware.Dedup(memstore.New(), func(ctx context.Context, _ *memstore.Tx, msg *consumer.Message) error {
				got = *msg
				if from, ok := consumer.MessageFrom(ctx); !ok || from != msg {
					t.Error("MessageFrom has another message")
				}
				return errors.New("no good")
			}, nil))
		cfg.Logger = log.logger()
		_, err := consumer.Replay(t.Context(), cfg, whole(topic))
		if stopped, ok := errors.AsType[*consumer.StopError](err); !ok || stopped.Topic != topic || stopped.Offset != 0 {
			t.Errorf("it returned %v", err)
		}
		if got.Group != group || got.Consumer != group+"/"+topic || got.EventID != "e1" || got.Attempt != 1 ||
			got.TopicID == (consumer.TopicID{}) ||
			string(got.Key) != "planted key" || string(got.Value) != "planted value" ||
			got.Timestamp.UnixMilli() != 1_700_000_000_123 || len(got.Headers) != 2 {
			t.Errorf("it saw %+v", got)
		}
		if text := log.String() + err.Error(); strings.Contains(text, "planted") ||
			!strings.Contains(text, "failed in a replay") {
			t.Errorf("the log: %s", text)
		}
	})
}

// at makes a record of a time, with an id or without one.
func at(topic, id string, when time.Time) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: topic, Timestamp: when, Value: sarama.StringEncoder(id)}
	if id != "" {
		m.Headers = []sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte(id)}}
	}
	return m
}

// Old messages, and those without an id, are not delivered: nothing would tell that they have had their effect.
func TestReplayLeavesOut(t *testing.T) {
	t.Parallel()
	b, now := serverstest.InProcess(t), time.Now()
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, at(topic, "older", now.Add(-3*time.Hour)), at(topic, "old", now.Add(-90*time.Minute)),
		at(topic, "young", now.Add(-time.Minute)), at(topic, "", now))
	for _, c := range []struct {
		window, keep time.Duration
		tooOld       int64
	}{
		{0, consumer.KeptForever, 0},
		{0, 2 * time.Hour, 1},
		{time.Hour, 0, 2},
		{time.Hour, 2 * time.Hour, 2},
		{2 * time.Hour, time.Hour, 2},
		{2 * time.Hour, consumer.KeptForever, 1},
	} {
		var s seen
		rc := whole(topic)
		rc.Keep = c.keep
		cfg := config(b, group, topic,
			middleware.Dedup(memstore.New(),
				func(ctx context.Context, _ *memstore.Tx, msg *consumer.Message) error { return s.Handle(ctx, msg) },
				&middleware.DedupConfig{Window: c.window}))
		want := consumer.ReplayCounts{Read: 4, Processed: 3 - c.tooOld, TooOld: c.tooOld, WithoutID: 1}
		if got := replay(t, cfg, rc).ReplayCounts; got != want || int64(s.len()) != want.Processed {
			t.Errorf("window %v, keep %v: %+v, want %+v", c.window, c.keep, got, want)
		}
	}
}

// A window is of times or of offsets.
func TestReplayWindows(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		now := time.Now().Truncate(time.Second)
		topic, group := b.Topic(t, 2), serverstest.Group(t)
		for i := range 10 {
			b.Produce(t, at(topic, fmt.Sprint(i), now.Add(time.Duration(i-10)*time.Minute)))
		}
		for says, c := range map[string]struct {
			rc   consumer.ReplayConfig
			want string
		}{
			"from": {consumer.ReplayConfig{From: now.Add(-3 * time.Minute)}, "7 8 9"},
			"to":   {consumer.ReplayConfig{To: now.Add(-8 * time.Minute)}, "0 1"},
			"from to": {consumer.ReplayConfig{From: now.Add(-8*time.Minute - time.Second),
				To: now.Add(-5 * time.Minute)}, "2 3 4"},
			"behind the end":    {consumer.ReplayConfig{From: now.Add(time.Hour)}, ""},
			"before the start":  {consumer.ReplayConfig{To: now.Add(-time.Hour)}, ""},
			"to before 1970":    {consumer.ReplayConfig{To: time.UnixMilli(-1)}, ""},
			"from before 1970":  {consumer.ReplayConfig{From: time.Unix(-3600, 0), To: now.Add(-8 * time.Minute)}, "0 1"},
			"offsets":           {consumer.ReplayConfig{Offsets: map[int32]consumer.OffsetRange{0: {From: 3, To: 5}}}, "3 4"},
			"offsets to end":    {consumer.ReplayConfig{Offsets: map[int32]consumer.OffsetRange{0: {From: 8}}}, "8 9"},
			"offsets beyond":    {consumer.ReplayConfig{Offsets: map[int32]consumer.OffsetRange{0: {From: 9, To: 1000}}}, "9"},
			"another partition": {consumer.ReplayConfig{Offsets: map[int32]consumer.OffsetRange{1: {From: 0}}}, ""},
		} {
			var s seen
			c.rc.Topic, c.rc.Keep, c.rc.PerSecond = topic, consumer.KeptForever, -1
			replay(t, config(b, group, topic,
				middleware.Dedup(memstore.New(),
					func(ctx context.Context, _ *memstore.Tx, msg *consumer.Message) error { return s.Handle(ctx, msg) }, nil)), c.rc)
			var ids []string
			for _, msg := range s.all() {
				ids = append(ids, msg.EventID)
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("%s: %q, want %q", says, got, c.want)
			}
		}
	})
}

// Behind the last record of a window there can be markers of transactions, and aborted records are none for who reads
// committed ones.
func TestReplayOfTransactions(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		topic, group := b.Topic(t, 1), serverstest.Group(t)
		transact(t, b, group, at(topic, "committed", time.Now()), true)
		transact(t, b, group, at(topic, "aborted", time.Now()), false)
		transact(t, b, group, at(topic, "again", time.Now()), true)
		transact(t, b, group, at(topic, "aborted at the end", time.Now()), false)
		for isolation, want := range map[sarama.IsolationLevel]int64{sarama.ReadCommitted: 2, sarama.ReadUncommitted: 4} {
			cfg := config(b, group, topic,
				middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }, nil))
			if isolation != sarama.ReadCommitted { // that is the default
				cfg.Sarama = func(c *sarama.Config) { c.Consumer.IsolationLevel = isolation }
			}
			report := replay(t, cfg, whole(topic))
			if report.Processed != want || report.Read != want || len(report.Next) > 0 {
				t.Errorf("isolation %v: %+v", isolation, report)
			}
		}

		open := transactional(t, b, group+"-open") // what is committed later is left to a later replay
		begin(t, open, topic, "open")
		b.Produce(t, at(topic, "behind it", time.Now()))
		cfg := config(b, group, topic,
			middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }, nil))
		if report := replay(t, cfg, whole(topic)); report.Read != 2 ||
			report.Next[0] != (consumer.OffsetRange{From: 8, To: 10}) {
			t.Errorf("with an open transaction: %+v", report)
		}
		must(t, open.CommitTxn())
	})
}

// transact produces a record in a transaction of its own.
func transact(t *testing.T, b *serverstest.Broker, id string, msg *sarama.ProducerMessage, commit bool) {
	t.Helper()
	c := sarama.NewConfig()
	c.Version, c.Producer.Return.Successes, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.V3_6_0_0, true, true, 1
	c.Producer.RequiredAcks, c.Producer.Transaction.ID = sarama.WaitForAll, id
	c.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := sarama.NewSyncProducer(b.Addrs, c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.BeginTxn(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.SendMessage(msg); err != nil {
		t.Fatal(err)
	}
	end := p.AbortTxn
	if commit {
		end = p.CommitTxn
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// Retry's attempts are made, up to the limit; what fails then stops the replay, or is counted.
func TestReplayOfFailures(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 5)...)
	attempts := map[string]int{}
	handler := func(_ context.Context, _ *memstore.Tx, msg *consumer.Message) error {
		attempts[msg.EventID]++
		switch {
		case strings.HasSuffix(msg.EventID, "-1") && attempts[msg.EventID] < 3:
			return consumer.RetryAfter(time.Millisecond, errors.New("not yet"))
		case strings.HasSuffix(msg.EventID, "-2"):
			return consumer.RetryAfter(time.Millisecond, errors.New("never"))
		case strings.HasSuffix(msg.EventID, "-3"):
			panic("planted")
		}
		return nil
	}
	cfg := config(b, group, topic, middleware.Dedup(memstore.New(), handler, nil))
	cfg.Logger = logger(t)
	rc := whole(topic)
	rc.Attempts = 4
	report, err := consumer.Replay(t.Context(), cfg, rc)
	if stopped, ok := errors.AsType[*consumer.StopError](err); !ok || stopped.Offset != 2 {
		t.Errorf("it returned %v", err)
	}
	if report.ReplayCounts != (consumer.ReplayCounts{Read: 2, Processed: 2}) ||
		report.Next[0] != (consumer.OffsetRange{From: 2, To: 5}) {
		t.Errorf("it reports %+v", report)
	}
	rc.All, rc.Offsets, rc.OnFailure = false, report.Next, consumer.CountFailures // go on
	if report = replay(t, cfg, rc); report.ReplayCounts != (consumer.ReplayCounts{Read: 3, Processed: 1, Failed: 2}) {
		t.Errorf("it reports %+v", report)
	}
	want := map[string]int{topic + "-0-0": 1, topic + "-0-1": 3, topic + "-0-2": 8, topic + "-0-3": 1, topic + "-0-4": 1}
	if !maps.Equal(attempts, want) {
		t.Errorf("attempts %v, want %v", attempts, want)
	}
}

// Dead letters are written as in Run.
func TestReplayWithAChain(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	b.Produce(t, records(topic, 1, 3)...)
	var links []string
	outer := func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, msg *consumer.Message) error {
			err := next.Handle(ctx, msg)
			links = append(links, fmt.Sprintf("attempt %d gave up %v: %v", msg.Attempt, consumer.IsGaveUp(err), err != nil))
			if consumer.IsGaveUp(err) {
				msg.Result.Dead = true
				return nil
			}
			return err
		})
	}
	cfg := config(b, group, topic, nil)
	cfg.Middleware = []consumer.Middleware{outer,
		middleware.Retry(2, &middleware.RetryConfig{Base: time.Millisecond, Max: time.Millisecond}), middleware.Recover()}
	cfg.Topics = map[string]consumer.Topic{topic: {Handler: middleware.Dedup(memstore.New(),
		func(_ context.Context, _ *memstore.Tx, msg *consumer.Message) error {
			if msg.Offset == 1 {
				return errors.New("never")
			}
			return nil
		}, nil)}}
	if got := replay(t, cfg, whole(topic)).ReplayCounts; got != (consumer.ReplayCounts{Read: 3, Processed: 2, Dead: 1}) {
		t.Errorf("%+v", got)
	}
	if want := []string{"attempt 1 gave up false: false", "attempt 1 gave up false: true", "attempt 2 gave up true: true",
		"attempt 1 gave up false: false"}; !slices.Equal(links, want) {
		t.Errorf("the chain saw %q, want %q", links, want)
	}
}

// All that is wrong with a replay is said before anything is read, with what to do.
func TestReplayConfig(t *testing.T) {
	t.Parallel()
	dedup := middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil },
		nil)
	cfg := valid()
	cfg.Topics = map[string]consumer.Topic{"orders": {Handler: dedup}, "plain": {Handler: nop}}
	noon := time.Now()
	for _, c := range []struct {
		rc   consumer.ReplayConfig
		says []string
	}{
		{consumer.ReplayConfig{Topic: "order"}, []string{`ReplayConfig.Topic: "order" is not in Config.Topics`}},
		{consumer.ReplayConfig{Topic: "orders"}, []string{"names no window", "ReplayConfig.Keep: is not set", "KeptForever"}},
		{consumer.ReplayConfig{Topic: "plain", All: true, Keep: time.Hour}, []string{`Config.Topics["plain"]: has no Dedup`}},
		{consumer.ReplayConfig{Topic: "orders", From: time.Now(), Offsets: map[int32]consumer.OffsetRange{0: {}},
			Keep: time.Hour}, []string{"use the one or the other"}},
		{consumer.ReplayConfig{Topic: "orders", From: time.Now(), To: time.Now().Add(-time.Hour), Keep: -3},
			[]string{"is not before To", "Keep: is -3ns"}},
		{consumer.ReplayConfig{Topic: "orders", From: noon, To: noon, Keep: time.Hour}, []string{"is not before To"}},
		{consumer.ReplayConfig{Topic: "orders", Offsets: map[int32]consumer.OffsetRange{2: {From: 5, To: 3}}, Keep: time.Hour,
			Attempts: -1, OnFailure: 7}, []string{"Offsets[2]: is 5 to 3", "Attempts: is -1", "OnFailure: is 7"}},
	} {
		report, err := consumer.Replay(t.Context(), cfg, c.rc)
		if err == nil || report == nil {
			t.Fatalf("%+v: %v, %v", c.rc, report, err)
		}
		says(t, err, c.says...)
	}
}

func TestReplayOfATopicThatIsNotThere(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	cfg := config(b, "billing", "nowhere",
		middleware.Dedup(memstore.New(), func(context.Context, *memstore.Tx, *consumer.Message) error { return nil }, nil))
	cfg.Logger = logger(t)
	_, err := consumer.Replay(t.Context(), cfg, whole("nowhere"))
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("%v", err)
	}
	topic := b.Topic(t, 1)
	cfg = config(b, "billing", topic, cfg.Topics["nowhere"].Handler)
	rc := consumer.ReplayConfig{Topic: topic, Keep: consumer.KeptForever, Offsets: map[int32]consumer.OffsetRange{7: {}}}
	if _, err := consumer.Replay(t.Context(), cfg, rc); err == nil ||
		!strings.Contains(err.Error(), "no partition 7: it has 1") {
		t.Errorf("%v", err)
	}
}
