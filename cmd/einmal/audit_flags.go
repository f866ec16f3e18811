package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/audit"
)

// auditFlags are what all audits are told.
type auditFlags struct {
	tables tableFlags
	url    urlFlags
	kafka  kafkaFlags

	topic    string
	from, to moment
	keep     time.Duration
	rate     float64
	temp     string
	values   bool
	all      bool
	json     bool
}

func (f *auditFlags) add(flags *flag.FlagSet, window, keep string) {
	f.tables.add(flags)
	f.url.add(flags)
	unlimited(flags)
	f.kafka.add(flags)
	flags.StringVar(&f.topic, "topic", "", "the `topic`")
	flags.Var(&f.from, "from", "from this `time` on: 2026-01-02T15:04:05Z, or 36h for so long ago. By default from the beginning. The time is that "+window)
	flags.Var(&f.to, "to", "up to this `time`, without it. By default to what is the end")
	flags.DurationVar(&f.keep, "keep", 0, keep)
	flags.Float64Var(&f.rate, "rate", 0, "read so many messages and rows a second at most. By default as many as it can")
	flags.StringVar(&f.temp, "temp", "", "the `directory` of the sorted files. By default the system's for such")
	flags.BoolVar(&f.values, "value", false, "show the keys and values of the examples")
	flags.BoolVar(&f.all, "v", false, "list all that was found, not only the first ten of each kind")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// validate finds out what is wrong with the flags.
func (f *auditFlags) validate() error {
	switch {
	case f.topic == "":
		return usagef("which topic? Set -topic")
	case f.keep < 0:
		return usagef("-keep is %v: make it as long as rows are kept, or leave it out", f.keep)
	case f.rate < 0:
		return usagef("-rate is %v: make it positive, or leave it out", f.rate)
	case !f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to.Time):
		return usagef("-from is not before -to")
	}
	return nil
}

// examples is how many are kept of each kind.
func (f *auditFlags) examples() int {
	if f.all {
		return -1
	}
	return 0
}

// servers is what an audit reads from.
type servers struct {
	kafka    audit.Kafka
	db       *sql.DB
	progress func(audit.Progress)
}

// with opens the database, and calls do. What it cannot do is no answer: see unableError.
func (f *auditFlags) with(ctx context.Context, env *environment, w *wanted,
	do func(ctx context.Context, s *servers) error) error {
	err := f.opened(ctx, env, w, do)
	var usage *usageError
	if err == nil || errors.As(err, &usage) {
		return err
	}
	return &unableError{err}
}

func (f *auditFlags) opened(ctx context.Context, env *environment, w *wanted,
	do func(ctx context.Context, s *servers) error) error {
	brokers, err := f.kafka.addresses(env)
	if err != nil {
		return err
	}
	if f.url.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.url.timeout,
			fmt.Errorf("it was not done within %v: -timeout takes longer", f.url.timeout))
		defer cancel()
	}
	security, err := f.kafka.security(env)
	if err != nil {
		return err
	}
	db, err := f.url.open(ctx, env, w.dialect, false)
	if err != nil {
		return err
	}
	defer db.Close()
	show, end := auditProgress(env)
	defer end()
	return do(ctx, &servers{db: db, progress: show, kafka: audit.Kafka{
		Brokers: brokers, TLS: security.TLS, Mechanism: security.Mechanism, User: security.User, Password: security.Password,
		ReadUncommitted: f.kafka.uncommitted,
	}})
}

// auditProgress shows on a terminal what is read.
func auditProgress(env *environment) (show func(audit.Progress), end func()) {
	if !isTerminal(env.stderr) || env.stdin == nil {
		return nil, func() {}
	}
	const clearLine = "\r\x1b[K"
	return func(p audit.Progress) {
		of := ""
		if p.Total > 0 {
			of = fmt.Sprintf(" of %d", p.Total)
		}
		fmt.Fprintf(env.stderr, clearLine+"%s: %d%s", p.Step, p.Done, of)
	}, func() { fmt.Fprint(env.stderr, clearLine) }
}

// unableError is the error of a command whose answer is neither yes nor no.
type unableError struct{ error }

func (e *unableError) Unwrap() error { return e.error }
