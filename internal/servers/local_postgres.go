package servers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// localPostgres starts a server from programs on this machine.
func localPostgres(ctx context.Context) (*Database, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	return startPostgres(ctx, bin)
}

// postgresDirs are where the usual packages put the programs: Debian, PGDG's RPMs, Alpine, the sources' default,
// Homebrew on both kinds of Mac, Postgres.app.
var postgresDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/usr/local/pgsql/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// postgresBin finds the directory with initdb and postgres: the one that EINMAL_POSTGRES_BIN names, that of the initdb
// on PATH, or else the newest of the usual ones.
func postgresBin() (string, error) {
	if dir := os.Getenv(EnvPostgresBin); dir != "" {
		if !isPostgresBin(dir) {
			return "", fmt.Errorf("%s must name a directory with the programs initdb and postgres, which %s is not",
				EnvPostgresBin, dir)
		}
		return dir, nil
	}
	if dir, ok := postgresOnPath(); ok {
		return dir, nil
	}
	if dir, ok := newestPostgres(postgresDirs); ok {
		return dir, nil
	}
	return "", errors.New("no initdb and postgres on PATH or in the usual directories")
}

// postgresOnPath follows links: a linked initdb alone has no postgres beside it.
func postgresOnPath() (string, bool) {
	file, err := exec.LookPath("initdb")
	if err != nil {
		return "", false
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", false
	}
	dir := filepath.Dir(file)
	return dir, isPostgresBin(dir)
}

func isPostgresBin(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// newestPostgres expands the patterns and takes the directory with the highest version in its path.
func newestPostgres(patterns []string) (string, bool) {
	var found []string
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		found = append(found, slices.DeleteFunc(dirs, func(dir string) bool { return !isPostgresBin(dir) })...)
	}
	if len(found) == 0 {
		return "", false
	}
	return slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(versionIn(a), versionIn(b)) }), true
}

// versionIn is the last number in a path, 0 if there is none: 17 in /usr/lib/postgresql/17/bin.
func versionIn(path string) int {
	end := len(path)
	for end > 0 && !isDigit(path[end-1]) {
		end--
	}
	begin := end
	for begin > 0 && isDigit(path[begin-1]) {
		begin--
	}
	n, _ := strconv.Atoi(path[begin:end])
	return n
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// cluster is a PostgreSQL data directory of this process, and as whom and from where its programs run.
type cluster struct {
	env []string // beside what every server has

	bin, dir, password string
	cred               *syscall.Credential
}

// startPostgres makes a cluster in a directory of its own and starts it.
func startPostgres(ctx context.Context, bin string) (*Database, error) {
	c, err := newCluster(bin)
	if err != nil {
		return nil, err
	}
	db, err := c.serve(ctx)
	if err != nil {
		return nil, joinClose(err, c.remove)
	}
	return db, nil
}

func newCluster(bin string) (*cluster, error) {
	cred, err := otherThanRoot()
	if err != nil {
		return nil, err
	}
	// os.MkdirTemp and not testing's: the parent of that one is root's alone, the other user could not reach it
	dir, err := ownDir("einmal-postgres-")
	if err != nil {
		return nil, err
	}
	return &cluster{bin: bin, dir: dir, password: rand.Text(), cred: cred}, nil
}

// otherThanRoot is the user as whom PostgreSQL runs when this process is root, which PostgreSQL refuses to run as.
// Otherwise it is nil.
func otherThanRoot() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // exec takes nil as "the user who runs this process"
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return credentialOf(u)
		}
	}
	return nil, errors.New("this process runs as root, and there is no user postgres or nobody as whom PostgreSQL could run: run it as another user")
}

func credentialOf(u *user.User) (*syscall.Credential, error) {
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

func (c *cluster) remove() error { return os.RemoveAll(c.dir) }

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// command runs one of PostgreSQL's programs with an environment that holds nothing of this process's.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = append([]string{"PATH=" + c.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + c.dir}, c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred}
	return cmd
}

// own gives the files to the user as whom the server runs.
func (c *cluster) own(files ...string) error {
	if c.cred == nil {
		return nil
	}
	for _, file := range files {
		if err := os.Chown(file, int(c.cred.Uid), int(c.cred.Gid)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) serve(ctx context.Context) (*Database, error) {
	if err := c.initdb(ctx); err != nil {
		return nil, err
	}
	return onFreePort(ctx, func(port string) (*Database, error) { return c.listen(ctx, port) })
}

// initdb asks for a password even on this machine: trust would let every local user run programs as the server's user.
func (c *cluster) initdb(ctx context.Context) error {
	file := filepath.Join(c.dir, "password")
	if err := os.WriteFile(file, []byte(c.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := c.own(c.dir, file); err != nil {
		return err
	}
	out, err := c.command(ctx, "initdb", "-D", c.data(), "-U", "postgres", "--pwfile", file, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return os.Remove(file)
}

// postgresSettings are those of every PostgreSQL that is started here. One server stands for all tests of a package,
// hence the many connections. Without fsync nothing is lost when the server is killed, only when the machine crashes.
var postgresSettings = []string{"max_connections=300", "shared_buffers=64MB", "fsync=off", "full_page_writes=off"}

func postgresFlags() []string { return flagsOf(postgresSettings) }

func flagsOf(settings []string) (flags []string) {
	for _, s := range settings {
		flags = append(flags, "-c", s)
	}
	return flags
}

// listen starts the server at the port.
func (c *cluster) listen(ctx context.Context, port string) (*Database, error) {
	p, err := c.run(ctx, port, postgresFlags()...)
	if err != nil {
		return nil, err
	}
	db := &Database{
		URL:    postgresURL("postgres", c.password, port, "postgres"),
		Origin: "from " + c.bin,
		close: func() error {
			p.stop(syscall.SIGQUIT)
			return c.remove()
		},
	}
	if err := until(ctx, p.done, p.ended, db.ping); err != nil {
		p.stop(syscall.SIGQUIT)
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return db, nil
}

// run runs the server. SIGQUIT is its immediate shutdown: its children end and its shared memory is freed.
func (c *cluster) run(ctx context.Context, port string, flags ...string) (*process, error) {
	args := []string{"-D", c.data(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + port, "-c",
		"unix_socket_directories="}
	return start(c.command(context.WithoutCancel(ctx), "postgres", append(args, flags...)...), syscall.SIGQUIT)
}

func postgresURL(role, password, port, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Host: "127.0.0.1:" + port, Path: database,
		RawQuery: "sslmode=disable"}
	return u.String()
}

// ping tells whether the server answers queries.
func (d *Database) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return withConn(ctx, d.URL, func(c *pgx.Conn) error { return c.Ping(ctx) })
}
