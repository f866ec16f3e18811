package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/servers"
)

const storyDoc = `
billing tells a story: some thousand orders, many of them sent twice, are charged by two workers, which are killed with SIGKILL again
and again, some of them between the database's COMMIT and the mark in Kafka. At the end it counts: every order must be charged once.

It uses the Kafka of ` + servers.EnvKafkaBrokers + `, or else one that speaks the real protocol inside this process, and the PostgreSQL of
` + servers.EnvDatabaseURL + `, or else one that it finds or starts by itself. It works in a schema and a topic of its own, which it removes.

The commands consume and produce run the parts: billing consume -h, billing produce -h.`

// show is what the flags ask for.
type show struct {
	storyOptions
	compare bool
	verbose bool
}

func storyCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := show{storyOptions: storyOptions{out: stdout, log: io.Discard}}
	fs := newFlags("billing", storyDoc)
	fs.IntVar(&s.orders, "n", 3000, "`orders` to charge")
	fs.IntVar(&s.kills, "kills", 8, "`times` that a worker is killed")
	fs.Uint64Var(&s.seed, "seed", 0, "`seed` of the orders and the kills (default: random)")
	fs.DurationVar(&s.work, "work", 5*time.Millisecond, "how long an order takes")
	fs.BoolVar(&s.naive, "naive", false, "tell the story of a plain consumer that commits by itself, and show the damage")
	fs.BoolVar(&s.compare, "compare", false, "tell both stories, and show them side by side")
	fs.BoolVar(&s.verbose, "v", false, "show what the workers log")
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	if err := errors.Join(inRange(fs, "n", s.orders, 1, 100_000), inRange(fs, "kills", s.kills, 0, 1000)); err != nil {
		return err
	}
	s.seed = cmp.Or(s.seed, randomSeed())
	if s.verbose {
		s.log = stderr
	}
	return s.run(ctx)
}

// run finds the servers for the stories.
func (s *show) run(ctx context.Context) (err error) {
	stage, err := openStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	return s.on(ctx, stage)
}

// on tells the stories on servers that are there.
func (s *show) on(ctx context.Context, stage *stage) error {
	fmt.Fprintf(s.out, "seed      %d\nbroker    %s\ndatabase  %s\n", s.seed, stage.kafka.Origin, stage.database.Origin)
	var columns []column
	for _, naive := range s.modes() {
		s.naive = naive
		f, err := s.one(ctx, stage)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return err
		}
		columns = append(columns, column{title: title(naive), figures: f})
	}
	return s.judge(columns)
}

// modes are the values of naive to tell the story with.
func (s *show) modes() []bool {
	if s.compare {
		return []bool{false, true}
	}
	return []bool{s.naive}
}

func title(naive bool) string {
	if naive {
		return "plain"
	}
	return "einmal"
}

func heading(naive bool) string {
	if naive {
		return "With a plain consumer, whose offsets are committed in the background"
	}
	return "With einmal"
}

// one tells one story, in a schema and a topic of its own.
func (s *show) one(ctx context.Context, stage *stage) (f figures, err error) {
	schema, err := stage.database.NewSchema(ctx, "billing")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, schema.Drop(context.WithoutCancel(ctx))) }()
	name := "einmal-billing-" + strings.ToLower(rand.Text()[:8])
	fmt.Fprintf(s.out, "\n%s; schema %s, topic %s\n", heading(s.naive), schema.Name, name)
	s.fake = stage.kafka.Fake
	t := target{brokers: strings.Join(stage.kafka.Addrs, ","), database: schema.URL, topic: name, group: name}
	return newStory(t, s.storyOptions).tell(ctx)
}

// judge prints the table and says in words what it shows. Only what einmal promises can fail.
func (s *show) judge(columns []column) error {
	fmt.Fprintln(s.out)
	if len(columns) == 1 {
		columns[0].title = ""
	}
	printTable(s.out, columns...)
	fmt.Fprintln(s.out)
	for i, naive := range s.modes() {
		f := columns[i].figures
		switch {
		case naive:
			fmt.Fprintln(s.out, damage(f))
		case !f.exact():
			return errors.New("einmal broke its promise: not every order was charged once. Please report it with the lines above")
		default:
			fmt.Fprintln(s.out, "einmal: every order was charged once.")
		}
	}
	return nil
}

// damage says what a plain consumer did.
func damage(f figures) string {
	if f.exact() {
		return "plain: by luck, every order was charged once. Other seeds will show other stories."
	}
	return fmt.Sprintf("plain: %s charges too many and %s orders never charged; the customers paid %s instead of %s.",
		thousands(int64(f.Doubled)), thousands(int64(f.Missing)), money(f.Charged), money(f.Expected))
}

// stage is the servers that stories run on.
type stage struct {
	kafka    *servers.Kafka
	database *servers.Database
}

// searchTimeout is enough to fetch a database's binaries over a slow line.
const searchTimeout = 3 * time.Minute

func openStage(ctx context.Context) (*stage, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	kafka, err := openKafka(ctx)
	if err != nil {
		return nil, err
	}
	database, err := servers.Postgres(ctx)
	if err != nil {
		return nil, errors.Join(err, kafka.Close())
	}
	return &stage{kafka, database}, nil
}

func openKafka(ctx context.Context) (*servers.Kafka, error) {
	if os.Getenv(servers.EnvKafkaBrokers) != "" {
		return servers.RealKafka(ctx)
	}
	return servers.InProcessKafka()
}

func (s *stage) close() error { return errors.Join(s.database.Close(), s.kafka.Close()) }
