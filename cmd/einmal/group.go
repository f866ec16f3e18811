package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/topicwindow"
)

var groupShow = command{
	name: "group", args: "NAME",
	about: "Show a consumer group as the brokers know it: members, offsets, lag, what is stuck.",
	more: "It needs no process of the group: what it shows is what Kafka has. It joins nothing and commits nothing. The user needs the right to\n" +
		"DESCRIBE the group and its topics; when an offset was committed is known to who may READ __consumer_offsets.\n\n" +
		"With -db, or -url, also what the database has: records by consumer, dead letters of the group, and the outbox.\n\n" +
		"The exit code is 0 if the group was shown, and 1 if it was not, or if -max-lag is exceeded. -max-lag also asks that there are partitions,\n" +
		"that each has a member and a lag that is known, and that no committed offset is out of the log's range. With -watch the last look decides.\n\n" +
		"example: einmal group -db postgres -watch 2s billing-service",
	setup: func(flags *flag.FlagSet) action {
		f := groupFlags{now: time.Now}
		f.add(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("name one consumer group, as Config.Group of the service")
			}
			return f.show(ctx, env, args[0])
		}
	},
}

// groupFlags say which cluster is meant, and what is shown of the group.
type groupFlags struct {
	tables tableFlags
	url    urlFlags
	kafka  kafkaFlags
	watch  time.Duration
	maxLag int64
	json   bool
	now    func() time.Time
}

func (f *groupFlags) add(flags *flag.FlagSet) {
	f.tables.add(flags)
	f.url.add(flags)
	f.kafka.add(flags)
	flags.DurationVar(&f.watch, "watch", 0, "look again after this `time`, until interrupted")
	flags.Int64Var(&f.maxLag, "max-lag", -1,
		"the `lag` in messages, of the whole group, above which the exit code is 1; 0 means none at all. By default any is well")
	flags.BoolVar(&f.json, "json", false, "print JSON, an object for each look")
}

// show looks once, or until it is interrupted.
func (f *groupFlags) show(ctx context.Context, env *environment, name string) error {
	switch {
	case f.watch < 0:
		return usagef("-watch is %v: make it 2s for example", f.watch)
	case f.maxLag < -1:
		return usagef("-max-lag is %d: make it 0 or more", f.maxLag)
	case f.url.timeout <= 0:
		return usagef("-timeout is %v: make it longer", f.url.timeout)
	}
	dialing, cancel := context.WithTimeout(ctx, f.url.timeout)
	defer cancel()
	if _, err := f.kafka.addresses(env); err != nil {
		return err
	}
	tables, err := f.openTables(dialing, env)
	if err != nil {
		return err
	}
	defer tables.close()
	// the connections outlast the first look
	cluster, err := f.dial(ctx, dialing, env)
	if err != nil {
		return err
	}
	defer cluster.Close()
	for {
		err := f.look(ctx, env, cluster, tables, name)
		if f.watch == 0 {
			return err
		}
		if err != nil && !errors.Is(err, errNo) && ctx.Err() == nil {
			fmt.Fprintf(env.stderr, "einmal: %s\n", plain(strings.TrimPrefix(err.Error(), "einmal: "))) // it may pass
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, errNo) {
				return err
			}
			return nil
		case <-time.After(f.watch):
		}
	}
}

// dial reaches the cluster within dialing. Its connections last as long as ctx.
func (f *groupFlags) dial(ctx, dialing context.Context, env *environment) (*topicwindow.Cluster, error) {
	connections, cut := context.WithCancel(ctx)
	stop := context.AfterFunc(dialing, cut)
	cluster, err := f.kafka.dial(connections, env)
	if err != nil {
		stop()
		cut()
		if dialing.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no broker has answered within %v: -timeout waits longer: %w", f.url.timeout, err)
		}
		return nil, err
	}
	stop() // cut is left to the end of ctx, which is that of the process
	return cluster, nil
}

// look asks once, and prints.
func (f *groupFlags) look(ctx context.Context, env *environment, cluster *topicwindow.Cluster, tables *groupTables,
	name string) error {
	ctx, cancel := context.WithTimeout(ctx, f.url.timeout)
	defer cancel()
	group, err := consumer.DescribeGroup(ctx, cluster.Client(), name)
	if err != nil {
		return err
	}
	view := newGroupView(group, f.now())
	if tables != nil {
		view.Database = tables.look(ctx, name)
	}
	if f.maxLag >= 0 {
		view.Problems = view.problems(f.maxLag)
	}
	var out bytes.Buffer
	if f.json {
		err = printJSON(&out, view, indentedJSON)
	} else {
		view.print(&out)
		if f.watch > 0 {
			out.WriteByte('\n')
		}
	}
	if err != nil {
		return err
	}
	if _, err := env.stdout.Write(out.Bytes()); err != nil {
		return err
	}
	if len(view.Problems) > 0 {
		return errNo
	}
	return nil
}

// openTables opens the database if one is named by a flag.
func (f *groupFlags) openTables(ctx context.Context, env *environment) (*groupTables, error) {
	if f.tables.db == "" && f.url.url == "" {
		return nil, nil //nolint:nilnil // none is asked for
	}
	w, err := f.tables.wants(f.url.get(env), nil)
	if err != nil {
		return nil, err
	}
	var db *sql.DB
	if db, err = f.url.open(ctx, env, w.dialect, false); err != nil {
		return nil, err
	}
	return &groupTables{db: db, wanted: w}, nil
}
