// Package servers finds or starts the PostgreSQL and the Kafka that the tests and the demo run on, so that both work on
// a machine that has nothing but Go and a network.
//
// A server is looked for in this order; the first that can be had is taken:
//
//	PostgreSQL                                          Kafka (RealKafka)
//	1. EINMAL_DATABASE_URL                              EINMAL_KAFKA_BROKERS
//	2. Docker, image EINMAL_POSTGRES_IMAGE              Docker, image EINMAL_KAFKA_IMAGE
//	3. programs in EINMAL_POSTGRES_BIN, on PATH         jars in EINMAL_KAFKA_JARS, run by java
//	   or in the usual directories, newest first
//	4. binaries fetched by embedded-postgres            -
//
// A variable that is set is meant: with EINMAL_POSTGRES_IMAGE set, for example, Docker has to serve, and that it cannot
// is an error, not a reason to go on with the next. InProcessKafka needs none of this: it is a broker within the
// process that speaks the real protocol.
//
// Servers are reached by TCP at 127.0.0.1, so that child processes can use them. A server that was started here ends
// with the process that started it, whatever ends that one: local programs by the kernel's death signal or a watchdog,
// containers by a time limit and by the next process, which sweeps those whose owner is gone. They are throwaway
// servers: they do not survive a crash of the machine (fsync is off), but synchronous_commit stays on, since what is
// tested with them promises durability. An Instance is another matter: a PostgreSQL of one test's own, with fsync,
// which the test kills, starts again, and has followed by a replica. It runs from local programs, or else from fetched
// ones, never by Docker.
package servers

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// The environment variables that decide which servers are used. All of them are optional.
const (
	// EnvDatabaseURL names a PostgreSQL server that runs already, as a URL or as key=value pairs. Its role must be allowed
	// to create schemas.
	EnvDatabaseURL = "EINMAL_DATABASE_URL"
	// EnvPostgresImage is the image from which Docker starts PostgreSQL. Defaults to postgres:17-alpine.
	EnvPostgresImage = "EINMAL_POSTGRES_IMAGE"
	// EnvPostgresBin is the directory with the programs initdb and postgres.
	EnvPostgresBin = "EINMAL_POSTGRES_BIN"
	// EnvKafkaBrokers names a Kafka cluster that runs already: host:port, separated by commas.
	EnvKafkaBrokers = "EINMAL_KAFKA_BROKERS"
	// EnvKafkaImage is the image from which Docker starts Kafka. Defaults to apache/kafka:4.3.1.
	EnvKafkaImage = "EINMAL_KAFKA_IMAGE"
	// EnvKafkaJars is the directory with the jars of Apache Kafka.
	EnvKafkaJars = "EINMAL_KAFKA_JARS"
)

// A source is one way to a server.
type source[S any] struct {
	name     string
	variable string // if this one is set, the source is meant and no other will do
	find     func() (S, error)
}

// first asks the sources in turn and answers with the first server there is. The reasons are why those before it were
// passed over: a source that is not there, or that fails, is no error as long as another one serves.
func first[S any](ctx context.Context, sources []source[S]) (server S, reasons []string, err error) {
	for _, s := range meant(sources) {
		if err := ctx.Err(); err != nil {
			return server, reasons, err
		}
		if server, err = s.find(); err == nil {
			return server, reasons, nil
		}
		reasons = append(reasons, s.name+": "+err.Error())
	}
	return server, reasons, errNone
}

var errNone = errors.New("no source has a server")

// meant are the sources whose variable is set, or all of them.
func meant[S any](sources []source[S]) []source[S] {
	named := slices.DeleteFunc(slices.Clone(sources), func(s source[S]) bool {
		return s.variable == "" || os.Getenv(s.variable) == ""
	})
	if len(named) > 0 {
		return named
	}
	return sources
}

// startTimeout is how long a server that was started here may take until it answers. Kafka takes 4 s on an idle
// machine, and was seen to take 37 s on one with more to do than processors.
const startTimeout = 2 * time.Minute
