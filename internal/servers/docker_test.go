package servers

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ory/dockertest/v3/docker"
)

func pid() string { return strconv.Itoa(os.Getpid()) }

// needDocker skips the test where there is no Docker or no image. Where the image's variable is set, it must be there.
func needDocker(t *testing.T, variable, image string) *engine {
	t.Helper()
	e, err := findEngine(context.Background())
	if err == nil {
		t.Cleanup(e.release)
		err = e.need(context.Background(), image)
	}
	if err != nil && os.Getenv(variable) != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return e
}

func needPostgresImage(t *testing.T) *engine {
	t.Helper()
	return needDocker(t, EnvPostgresImage, postgresImage())
}

func TestDockerServes(t *testing.T) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		needPostgresImage(t)
		db, err := DockerPostgres(context.Background(), testLifetime)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(db.Origin, "PostgreSQL 1") || !strings.Contains(db.Origin, " by Docker, image ") {
			t.Errorf("Origin = %q", db.Origin)
		}
		closed(t, db)
	})
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		needDocker(t, EnvKafkaImage, kafkaImage())
		k, err := DockerKafka(context.Background(), testLifetime)
		if err != nil {
			t.Fatal(err)
		}
		if k.Kind != Apache || k.Fake != nil || !strings.HasPrefix(k.Origin, "Apache Kafka by Docker, image ") {
			t.Errorf("%+v", k)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if err := k.ping(context.Background()); err == nil {
			t.Error("the broker answers after Close")
		}
	})
}

func TestDockerEndsAContainerAfterItsLifetime(t *testing.T) {
	t.Parallel()
	e := needPostgresImage(t)
	c, err := onFreePort(context.Background(), func(port string) (*container, error) {
		return e.run(spec{
			name: "einmal-brief", image: postgresImage(), port: "5432", lifetime: 2 * time.Second,
			env: []string{"POSTGRES_PASSWORD=x"}, cmd: []string{"postgres"},
		}, port)
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := e.pool.Client.InspectContainer(c.id); err == nil {
			return errors.New("the container lives on")
		}
		return nil
	})
	if err := c.close(); err != nil {
		t.Errorf("close of what has ended: %v", err)
	}
}

func TestAContainerThatEndsAtOnceSaysWhy(t *testing.T) {
	t.Parallel()
	e := needPostgresImage(t)
	_, err := e.serve(context.Background(), func(string) (spec, func(context.Context) error) {
		return spec{
			name: "einmal-broken", image: postgresImage(), port: "5432", lifetime: time.Minute,
			env: []string{"POSTGRES_PASSWORD=x"}, cmd: []string{"postgres", "-c", "no_such_setting=1"},
		}, func(context.Context) error { return errors.New("not ready") }
	})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("err = %v; want what the server said", err)
	}
}

func TestPortThatIsTakenIsReplaced(t *testing.T) {
	t.Parallel()
	e := needPostgresImage(t)
	s := spec{name: "einmal-port", image: postgresImage(), port: "5432", lifetime: time.Minute,
		env: []string{"POSTGRES_PASSWORD=x"}}
	taken, err := freePort(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.run(s, taken)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := e.run(s, taken); err == nil || !portTaken(err) {
		t.Errorf("err = %v; want one that is known as a port in use", err)
	}
}

func TestSweepTakesWhatKilledProcessesLeft(t *testing.T) {
	t.Parallel()
	e := needPostgresImage(t)
	host, _ := os.Hostname()
	exists := func(owner map[string]string) string {
		c, err := e.pool.Client.CreateContainer(docker.CreateContainerOptions{Config: &docker.Config{
			Image: postgresImage(), Labels: owner,
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.remove(c.ID) })
		return c.ID
	}
	dead := exists(map[string]string{labelOwner: "1", labelPID: "2147483646", labelHost: host})
	mine := exists(labels())
	elsewhere := exists(map[string]string{labelOwner: "1", labelPID: "2147483646", labelHost: "another-host"})
	e.sweep()
	for id, kept := range map[string]bool{dead: false, mine: true, elsewhere: true} {
		if _, err := e.pool.Client.InspectContainer(id); (err == nil) != kept {
			t.Errorf("container of %s: %v, kept should be %v", id, err, kept)
		}
	}
}

func TestRemoteDockerIsNotUsed(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
	if _, err := findEngine(context.Background()); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("err = %v", err)
	}
}

func TestAFailedPullIsRemembered(t *testing.T) {
	t.Parallel()
	e := needPostgresImage(t)
	const image = "127.0.0.1:1/einmal/none:1"
	t.Cleanup(func() { _ = os.Remove(pullFailed(image)) })
	_ = os.Remove(pullFailed(image))
	first := e.need(context.Background(), image)
	second := e.need(context.Background(), image)
	if first == nil || strings.Contains(first.Error(), "a while ago") {
		t.Errorf("first: %v", first)
	}
	if second == nil || !strings.Contains(second.Error(), "a while ago") {
		t.Errorf("second: %v", second)
	}
}

// eventually asks f until it answers nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	if err := until(context.Background(), nil, nil, func(context.Context) error { return f() }); err != nil {
		t.Fatal(err)
	}
}
