package main

import (
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// In a copy of this service, this file is the one to replace: serverstest is einmal's own, and finds or starts
// PostgreSQL and Kafka. testcontainers, or the servers of compose.yaml, do as well.

func TestMain(m *testing.M) { serverstest.Main(m) }

// testDatabase returns the URL of an empty schema that the migrations have been run on.
func testDatabase(t testing.TB) (url string) {
	t.Helper()
	url = serverstest.DatabaseURL(t)
	if err := migrate(t.Context(), testLog(t), url); err != nil {
		t.Fatal(err)
	}
	return url
}

// testService returns a service on the brokers and the migrated database, before it runs.
func testService(t testing.TB, brokers []string, more map[string]string) *service {
	t.Helper()
	values := map[string]string{
		"DATABASE_URL": testDatabase(t), "KAFKA_BROKERS": strings.Join(brokers, ","),
		"HTTP_ADDR": "127.0.0.1:0", "OPS_ADDR": "127.0.0.1:0",
	}
	maps.Copy(values, more)
	cfg, err := readConfig(lookup(values))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newService(t.Context(), testLog(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lookup is an environment.
func lookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// testLog is shown when the test fails.
func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
