package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // PostgreSQL has it too
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/schema"
)

// envAudited holds, in the process that audits, what it audits, in JSON.
const envAudited = "EINMAL_BENCH_AUDITED"

// audited is a topic, its group, and the database.
type audited struct {
	Brokers      []string
	Topic, Group string
	URL          string
}

// auditFigures are what the process that audits answers with.
type auditFigures struct {
	Took           time.Duration
	PeakKiB        int64 // 0 if the system does not tell
	Messages       int64
	Records        int64
	Effects        int64
	Recorded       int64
	Clean          bool
	SecondsOfSteps map[string]float64
}

// auditBench measures an audit of a large topic, in a process of its own.
func auditBench(ctx context.Context, args []string) error {
	if text := os.Getenv(envAudited); text != "" {
		return auditOnce(ctx, text)
	}
	fs := flag.NewFlagSet("audit", flag.ContinueOnError)
	messages := fs.Int("messages", 1_000_000, "messages in the topic, each with a record and an effect")
	size := fs.Int("size", 100, "bytes of a value")
	if err := fs.Parse(args); err != nil {
		return err
	}
	kafka, err := servers.RealKafka(ctx)
	if err != nil {
		return err
	}
	defer kafka.Close()
	database, err := servers.Postgres(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	s, err := database.NewSchema(ctx, "bench")
	if err != nil {
		return err
	}
	defer func() { _ = s.Drop(context.WithoutCancel(ctx)) }()
	fmt.Printf("audit: %d messages of %d bytes in 4 partitions, as many records and effects\nbroker    %s\ndatabase  %s\nmachine   %s\n",
		*messages, *size, kafka.Origin, database.Origin, machine())
	const partitions = 4
	return withEmptyTopic(kafka.Addrs, partitions, func(topic string) error {
		a := audited{Brokers: kafka.Addrs, Topic: topic, Group: topic, URL: s.URL}
		if err := a.prepare(ctx, *messages, *size, partitions); err != nil {
			return err
		}
		return a.measure(ctx, int64(*messages))
	})
}

// hashOf is the id of message i: as long as a UUID, and in no order.
func hashOf(i int) []byte {
	sum := md5.Sum([]byte(strconv.Itoa(i))) //nolint:gosec // no secret
	return []byte("evt-" + hex.EncodeToString(sum[:]))
}

// prepare has all messages handled, as it would look then.
func (a *audited) prepare(ctx context.Context, messages, size int, partitions int32) error {
	began := time.Now()
	value := []byte(strings.Repeat("x", size))
	if err := fill(a.Brokers, a.Topic, partitions, messages, hashOf, func(int) []byte { return value }); err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	pool, err := pgxpool.New(ctx, a.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, query := range []string{
		schema.Postgres.SQL(nil, schema.Dedup),
		fmt.Sprintf(`insert into processed_event (event_id, consumer_id)
select 'evt-' || md5(g::text) as id, '%s/%s' from generate_series(0, %d) g order by id`, a.Group, a.Topic, messages-1),
		`create table charge as select event_id from processed_event`,
		`vacuum analyze processed_event`,
	} {
		if _, err := pool.Exec(ctx, query); err != nil {
			return err
		}
	}
	fmt.Printf("prepared  in %v\n", time.Since(began).Round(time.Second))
	return a.commit(partitions)
}

// commit commits the end of each partition.
func (a *audited) commit(partitions int32) error {
	client, err := sarama.NewClient(a.Brokers, clientConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	offsets, err := sarama.NewOffsetManagerFromClient(a.Group, client)
	if err != nil {
		return err
	}
	defer offsets.Close()
	for p := range partitions {
		end, err := client.GetOffset(a.Topic, p, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		managed, err := offsets.ManagePartition(a.Topic, p)
		if err != nil {
			return err
		}
		managed.MarkOffset(end, "")
		managed.AsyncClose()
	}
	offsets.Commit()
	return nil
}

// measure starts the process that audits.
func (a *audited) measure(ctx context.Context, messages int64) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "audit")
	cmd.Env = append(os.Environ(), envAudited+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the audit: %w", err)
	}
	var f auditFigures
	if err := json.Unmarshal(out, &f); err != nil {
		return err
	}
	fmt.Printf("took      %v, %.0f messages/s\nsteps     %v\npeak      %d MiB\nread      %d messages, %d records, %d effects\nmachine   %s\n",
		f.Took.Round(100*time.Millisecond), float64(messages)/f.Took.Seconds(), f.SecondsOfSteps, f.PeakKiB>>10, f.Messages,
		f.Records, f.Effects, machine())
	if !f.Clean || f.Recorded != messages || f.Records != messages || f.Effects != messages {
		return fmt.Errorf("the audit has found what is not there: %s", out)
	}
	return nil
}

// auditOnce is the process that audits.
func auditOnce(ctx context.Context, text string) error {
	var a audited
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	db, err := sql.Open("pgx", a.URL)
	if err != nil {
		return err
	}
	defer db.Close()
	f := auditFigures{SecondsOfSteps: map[string]float64{}}
	began, step, since := time.Now(), "connecting", time.Now()
	next := func(name string) {
		f.SecondsOfSteps[step] += float64(time.Since(since).Round(100*time.Millisecond)) / float64(time.Second)
		step, since = name, time.Now()
	}
	r, err := audit.Run(ctx, audit.Kafka{Brokers: a.Brokers}, db, audit.Config{
		Topic: a.Topic, Group: a.Group, Effects: "select event_id from charge",
		Progress: func(p audit.Progress) {
			if p.Step != step {
				next(p.Step)
			}
		},
	})
	if err != nil {
		return err
	}
	next("")
	f.Took, f.PeakKiB = time.Since(began), peakKiB()
	f.Messages, f.Records, f.Effects, f.Recorded, f.Clean = r.Messages, r.Records, r.Effects, r.Recorded, r.Clean()
	return json.NewEncoder(os.Stdout).Encode(f)
}

// peakKiB is the most memory that this process has had, 0 where the system does not tell.
func peakKiB() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return n
		}
	}
	return 0
}
