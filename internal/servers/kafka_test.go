package servers

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunningKafkaComesFirst(t *testing.T) {
	in, err := InProcessKafka()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	t.Setenv(EnvKafkaBrokers, " "+strings.Join(in.Addrs, " , "))
	t.Setenv(EnvKafkaImage, "einmal/none:1")
	k, err := RealKafka(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if k.Kind != Apache || !slices.Equal(k.Addrs, in.Addrs) || !strings.HasSuffix(k.Origin, EnvKafkaBrokers) {
		t.Errorf("%+v", k)
	}
	if err := k.Close(); err != nil || in.ping(context.Background()) != nil {
		t.Errorf("Close ended a cluster that it had not started: %v", err)
	}
}

func TestKafkaThatIsMeantAndMissingIsAnError(t *testing.T) {
	noVariables(t)
	noDocker(t)
	t.Setenv(EnvKafkaJars, "")
	_, err := RealKafka(context.Background())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"start Docker", EnvKafkaBrokers, EnvKafkaJars, "Docker: ", "local jars: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	t.Setenv(EnvKafkaBrokers, "127.0.0.1:1")
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if _, err := RealKafka(ctx); err == nil || !strings.Contains(err.Error(), EnvKafkaBrokers) {
		t.Errorf("err = %v; want the variable's name in it", err)
	}
}

func TestKafkaFromJars(t *testing.T) {
	jars := os.Getenv(EnvKafkaJars)
	if jars == "" {
		t.Skip(EnvKafkaJars + " is not set")
	}
	noVariables(t)
	k, err := RealKafka(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if k.Kind != Apache || !strings.HasSuffix(k.Origin, jars) {
		t.Errorf("%+v", k)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if dirs := left("einmal-kafka-", pid()); len(dirs) > 0 {
		t.Errorf("left behind: %v", dirs)
	}
}
