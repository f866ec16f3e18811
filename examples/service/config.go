package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/outbox/relay"
)

// config is what the environment says. The names of the variables are in readConfig.
type config struct {
	databaseURL string
	connections int // of the pool that requests and messages share

	brokers       []string
	group         string
	instanceID    string // a name that outlasts restarts makes this a static member
	ordersTopic   string
	paymentsTopic string
	workers       int // messages in work at once
	tls           bool
	user          string
	password      string

	httpAddr string // where customers come
	opsAddr  string // where probes, Prometheus and operators come
	traces   string // the base URL of an OTLP collector; "" exports no traces

	requestTimeout time.Duration // requests in work may take so long to finish when the service stops
	drainTimeout   time.Duration // and messages in work so long
	window         time.Duration // records are kept and messages are accepted for so long
}

// readConfig reads the configuration, and returns all that is wrong with it in one error, which says what to do. It
// repeats no secret.
func readConfig(lookup func(string) (string, bool)) (config, error) {
	e := &environment{lookup: lookup}
	c := config{
		databaseURL: e.databaseURL(),
		connections: e.number("DATABASE_CONNECTIONS", 20, 3, 1000),

		brokers:       e.addresses("KAFKA_BROKERS"),
		group:         e.text("KAFKA_GROUP", "orders-service"),
		instanceID:    e.text("INSTANCE_ID", ""),
		ordersTopic:   e.text("ORDERS_TOPIC", "orders.confirmed"),
		paymentsTopic: e.text("PAYMENTS_TOPIC", "payments.charged"),
		workers:       e.number("WORKERS", 8, 1, 1000),
		tls:           e.yesNo("KAFKA_TLS"),
		user:          e.text("KAFKA_USER", ""),
		password:      e.text("KAFKA_PASSWORD", ""),

		httpAddr: e.address("HTTP_ADDR", ":8080"),
		opsAddr:  e.address("OPS_ADDR", ":9090"),
		traces:   e.text("OTEL_EXPORTER_OTLP_ENDPOINT", ""),

		requestTimeout: e.duration("REQUEST_TIMEOUT", 8*time.Second, time.Second, time.Minute),
		drainTimeout:   e.duration("DRAIN_TIMEOUT", consumer.DefaultDrainTimeout, time.Second, 10*time.Minute),
		window:         e.duration("WINDOW", 15*24*time.Hour, time.Hour, 10*365*24*time.Hour),
	}
	if c.connections < c.workers+2 {
		e.wrong("DATABASE_CONNECTIONS is %d and WORKERS is %d: each message in work has a connection, "+
			"so give at least %d", c.connections, c.workers, c.workers+2)
	}
	if (c.user == "") != (c.password == "") {
		e.wrong("KAFKA_USER and KAFKA_PASSWORD belong together: set both or neither")
	}
	if c.user != "" && !c.tls {
		e.wrong("KAFKA_USER without KAFKA_TLS would send the password in clear text: set KAFKA_TLS=true")
	}
	return c, errors.Join(e.errs...)
}

// readDatabaseURL reads what a migration needs.
func readDatabaseURL(lookup func(string) (string, bool)) (string, error) {
	e := &environment{lookup: lookup}
	return e.databaseURL(), errors.Join(e.errs...)
}

// What the steps of a stop may take beyond their time-outs, when servers do not answer.
const (
	// leaveTime: handlers are cancelled and roll back, the last offsets are committed, and the group is left.
	leaveTime = 12 * time.Second
	// relayTime: a batch that has begun is published, and marked in the database.
	relayTime = relay.DefaultPublishTimeout + 10*time.Second
	// flushTime: the last spans are exported.
	flushTime = 5 * time.Second
)

// stopTime is the longest that an ordered stop takes. The platform must leave more between SIGTERM and SIGKILL; a
// test compares it with the manifests. Nothing is lost if it does not: what was not finished is rolled back, and
// comes again.
func (c config) stopTime() time.Duration {
	return c.requestTimeout + c.drainTimeout + leaveTime + relayTime + flushTime
}

// environment reads variables and collects what is wrong with them.
type environment struct {
	lookup func(string) (string, bool)
	errs   []error
}

func (e *environment) wrong(format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf(format, args...))
}

// text returns a variable; an empty one counts as missing.
func (e *environment) text(name, otherwise string) string {
	if value, _ := e.lookup(name); strings.TrimSpace(value) != "" {
		return strings.TrimSpace(value)
	}
	return otherwise
}

func (e *environment) databaseURL() string {
	const example = "postgres://user@host:5432/orders"
	url := e.text("DATABASE_URL", "")
	if url == "" {
		e.wrong("DATABASE_URL is missing: give the URL of PostgreSQL, like %s", example)
	} else if _, err := pgxpool.ParseConfig(url); err != nil {
		e.wrong("DATABASE_URL cannot be read: it must look like %s", example) // the error may repeat a password
	}
	return url
}

func (e *environment) addresses(name string) (list []string) {
	for address := range strings.SplitSeq(e.text(name, ""), ",") {
		if address = strings.TrimSpace(address); address == "" {
			continue
		}
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			e.wrong("%s has %q: give host:port, separated by commas", name, address)
		}
		list = append(list, address)
	}
	if list == nil {
		e.wrong("%s is missing: give the brokers of Kafka as host:port, separated by commas", name)
	}
	return list
}

func (e *environment) address(name, otherwise string) string {
	value := e.text(name, otherwise)
	if _, _, err := net.SplitHostPort(value); err != nil {
		e.wrong("%s is %q: give host:port, or :port for all interfaces", name, value)
	}
	return value
}

func (e *environment) number(name string, otherwise, low, high int) int {
	text := e.text(name, strconv.Itoa(otherwise))
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		e.wrong("%s is %q: give a number from %d to %d", name, text, low, high)
	}
	return n
}

func (e *environment) duration(name string, otherwise, low, high time.Duration) time.Duration {
	text := e.text(name, otherwise.String())
	d, err := time.ParseDuration(text)
	if err != nil || d < low || d > high {
		e.wrong("%s is %q: give a duration from %v to %v, like %v", name, text, low, high, otherwise)
	}
	return d
}

func (e *environment) yesNo(name string) bool {
	text := e.text(name, "false")
	yes, err := strconv.ParseBool(text)
	if err != nil {
		e.wrong("%s is %q: give true or false", name, text)
	}
	return yes
}
