package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/einmal-go/einmal/internal/servers"
)

// usageError is a wrong command line.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

func wrongUsage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// newFlags returns a set of flags whose help begins with doc.
func newFlags(name, doc string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // parse prints
	fs.Usage = func() { fmt.Fprintf(fs.Output(), "%s\n\nFlags:\n", strings.TrimSpace(doc)) }
	return fs
}

// parse parses args, of which none may be left over. Asked for help it prints it, and returns flag.ErrHelp.
func parse(fs *flag.FlagSet, args []string, stdout io.Writer) error {
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stdout)
		fs.Usage()
		fs.PrintDefaults()
		return err
	case err != nil:
		return wrongUsage("%s: %v: -h lists the flags", fs.Name(), err)
	case fs.NArg() > 0:
		return wrongUsage("%s: %q is no flag: flags begin with a dash, -h lists them", fs.Name(), fs.Arg(0))
	}
	return nil
}

// target is where a part of the demo works. Its defaults come from the environment, and are read after the flags so
// that the help does not show a password.
type target struct {
	brokers  string // host:port, separated by commas
	database string // URL
	tables   bool   // are made, where they are missing
	topic    string
	group    string
}

func (t *target) addBrokers(fs *flag.FlagSet) {
	fs.StringVar(&t.brokers, "brokers", "", "Kafka `brokers`, host:port, separated by commas (default: "+
		servers.EnvKafkaBrokers+")")
}

func (t *target) addDatabase(fs *flag.FlagSet) {
	fs.StringVar(&t.database, "database", "", "PostgreSQL `URL` (default: "+servers.EnvDatabaseURL+
		", which keeps a password out of the list of processes)")
	fs.BoolVar(&t.tables, "tables", true,
		"make the tables that are missing; -tables=false for a role of the database that works with them, and may not make any")
}

func (t *target) addTopic(fs *flag.FlagSet, name string) {
	fs.StringVar(&t.topic, "topic", name, "`topic` of the events, which must exist")
}

func (t *target) addGroup(fs *flag.FlagSet, name string) {
	fs.StringVar(&t.group, "group", name, "consumer `group`")
}

// addShare adds the size of groups, for a service that consumes.
func addShare(fs *flag.FlagSet) *int {
	return fs.Int("share", 1, "`messages` that may share a transaction")
}

// parse parses args, and completes and checks t.
func (t *target) parse(fs *flag.FlagSet, args []string, stdout io.Writer) error {
	if err := parse(fs, args, stdout); err != nil {
		return err
	}
	return t.complete(fs)
}

// complete fills in what the environment knows, and refuses what is still missing of what the set has flags for, all at
// once.
func (t *target) complete(fs *flag.FlagSet) error {
	if t.brokers == "" {
		t.brokers = os.Getenv(servers.EnvKafkaBrokers)
	}
	if t.database == "" {
		t.database = os.Getenv(servers.EnvDatabaseURL)
	}
	var missing []string
	for _, f := range []struct{ name, value, remedy string }{
		{"brokers", t.brokers, "give Kafka's addresses, localhost:9092 for example, or set " + servers.EnvKafkaBrokers},
		{"database", t.database, "give PostgreSQL's URL, postgres://user@localhost:5432/billing for example, or set " +
			servers.EnvDatabaseURL},
		{"topic", t.topic, "name the topic of the events"},
		{"group", t.group, "name the consumer group"},
	} {
		if fs.Lookup(f.name) != nil && f.value == "" {
			missing = append(missing, fmt.Sprintf("-%s is missing: %s", f.name, f.remedy))
		}
	}
	if len(missing) > 0 {
		return wrongUsage("%s: %s", fs.Name(), strings.Join(missing, "; "))
	}
	return nil
}

func (t *target) addrs() []string {
	addrs := strings.Split(t.brokers, ",")
	for i := range addrs {
		addrs[i] = strings.TrimSpace(addrs[i])
	}
	return addrs
}

func inRange(fs *flag.FlagSet, name string, n, low, high int) error {
	if n < low || n > high {
		return wrongUsage("%s: -%s is %d: give a number from %d to %d", fs.Name(), name, n, low, high)
	}
	return nil
}

func isPart(fs *flag.FlagSet, name string, part float64) error {
	if !(part >= 0 && part < 1) { // NaN too
		return wrongUsage("%s: -%s is %v: give a part from 0 to less than 1", fs.Name(), name, part)
	}
	return nil
}
