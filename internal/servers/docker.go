package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

const (
	pingTimeout = 5 * time.Second
	pullTimeout = time.Minute
	// testLifetime is when Docker itself ends a container of a process that was killed; go test ends a package after ten
	// minutes unless it is told otherwise.
	testLifetime = time.Hour
)

// The labels of a container tell which process it belongs to. An id means something on its own host only: daemons can
// be shared.
const (
	labelOwner = "einmal.servers"
	labelPID   = "einmal.servers.pid"
	labelHost  = "einmal.servers.host"
)

// engine is a Docker daemon on this machine.
type engine struct{ pool *dockertest.Pool }

// findEngine asks the daemon whether it is there, and sweeps what killed processes left.
func findEngine(ctx context.Context) (*engine, error) {
	if host := cmp.Or(os.Getenv("DOCKER_HOST"), os.Getenv("DOCKER_URL")); host != "" &&
		!strings.HasPrefix(host, "unix://") {
		return nil, errors.New("DOCKER_HOST names another machine, whose ports are not at 127.0.0.1")
	}
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	e := &engine{pool}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		e.release()
		return nil, fmt.Errorf("no daemon answers: %w", err)
	}
	e.sweep()
	return e, nil
}

// release gives back the connections to the daemon, and with them their goroutines.
func (e *engine) release() { e.pool.Client.HTTPClient.CloseIdleConnections() }

// sweep removes the containers of processes of this host that are gone.
func (e *engine) sweep() {
	host, _ := os.Hostname()
	found, _ := e.pool.Client.ListContainers(docker.ListContainersOptions{All: true,
		Filters: map[string][]string{"label": {labelOwner}}})
	for _, c := range found {
		if c.Labels[labelHost] == host && gone(c.Labels[labelPID]) {
			_ = e.remove(c.ID)
		}
	}
}

func labels() map[string]string {
	host, _ := os.Hostname()
	return map[string]string{labelOwner: "1", labelPID: strconv.Itoa(os.Getpid()), labelHost: host}
}

// remove forces the container's end. That it is gone already is no error: Docker removes what has ended, too.
func (e *engine) remove(id string) error {
	err := e.pool.Client.RemoveContainer(docker.RemoveContainerOptions{ID: id, Force: true, RemoveVolumes: true})
	var missing *docker.NoSuchContainer
	if errors.As(err, &missing) || err != nil && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return err
}

// need makes sure that the image is there.
func (e *engine) need(ctx context.Context, image string) error {
	_, err := e.pool.Client.InspectImage(image)
	if errors.Is(err, docker.ErrNoSuchImage) {
		err = e.pull(ctx, image)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	return nil
}

// pull fetches the image. A failure is remembered for a while, so that of many test binaries on a machine without a
// registry only the first ones wait for the time-out.
func (e *engine) pull(ctx context.Context, image string) error {
	failed := pullFailed(image)
	if info, err := os.Stat(failed); err == nil && time.Since(info.ModTime()) < 10*time.Minute {
		return fmt.Errorf("could not be pulled a while ago; remove %s to have it tried again", failed)
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	repository, tag := splitImage(image)
	err := e.pool.Client.PullImage(docker.PullImageOptions{Repository: repository, Tag: tag, Context: ctx},
		docker.AuthConfiguration{})
	if err != nil {
		_ = os.Remove(failed)
		_ = os.WriteFile(failed, []byte(err.Error()+"\n"), 0o600)
	}
	return err
}

// pullFailed is the file whose age tells when a pull failed last.
func pullFailed(image string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(image))
	return filepath.Join(os.TempDir(), fmt.Sprintf("einmal-pull-failed-%d-%x", os.Getuid(), h.Sum32()))
}

// splitImage cuts the tag off, which is not the colon of a registry's port.
func splitImage(image string) (repository, tag string) {
	i := strings.LastIndexByte(image, ':')
	if i < strings.LastIndexByte(image, '/') || i < 0 {
		return image, "latest"
	}
	return image[:i], image[i+1:]
}

// container is one that runs, and what it says until it is ready.
type container struct {
	engine *engine
	id     string
	output *Output
	done   chan struct{} // closed once it has ended, or nobody follows it any more
	quiet  context.CancelFunc
}

// spec is what differs between the containers that are started here.
type spec struct {
	name     string // a prefix
	image    string
	port     string // the one that the image exposes
	env, cmd []string
	lifetime time.Duration
}

// run starts a container whose port is bound to the given one at 127.0.0.1. It is removed when it ends, and it ends
// after its lifetime, whatever became of this process.
func (e *engine) run(s spec, port string) (*container, error) {
	name := s.name + "-" + strings.ToLower(rand.Text()[:8])
	repository, tag := splitImage(s.image)
	res, err := e.pool.RunWithOptions(&dockertest.RunOptions{
		Name: name, Repository: repository, Tag: tag, Env: s.env, Cmd: s.cmd, Labels: labels(),
		PortBindings: map[docker.Port][]docker.PortBinding{
			docker.Port(s.port + "/tcp"): {{HostIP: "127.0.0.1", HostPort: port}},
		},
	}, func(h *docker.HostConfig) {
		h.PublishAllPorts = false // dockertest would publish every exposed port at every address
		h.AutoRemove = true
		h.RestartPolicy = docker.NeverRestart()
	})
	if err != nil {
		_ = e.pool.RemoveContainerByName(name) // it can be there, created and not started
		return nil, err
	}
	_ = res.Expire(uint(s.lifetime.Seconds())) // it answers at once, and always nil
	return e.follow(res.Container.ID), nil
}

// follow keeps what the container says, which is gone with it otherwise.
func (e *engine) follow(id string) *container {
	ctx, quiet := context.WithCancel(context.Background())
	c := &container{engine: e, id: id, output: &Output{}, done: make(chan struct{}), quiet: quiet}
	go func() {
		defer close(c.done)
		_ = e.pool.Client.Logs(docker.LogsOptions{
			Context: ctx, Container: id, OutputStream: c.output, ErrorStream: c.output, Stdout: true, Stderr: true, Follow: true,
		})
	}()
	return c
}

// until waits until the container's server is ready; then nobody follows its output any more.
func (c *container) until(ctx context.Context, ready func(context.Context) error) error {
	err := until(ctx, c.done, func() error { return errors.New("the container ended") }, ready)
	c.quiet()
	<-c.done
	if err != nil {
		err = fmt.Errorf("%w; it said\n%s", err, c.output)
	}
	return err
}

// close removes the container.
func (c *container) close() error {
	c.quiet()
	<-c.done
	err := c.engine.remove(c.id)
	c.engine.release()
	return err
}

// serve runs the container on a free port and answers with it and the port once it is ready.
func (e *engine) serve(ctx context.Context, build func(port string) (spec, func(context.Context) error)) (*container,
	error) {
	return onFreePort(ctx, func(port string) (*container, error) {
		s, ready := build(port)
		c, err := e.run(s, port)
		if err != nil {
			return nil, err
		}
		if err := c.until(ctx, ready); err != nil {
			return nil, joinClose(err, c.close)
		}
		return c, nil
	})
}
