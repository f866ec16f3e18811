// Command servers starts PostgreSQL and a real Apache Kafka by Docker and keeps them until it is told to end by SIGTERM
// or SIGINT. Tests and the demo that are run meanwhile use them all together:
//
//	go run ./internal/servers/cmd/servers -env servers.env    # in a terminal of its own, ended by Ctrl-C
//	. ./servers.env && go test ./...
//
// The file is there once both answer. It is removed at the end, and so are the containers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/einmal-go/einmal/internal/servers"
)

func main() {
	var o options
	flag.StringVar(&o.file, "env", "servers.env",
		"`file` for the shell's export commands, written when the servers answer")
	flag.BoolVar(&o.postgres, "postgres", true, "start PostgreSQL, from the image that "+servers.EnvPostgresImage+" names")
	flag.BoolVar(&o.foreign, "foreign", false,
		"start a PostgreSQL of this machine's programs whose messages are Japanese and whose times look unusual, and nothing else")
	flag.BoolVar(&o.kafka, "kafka", true, "start Apache Kafka, from the image that "+servers.EnvKafkaImage+" names")
	flag.DurationVar(&o.lifetime, "lifetime", 12*time.Hour, "when Docker ends the servers if nobody does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

type options struct {
	file            string
	postgres, kafka bool
	foreign         bool
	lifetime        time.Duration
}

// run keeps the servers until ctx is done.
func run(ctx context.Context, o options) (err error) {
	started, err := startAll(ctx, o)
	defer func() { err = errors.Join(err, started.close()) }()
	if err != nil {
		return err
	}
	if err := writeWhole(o.file, started.exports()); err != nil {
		return err
	}
	defer os.Remove(o.file)
	for _, origin := range started.origins {
		fmt.Fprintln(os.Stderr, "servers:", origin)
	}
	<-ctx.Done()
	return nil
}

// running is what was started.
type running struct {
	origins   []string
	variables [][2]string
	closers   []func() error
}

// startAll answers with what was started even when not all of it was.
func startAll(ctx context.Context, o options) (running, error) {
	var r running
	if o.foreign {
		db, err := servers.Foreign(ctx)
		if err != nil {
			return r, fmt.Errorf("start PostgreSQL in Japanese: %w", err)
		}
		r.add(db.Origin, servers.EnvDatabaseURL, db.URL(), db.Close)
		return r, nil
	}
	if o.postgres {
		db, err := servers.DockerPostgres(ctx, o.lifetime)
		if err != nil {
			return r, fmt.Errorf("start PostgreSQL: %w", err)
		}
		r.add(db.Origin, servers.EnvDatabaseURL, db.URL, db.Close)
	}
	if o.kafka {
		k, err := servers.DockerKafka(ctx, o.lifetime)
		if err != nil {
			return r, fmt.Errorf("start Kafka: %w", err)
		}
		r.add(k.Origin, servers.EnvKafkaBrokers, strings.Join(k.Addrs, ","), k.Close)
	}
	return r, nil
}

func (r *running) add(origin, variable, value string, closer func() error) {
	r.origins = append(r.origins, origin)
	r.variables = append(r.variables, [2]string{variable, value})
	r.closers = append(r.closers, closer)
}

func (r *running) close() (err error) {
	for _, closer := range r.closers {
		err = errors.Join(err, closer())
	}
	return err
}

// exports is what a shell reads. The values are quoted; none of them holds a quote.
func (r *running) exports() string {
	var b strings.Builder
	for _, v := range r.variables {
		fmt.Fprintf(&b, "export %s='%s'\n", v[0], v[1])
	}
	return b.String()
}

// writeWhole lets nobody see the file before it is complete. It holds the password.
func writeWhole(name, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
