package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// least is what cannot be left out.
var least = map[string]string{"DATABASE_URL": "postgres://u:s3cret@db/orders", "KAFKA_BROKERS": "one:9092, two:9092"}

func TestConfig(t *testing.T) {
	t.Parallel()
	c, err := readConfig(lookup(least))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.brokers) != 2 || c.brokers[1] != "two:9092" || c.group == "" || c.drainTimeout != 8*time.Second {
		t.Errorf("brokers %q, group %q, drain %v", c.brokers, c.group, c.drainTimeout)
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		want        string
	}{
		{"DATABASE_URL", "", "DATABASE_URL is missing"},
		{"DATABASE_URL", "postgres://u:s3cret@db:port/orders", "DATABASE_URL cannot be read"},
		{"KAFKA_BROKERS", " ", "KAFKA_BROKERS is missing"},
		{"KAFKA_BROKERS", "kafka", `KAFKA_BROKERS has "kafka": give host:port`},
		{"KAFKA_BROKERS", "one:9092,:9092", `has ":9092"`},
		{"DATABASE_CONNECTIONS", "many", "give a number from 3 to 1000"},
		{"DATABASE_CONNECTIONS", "9", "give at least 10"},
		{"WORKERS", "0", "give a number from 1 to 1000"},
		{"DRAIN_TIMEOUT", "8", "give a duration from 1s to 10m0s"},
		{"REQUEST_TIMEOUT", "-1s", "REQUEST_TIMEOUT"},
		{"WINDOW", "15d", "WINDOW"},
		{"HTTP_ADDR", "8080", "give host:port"},
		{"OPS_ADDR", "nowhere", "give host:port"},
		{"KAFKA_TLS", "maybe", "give true or false"},
		{"KAFKA_USER", "ann", "belong together"},
		{"KAFKA_PASSWORD", "s3cret", "belong together"},
	} {
		values := maps.Clone(least)
		values[c.name] = c.value
		_, err := readConfig(lookup(values))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%q: %v, want %q", c.name, c.value, err, c.want)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s=%q: the error repeats the password: %v", c.name, c.value, err)
		}
	}
}

func TestConfigTellsOfAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := readConfig(lookup(map[string]string{"KAFKA_USER": "ann", "KAFKA_PASSWORD": "s3cret", "WORKERS": "no"}))
	for _, want := range []string{"DATABASE_URL", "KAFKA_BROKERS", "WORKERS", "KAFKA_TLS"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell of %s", err, want)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	err := command(t.Context(), testLog(t), []string{"migrat"})
	if err == nil || !strings.Contains(err.Error(), `"migrate"`) {
		t.Errorf("%v", err)
	}
}
