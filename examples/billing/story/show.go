package story

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/servers"
)

// Show is what the demo shows: a story, or all side by side.
type Show struct {
	Options
	Compare bool // tell it of services without einmal, too
}

// Run finds the servers for the stories, tells them, and prints what they came to. It returns an error if einmal broke
// its promise.
func (s *Show) Run(ctx context.Context) (err error) {
	stage, err := openStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	return s.On(ctx, stage)
}

// On is Run on servers that are there.
func (s *Show) On(ctx context.Context, stage *Stage) error {
	fmt.Fprintf(s.Out, "seed      %d\nbroker    %s\ndatabase  %s\n", s.Seed, stage.Kafka.Origin, stage.Database.Origin)
	var columns []column
	for _, mode := range s.modes() {
		s.Mode = mode
		f, err := s.one(ctx, stage)
		if ctx.Err() != nil && s.Serve == "" {
			return errors.New("interrupted")
		}
		if err != nil {
			return err
		}
		columns = append(columns, column{title: mode.title(), Figures: f})
	}
	return s.judge(columns)
}

// modes are those to tell the story with.
func (s *Show) modes() []Mode {
	if s.Compare {
		return modes
	}
	return []Mode{s.Mode}
}

// one tells one story, in schemas and topics of its own.
func (s *Show) one(ctx context.Context, stage *Stage) (f Figures, err error) {
	name := "einmal-billing-" + strings.ToLower(rand.Text()[:8])
	databases, drop, err := newDatabases(ctx, stage.Database)
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return f, err
	}
	fmt.Fprintf(s.Out, "\n%s; topics %s.*, schemas %s\n", s.Mode.heading(), name, strings.Join(databases.names, " "))
	o := s.Options
	o.Name, o.Brokers, o.Fake, o.Databases = name, strings.Join(stage.Kafka.Addrs, ","), stage.Kafka.Fake, databases
	return New(o).Tell(ctx)
}

// newDatabases makes a schema for each service, and one for the story. drop removes what was made.
func newDatabases(ctx context.Context, database *servers.Database) (d Databases, drop func(context.Context) error,
	err error) {
	var made []*servers.Schema
	drop = func(ctx context.Context) error {
		var errs []error
		for _, schema := range made {
			errs = append(errs, schema.Drop(ctx))
		}
		return errors.Join(errs...)
	}
	for label, url := range map[string]*string{
		"billing-orders": &d.Orders, "billing-billing": &d.Billing, "billing-provider": &d.Provider,
		"billing-receipts": &d.Receipts, "billing-story": &d.Story,
	} {
		schema, err := database.NewSchema(ctx, label)
		if err != nil {
			return d, drop, err
		}
		made, d.names = append(made, schema), append(d.names, schema.Name)
		*url = schema.URL
	}
	return d, drop, nil
}

// judge prints the table and says in words what it shows. Only what einmal promises can fail.
func (s *Show) judge(columns []column) error {
	fmt.Fprintln(s.Out)
	if len(columns) == 1 {
		columns[0].title = ""
	}
	printTable(s.Out, columns...)
	for _, c := range columns {
		if len(c.Audits) > 0 {
			fmt.Fprintln(s.Out)
			printAudits(s.Out, c.Audits)
		}
	}
	fmt.Fprintln(s.Out)
	for i, mode := range s.modes() {
		f := columns[i].Figures
		switch {
		case mode != Einmal:
			fmt.Fprintln(s.Out, mode.damage(f))
		case !f.Exact():
			return errors.New("einmal broke its promise: not every request was one order, one charge, one payment and one receipt. Please report it with the lines above")
		default:
			fmt.Fprintln(s.Out, "einmal: every request was one order, one charge, one payment at the provider and one receipt.")
		}
	}
	return nil
}

// Stage is the servers that stories run on.
type Stage struct {
	Kafka    *servers.Kafka
	Database *servers.Database
}

// searchTimeout is enough to fetch a database's binaries over a slow line.
const searchTimeout = 3 * time.Minute

func openStage(ctx context.Context) (*Stage, error) {
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
	return &Stage{kafka, database}, nil
}

func openKafka(ctx context.Context) (*servers.Kafka, error) {
	if os.Getenv(servers.EnvKafkaBrokers) != "" {
		return servers.RealKafka(ctx)
	}
	return servers.InProcessKafka()
}

func (s *Stage) close() error { return errors.Join(s.Database.Close(), s.Kafka.Close()) }
